"""Bring a whole instance to rest after its faults are healed: finish what failed, and start what is stopped."""

from gpuaas_contract import instances, operations
from gpuaas_contract.errors import ApiError
from gpuaas_contract.operations import Operation

from bench.campaign import rest
from bench.campaign.acts import Acts
from bench.campaign.cluster import Cluster
from bench.campaign.rest import OPERATIONS_S, until_none

RUNNING_S = 180.0
REASON = "after the schedule"


async def changes_end(cluster: Cluster, acts: Acts) -> None:
    """Retry the last change of the instance if it failed half-way; undo it if a retry fails. An upgrade or reconfigure
    whose exits are gone, because a member was changed after it, is requested again."""
    failed = await _left(cluster)
    if failed is None:
        return
    await rest.restless(cluster)  # It lifts drains by Slurm itself, as the fix of the failed operation shows.
    for name in ("retry", "retry", "compensate"):
        offered = {exit.name for exit in (await cluster.project.operation(failed.operation_id)).exits}
        if name not in offered or not await acts.take(failed, name):
            continue
        ended = await cluster.project.ended(failed.operation_id, OPERATIONS_S)
        error = f": {ended.error.message}" if ended.error else ""
        cluster.journal.note("operation", f"{ended.kind} {ended.operation_id} {ended.status}{error}")
        if ended.status in ("succeeded", "cancelled"):
            return
    if failed.kind in ("upgrade", "reconfigure") and await _done_again(cluster, failed):
        return
    cluster.journal.violated("healthy", f"{failed.kind} {failed.operation_id} cannot be finished or undone")


async def _done_again(cluster: Cluster, failed: Operation) -> bool:
    try:
        operation = await _request_again(cluster, failed)
    except ApiError as error:
        cluster.journal.note("refused", f"{failed.kind} again: {error}")
        return False
    ended = await cluster.project.ended(operation.operation_id, OPERATIONS_S)
    error_text = f": {ended.error.message}" if ended.error else ""
    cluster.journal.note("operation", f"{failed.kind} again: {ended.operation_id} {ended.status}{error_text}")
    return ended.status == "succeeded"


async def _request_again(cluster: Cluster, failed: Operation) -> Operation:
    if failed.kind == "upgrade":
        upgrade = instances.UpgradeInstance(version=failed.to_version, reason=REASON)
        return await cluster.change(instances.UPGRADE, upgrade)
    left_out = dict.fromkeys(failed.inputs_before.keys() - failed.inputs.keys())
    reconfigure = instances.ReconfigureInstance(inputs={**left_out, **failed.inputs}, reason=REASON)
    return await cluster.change(instances.RECONFIGURE, reconfigure)


async def starts(cluster: Cluster) -> None:
    """Start a stopped instance. It has to succeed."""
    if (await cluster.instance()).baseline != "stopped":
        return
    body = instances.ChangeInstance(reason=REASON)
    try:
        operation = await cluster.change(instances.START, body)
    except ApiError as error:
        cluster.journal.violated("healthy", f"the start of a stopped instance was refused: {error}")
        return
    ended = await cluster.project.ended(operation.operation_id, OPERATIONS_S)
    cluster.journal.note("operation", f"start: {ended.operation_id} {ended.status}")
    if ended.status != "succeeded":
        error_text = ended.error.message if ended.error else ""
        cluster.journal.violated("healthy", f"start on a healed cluster ended {ended.status}: {error_text}")


async def runs(cluster: Cluster) -> None:
    """Wait until the instance is shown as running, without any fault."""

    async def unwell() -> list[instances.Instance]:
        shown = await cluster.instance()
        return [] if shown.status == "running" else [shown]

    for shown in await until_none(unwell, RUNNING_S):
        cluster.journal.violated("running", f"the instance is {shown.status}: {shown.status_reason}")


async def _left(cluster: Cluster) -> Operation | None:
    """Return the last change of the instance, if it failed and has changed something."""
    done = [item for item in await cluster.all_operations() if item.kind in operations.INSTANCE_KINDS]
    last = max(done, key=lambda item: item.created_at)
    is_refused = last.error is not None and last.error.failure_class == "refused"
    return last if last.status == "failed" and not is_refused else None
