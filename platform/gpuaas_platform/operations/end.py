"""End an operation: on its controller's request, through an exit, or because its deadline passed."""

from gpuaas_contract import errors, event_types, lifecycles, runtime
from gpuaas_contract.operations import ASKING_KINDS, INSTANCE_KINDS, Operation
from gpuaas_contract.paths import OperationPath
from gpuaas_contract.protocol import end as end_rules
from gpuaas_contract.protocol import report as report_rules
from gpuaas_contract.protocol import request as request_rules
from gpuaas_contract.protocol import result as result_rules
from gpuaas_contract.protocol import status as status_rules
from msgspec.structs import replace

from gpuaas_platform.call import Call, Origin
from gpuaas_platform.catalog import service as catalog
from gpuaas_platform.instances import breakers, events
from gpuaas_platform.instances import service as instances
from gpuaas_platform.kit import db, structs
from gpuaas_platform.operations import limits, log, members, read, state

_JOINING = frozenset({"provisioning", "joining"})
"""Statuses in which the controller had started to add the member, so its failure counts for the role's breaker."""


async def complete(tx: db.Tx, call: Call[OperationPath], body: runtime.CompleteOperation) -> Operation:
    operation = await read.named(tx, call)
    request_rules.check_operator(operation, call.caller)
    if operation.status in lifecycles.ENDED_OPERATION and operation.epoch == body.epoch:
        return operation
    request_rules.check_holder(operation, body.epoch, call.caller)
    if operation.kind == "preview" and body.preview is None and operation.status != "cancelling":
        raise errors.ValidationFailed(
            "A preview must be completed with `preview`: the work that was observed.", details={"field": "preview"}
        )
    if operation.kind == "action" and body.result is not None:
        instance = await instances.get(tx, operation.instance_id)
        manifest = await catalog.manifest_of(tx, instance.app_slug, instance.app_version)
        result_rules.check(manifest, operation.action, body.result)
    await log.add(tx, call, operation, body.log)
    answered = replace(operation, result=body.result, preview=body.preview)
    ending = end_rules.ending(answered, await members.of_targets(tx, operation), undone=body.undone)
    return await end(tx, call.origin, operation, end_rules.with_late_cancel(answered, ending.status), ending)


async def fail(tx: db.Tx, call: Call[OperationPath], body: runtime.FailOperation) -> Operation:
    operation = await read.named(tx, call)
    request_rules.check_operator(operation, call.caller)
    if operation.status == "failed" and operation.epoch == body.epoch:
        return operation
    request_rules.check_holder(operation, body.epoch, call.caller)
    await log.add(tx, call, operation, body.log)
    message, fix = limits.clipped(body.message), limits.clipped(body.fix)
    failure_class = end_rules.failure_class_of(operation, body.failure_class)
    error = end_rules.failure(body.code, message, failure_class, fix)
    return await end(tx, call.origin, operation, operation, end_rules.Ending("failed", operation.targets, error))


async def expire(tx: db.Tx, origin: Origin, operation: Operation) -> None:
    """Fail an operation past its deadline. Raise the epoch, so that later reports of its controller are refused."""
    code, why = "deadline_passed", f"it was not done by {operation.deadline_at:%Y-%m-%d %H:%M:%S} UTC"
    if operation.status == "accepted":
        code, why = "never_claimed", "no app controller took it up before its deadline"
    elif operation.lease is None or operation.lease.expires_at < origin.now:
        code, why = "controller_lost", "its app controller fell silent, and none took it over before its deadline"
    fix = "See that the app's controller runs, then retry; the operation's exits say what else may be done."
    error = end_rules.failure(code, f"{operation.kind}: {why}.", "expired", fix)
    await end(tx, origin, operation, fenced(operation), end_rules.Ending("failed", operation.targets, error))


def fenced(operation: Operation) -> Operation:
    """Return the operation with the next epoch, so that reports under the current lease are refused."""
    return replace(operation, epoch=operation.epoch + 1)


async def end(tx: db.Tx, origin: Origin, present: Operation, changed: Operation, ending: end_rules.Ending) -> Operation:
    """Save the end of an operation and the resulting status of its members and its instance.

    `present` is the operation as it is stored, `changed` is the same operation with the caller's changes."""
    closed = replace(changed, status=ending.status, error=ending.error, lease=None, ended_at=origin.now)
    saved = await state.save(tx, present, closed)
    ended = await state.save_targets(tx, replace(saved, targets=present.targets), end_rules.closed_targets(ending))
    if ended.kind not in ASKING_KINDS:
        await _leave_members(tx, origin, ended)
        await _leave_instance(tx, origin, ended)
    why = ending.error.message if ending.error else ""
    payload = structs.pick(event_types.OperationEnded, ended, error=why)
    await events.emit(tx, origin, "apps.operation.ended", ended, payload)
    return ended


async def _leave_members(tx: db.Tx, origin: Origin, ended: Operation) -> None:
    present = await members.of_targets(tx, ended)
    left = {
        target.member_id: end_rules.left_behind(ended, target, present[target.member_id]) for target in ended.targets
    }
    moves = [members.Move(present[member_id], *move) for member_id, move in left.items() if move]
    moved = await members.move(tx, origin, ended, moves)
    failed = [member for member in moved if report_rules.counts_as_failed_join(ended, member.status)]
    begun = [member for member in failed if present[member.member_id].status in _JOINING]
    instance = await instances.get(tx, ended.instance_id)
    await breakers.count_failures(tx, origin, ended, instance, begun)
    # `replace` binds two machines per member; release the one on which the member does not run.
    machines = [(target.allocation_id, target.previous_allocation_id) for target in ended.targets]
    await members.release(tx, ended, [allocation_id for pair in machines for allocation_id in pair if allocation_id])


async def _leave_instance(tx: db.Tx, origin: Origin, ended: Operation) -> None:
    instance = await instances.get(tx, ended.instance_id)
    if ended.kind not in INSTANCE_KINDS:
        await state.derive_instance(tx, origin, instance, ended)
        return
    refused = end_rules.is_refusal(ended.error)
    baseline = status_rules.baseline_after(instance.baseline, ended.kind, ended.status, refused=refused)
    left = replace(instance, baseline=baseline)
    if ended.status == "succeeded" and ended.to_version:
        manifest = await catalog.manifest_of(tx, instance.app_slug, ended.to_version)
        left = status_rules.moved_to(left, ended, manifest)
    if ended.status == "succeeded" and ended.kind == "reconfigure":
        left = status_rules.reconfigured(left, ended)
    if left.baseline == "deleted":
        await instances.forget_missing(tx, instance.instance_id)
    conditions = status_rules.conditions_after(ended, instance.revision, origin.now)
    await state.derive_instance(tx, origin, instance, ended, conditions, changed=left)
