"""The placement of an artifact on a machine, for a controller that holds an operation there.

The node fetches the content with its own token (`content`), as long as the placement is queued for it, so its task
carries no secret.
"""

import datetime

from gpuaas_contract import errors
from gpuaas_contract.artifacts import Artifact
from gpuaas_contract.capacity import Allocation
from gpuaas_contract.event_types import ArtifactPlacementChanged
from gpuaas_contract.node import FETCH_TASK, TaskError, TaskResult
from gpuaas_contract.paths import PlacementPath, ProjectArtifactPath
from gpuaas_contract.placements import ArtifactPlacement, PlaceArtifact, PlacementQuery
from gpuaas_contract.wire import NoBody

from gpuaas_platform.access.machines import rules as machine_rules
from gpuaas_platform.access.machines import service as grants
from gpuaas_platform.access.placements import rules, store
from gpuaas_platform.allocations import service as allocations
from gpuaas_platform.allocations.facts import ReleaseStarted
from gpuaas_platform.artifacts import service as artifacts
from gpuaas_platform.call import Call, Origin
from gpuaas_platform.kit import db, ids, retention, structs
from gpuaas_platform.kit.reactions import Reactions
from gpuaas_platform.nodes.facts import TaskEnded
from gpuaas_platform.nodes.tasks import service as tasks
from gpuaas_platform.record import service as record

reactions = Reactions()
RETAINED = retention.expired("access.placements", "artifact_placements", "placement_id", lambda _: 86_400)


async def place(tx: db.Tx, call: Call[ProjectArtifactPath], body: PlaceArtifact) -> ArtifactPlacement:
    """The conditions are those of a delivery for the artifact, and those of a machine grant for the caller."""
    project, artifact = call.in_project(), await artifacts.visible(tx, call)
    allocation = await allocations.in_project(tx, project.project_id, body.allocation_id)
    await grants.check_hold(tx, call, allocation, body.operation_id, body.epoch)
    machine_rules.check_open(allocation)
    await artifacts.check_deliverable(tx, project, artifact)
    placement = await _begin(tx, call, artifact, allocation, body)
    await _queue(tx, call, placement, allocation.username_on_node)
    return placement


async def wait_for(call: Call[PlacementPath, PlacementQuery], _: NoBody) -> ArtifactPlacement:
    """Return the placement that the path names as soon as it has ended or the time is up."""
    path = call.path

    async def look() -> ArtifactPlacement:
        placement = await store.PLACEMENTS.get(call.site.database.reader, path.placement_id)
        if placement is None or (placement.project_id, placement.artifact_id) != (path.project_id, path.artifact_id):
            raise errors.NotFound
        return placement

    topic, wait_s = _topic(path.placement_id), call.query.wait_s
    return await call.site.hub.poll(topic, wait_s, look, lambda placement: placement.state != "queued")


async def record_result(tx: db.Tx, origin: Origin, placement_id: str, result: TaskResult) -> None:
    """Record the result, once: a placement that has ended already stays as it is. Content that was revoked during the
    transfer does not count as placed; the release of the machine removes it."""
    placement = await store.PLACEMENTS.get(tx, placement_id)
    if placement is None or placement.state != "queued":
        return
    outcome = rules.with_result(placement, result, origin.now)
    try:
        if outcome.state == "placed":
            await deliverable(tx, placement)
    except errors.ApiError as refusal:
        outcome = rules.failed(placement, TaskError(code=refusal.code, message=refusal.message), origin.now)
    await _save(tx, origin, outcome)


@reactions.to(TaskEnded, FETCH_TASK)
async def fetch_ended(tx: db.Tx, ended: TaskEnded) -> None:
    await record_result(tx, ended.origin, ended.subject_id, ended.result)


@reactions.to(ReleaseStarted)
async def release_started(tx: db.Tx, started: ReleaseStarted) -> None:
    """End queued placements and withdraw their tasks: a fetch must not run after the machine was cleaned."""
    allocation, origin = started.allocation, started.origin
    error = TaskError(code="allocation_released", message="The machine is being released.")
    for placement in await store.queued(tx, allocation.allocation_id):
        await _save(tx, origin, rules.failed(placement, error, origin.now))
        await tasks.withdraw(tx, allocation.node_id, placement.placement_id)


async def deliverable(reader: db.Reader, placement: ArtifactPlacement) -> Artifact:
    artifact = await artifacts.still_deliverable(reader, placement.project_id, placement.artifact_id)
    if artifact is None:
        raise errors.NotFound("The artifact or its project no longer exists.")
    return artifact


async def _begin(
    tx: db.Tx, call: Call, artifact: Artifact, allocation: Allocation, body: PlaceArtifact
) -> ArtifactPlacement:
    fetch_s_max = rules.fetch_s_max(artifact.size_bytes, call.site.settings.task_ttl_s)
    placement = ArtifactPlacement(
        placement_id=ids.new("plc"),
        org_id=allocation.org_id,
        project_id=allocation.project_id,
        artifact_id=artifact.artifact_id,
        name=artifact.name,
        digest=artifact.digest,
        size_bytes=artifact.size_bytes,
        mode=body.mode,
        allocation_id=allocation.allocation_id,
        node_id=allocation.node_id,
        node_name=allocation.node_name,
        operation_id=body.operation_id,
        actor_id=call.caller.actor_id,
        state="queued",
        correlation_id=call.origin.correlation_id,
        created_at=call.now,
        expires_at=call.now + datetime.timedelta(seconds=fetch_s_max),
    )
    await store.PLACEMENTS.insert(tx, placement)
    call.details.update(digest=placement.digest, node_id=placement.node_id, operation_id=placement.operation_id)
    await _announce(tx, call.origin, placement)
    return placement


async def _queue(tx: db.Tx, call: Call, placement: ArtifactPlacement, user: str) -> None:
    params = {
        "placement_id": placement.placement_id,
        "allocation_id": placement.allocation_id,
        "user": user,
        "digest": placement.digest,
        "size_bytes": placement.size_bytes,
        "mode": placement.mode,
    }
    ttl_s = int((placement.expires_at - call.now).total_seconds())
    about = (placement.node_id, FETCH_TASK, placement.placement_id)
    await tasks.queue(tx, call.site, call.origin, *about, params, ttl_s=ttl_s)


async def _save(tx: db.Tx, origin: Origin, placement: ArtifactPlacement) -> None:
    await store.PLACEMENTS.save(tx, placement)
    await _announce(tx, origin, placement)
    tx.wake(_topic(placement.placement_id))


async def _announce(tx: db.Tx, origin: Origin, placement: ArtifactPlacement) -> None:
    code, cause = placement.error.code if placement.error else "", placement.correlation_id
    payload = structs.pick(ArtifactPlacementChanged, placement, code=code)
    await record.emit(tx, origin, "artifacts.placement.changed", payload, placement, correlation_id=cause)


def _topic(placement_id: str) -> str:
    """The topic that is woken when the placement has ended."""
    return f"placement:{placement_id}"
