"""What an app's controller does with an operation: claim it, keep the lease, report, end it. Every report is fenced."""

import datetime

import msgspec
from gpuaas_contract import errors, event_types, lifecycles, runtime
from gpuaas_contract.instances import AccessBundle, Instance, Member
from gpuaas_contract.operations import Lease, Operation, Step, Target
from gpuaas_contract.protocol import end as end_rules
from gpuaas_contract.protocol import report as report_rules
from gpuaas_contract.protocol import request as request_rules

from gpuaas_platform.allocations import service as capacity
from gpuaas_platform.call import Call
from gpuaas_platform.instances import breakers, changes, store
from gpuaas_platform.kit import clock, db
from gpuaas_platform.operations import accept as accepting
from gpuaas_platform.operations import end as ending
from gpuaas_platform.operations import observe as observing

replace = msgspec.structs.replace
_RESULT_MAX_BYTES = 262_144


async def try_claim(call: Call, body: runtime.ClaimOperation) -> runtime.Claim:
    """Look first, write only when there is something to take: waiting controllers cost no transactions."""
    call = msgspec.structs.replace(call, origin=msgspec.structs.replace(call.origin, now=call.site.clock()))
    reader, now = call.site.database.reader, clock.micros(call.now)
    project_id = call.params["project_id"]
    held = await store.held_under(reader, project_id, body.claim_id, call.caller.actor_id, now)
    if held is None and await _claimable(reader, call, body) is None:
        return runtime.Claim()
    if await call.is_gone():
        return runtime.Claim()  # a controller that died while it waited must not hold the work for a whole lease
    return await call.site.database.write(lambda tx: _claim(tx, call, body))


async def heartbeat(tx: db.Tx, call: Call, body: runtime.Heartbeat) -> Lease:
    operation = await _held(tx, call, body.epoch)
    lease = operation.lease
    if lease is None:
        raise errors.LeaseLost
    renewed = replace(lease, expires_at=_lease_end(call, body.lease_s))
    # A renewed lease is no news to watchers, so the revision stays.
    await store.OPERATIONS.save(tx, replace(operation, lease=renewed))
    await observing.seen(tx, call, operation.app_slug, lease.holder)
    return renewed


async def report_step(tx: db.Tx, call: Call, body: runtime.ReportStep) -> Operation:
    operation = await _held(tx, call, body.epoch)
    steps = list(operation.steps)
    position = next(
        (at for at, step in enumerate(steps) if (step.name, step.member_id) == (body.name, body.member_id)), None
    )
    if position is None:
        if len(steps) >= runtime.STEPS_MAX:
            raise errors.ValidationFailed(f"An operation has at most {runtime.STEPS_MAX} steps.")
        steps.append(_moved_step(None, body, call.now))
    elif steps[position].state == "succeeded":
        return operation
    else:
        steps[position] = _moved_step(steps[position], body, call.now)
    saved = await changes.save_operation(tx, replace(operation, steps=steps))
    told = event_types.OperationStep(
        operation_id=operation.operation_id,
        kind=operation.kind,
        step=body.name,
        member_id=body.member_id,
        state=body.state,
        message=observing.clipped(body.message),
    )
    await changes.tell(tx, call.origin, "apps.operation.step", operation, told)
    return saved


async def report_member(tx: db.Tx, call: Call, member_id: str, body: runtime.ReportMember) -> Member:
    operation = await _held(tx, call, body.epoch)
    member = await store.MEMBERS.get(tx, member_id)
    if member is None or member.instance_id != operation.instance_id:
        raise errors.NotFound
    observing.check_size(body.adapter_detail)
    report_rules.check_member_report(operation, member, body.status, body.evidence, call.now)
    if report_rules.meets_holds(operation, member, body.status):
        request_rules.check_holds(
            operation.kind, [member_id], await store.standing_holds(tx, member.instance_id, call.now)
        )
    if operation.kind == "replace" and (member.status, body.status) == ("removing", "provisioning"):
        operation, member = await _move_over(tx, operation, member)
    changed = replace(
        member,
        status=body.status,
        status_reason=observing.clipped(body.status_reason),
        adapter_detail=member.adapter_detail if body.adapter_detail is None else body.adapter_detail,
        observed_version=member.observed_version if body.observed_version is None else body.observed_version,
    )
    saved = await changes.save_member(tx, call.origin, operation.app_slug, member, changed)
    instance = await ending.instance_of(tx, operation)
    await _note_outcome(tx, call, operation, instance, saved, body)
    if saved.status in lifecycles.GONE_MEMBER:
        await accepting.let_go(tx, saved.instance_id, saved.project_id, [saved.allocation_id])
    if saved.status != member.status:
        await changes.settle_instance(tx, call.origin, instance, operation)
    return saved


async def publish_access(tx: db.Tx, call: Call, body: runtime.PublishAccess) -> AccessBundle:
    operation = await _held(tx, call, body.epoch)
    bundle = AccessBundle(endpoints=body.endpoints, paths=body.paths, commands=body.commands, notes=body.notes)
    await store.put_bundle(tx, operation.instance_id, bundle)
    return bundle


async def complete(tx: db.Tx, call: Call, body: runtime.CompleteOperation) -> Operation:
    operation = await operation_in(tx, call)
    if operation.status in lifecycles.ENDED_OPERATION and operation.epoch == body.epoch:
        return operation
    request_rules.check_holder(operation, body.epoch, call.caller.actor_id)
    observing.check_size(body.result, _RESULT_MAX_BYTES, "result")
    if operation.kind == "preview" and body.preview is None and operation.status != "cancelling":
        raise errors.ValidationFailed("A preview ends with what was seen.", details={"field": "preview"})
    said = replace(operation, result=body.result, preview=body.preview)
    found = end_rules.ending(said, await ending.targets_of(tx, operation), undone=body.undone)
    return await ending.end(tx, call.origin, end_rules.with_late_cancel(said, found.status), found)


async def fail(tx: db.Tx, call: Call, body: runtime.FailOperation) -> Operation:
    operation = await operation_in(tx, call)
    if operation.status == "failed" and operation.epoch == body.epoch:
        return operation
    request_rules.check_holder(operation, body.epoch, call.caller.actor_id)
    message, fix = observing.clipped(body.message), observing.clipped(body.fix)
    error = ending.failure(body.code, message, body.failure_class, fix)
    return await ending.fail(tx, call.origin, operation, error)


async def operation_in(reader: db.Reader, call: Call) -> Operation:
    operation = await store.OPERATIONS.get(reader, call.params["operation_id"])
    if operation is None or operation.project_id != call.params["project_id"]:
        raise errors.NotFound(f"There is no operation {call.params['operation_id']} in this project.")
    return operation


async def _claimable(reader: db.Reader, call: Call, body: runtime.ClaimOperation) -> Operation | None:
    project_id, now = call.params["project_id"], clock.micros(call.now)
    return await store.claimable(reader, project_id, body.app_slug, call.caller.actor_id, now)


async def _claim(tx: db.Tx, call: Call, body: runtime.ClaimOperation) -> runtime.Claim:
    project_id, now = call.params["project_id"], clock.micros(call.now)
    operation = await store.held_under(tx, project_id, body.claim_id, call.caller.actor_id, now)
    if operation is None:
        waiting = await _claimable(tx, call, body)
        if waiting is None:
            return runtime.Claim()
        operation = await _take(tx, call, waiting, body)
    return runtime.Claim(
        operation=operation,
        instance=await store.INSTANCES.get(tx, operation.instance_id),
        members=await store.live_members(tx, operation.instance_id),
        holds=await store.standing_holds(tx, operation.instance_id, call.now),
        epoch=operation.epoch,
    )


async def _take(tx: db.Tx, call: Call, waiting: Operation, body: runtime.ClaimOperation) -> Operation:
    epoch = waiting.epoch + 1
    lease = Lease(
        holder=body.holder,
        claim_id=body.claim_id,
        epoch=epoch,
        expires_at=_lease_end(call, body.lease_s),
        actor_id=call.caller.actor_id,
        cancel_requested=waiting.status == "cancelling",
    )
    taken = replace(
        waiting,
        status="running" if waiting.status == "accepted" else waiting.status,
        epoch=epoch,
        attempts=waiting.attempts + 1,
        started_at=waiting.started_at or call.now,
        lease=lease,
    )
    saved = await changes.save_operation(tx, taken)
    told = event_types.OperationClaimed(
        operation_id=saved.operation_id, kind=saved.kind, holder=body.holder, epoch=saved.epoch
    )
    await changes.tell(tx, call.origin, "apps.operation.claimed", saved, told)
    if waiting.status == "accepted" and waiting.kind == "deploy":
        await changes.settle_instance(tx, call.origin, await ending.instance_of(tx, saved), saved)
    return saved


async def _held(tx: db.Tx, call: Call, epoch: int) -> Operation:
    operation = await operation_in(tx, call)
    request_rules.check_holder(operation, epoch, call.caller.actor_id)
    return operation


async def _move_over(tx: db.Tx, operation: Operation, member: Member) -> tuple[Operation, Member]:
    """`replace`: the member keeps its identity and sits on its new machine from here on."""
    target = next(found for found in operation.targets if found.member_id == member.member_id)
    allocation = await capacity.in_project(tx, member.project_id, target.allocation_id)
    moved = replace(
        member,
        allocation_id=allocation.allocation_id,
        node_id=allocation.node_id,
        node_name=allocation.node_name,
        address=allocation.address,
        was_ready=False,
    )
    came_from = replace(target, previous_allocation_id=target.previous_allocation_id or member.allocation_id)
    return replace(operation, targets=_with_target(operation.targets, came_from)), moved


async def _note_outcome(
    tx: db.Tx, call: Call, operation: Operation, instance: Instance, member: Member, body: runtime.ReportMember
) -> None:
    target = next(found for found in operation.targets if found.member_id == member.member_id)
    outcome, error = report_rules.outcome(operation, target, member)
    seen = observing.clipped_evidence(body.evidence) if body.evidence else target.evidence
    noted = replace(target, outcome=outcome, error=error, evidence=seen)
    changed = replace(operation, targets=_with_target(operation.targets, noted))
    if outcome == "failed" and target.outcome != "failed" and operation.kind in request_rules.JOINING:
        await breakers.count_failures(tx, call.origin, operation, instance, [member])
    if outcome == "failed" and operation.stop_after_failures:
        changed = await _skip_rest(tx, call, changed)
    await changes.save_operation(tx, changed)


async def _skip_rest(tx: db.Tx, call: Call, operation: Operation) -> Operation:
    members = await ending.targets_of(tx, operation)
    why = f"{operation.stop_after_failures} members failed before its turn"
    skipped = report_rules.to_skip(operation, members)
    targets = [
        replace(target, outcome="skipped", error=why) if target.member_id in skipped else target
        for target in operation.targets
    ]
    if operation.kind == "add":
        moves = [ending.Move(members[member_id], "removed", why) for member_id in sorted(skipped)]
        await ending.move_members(tx, call.origin, operation, moves)
    return replace(operation, targets=targets)


def _with_target(targets: list[Target], changed: Target) -> list[Target]:
    return [changed if target.member_id == changed.member_id else target for target in targets]


def _moved_step(present: Step | None, body: runtime.ReportStep, now: datetime.datetime) -> Step:
    again = present is not None and present.state == "failed" and body.state == "running"
    return Step(
        name=body.name,
        member_id=body.member_id,
        state=body.state,
        message=observing.clipped(body.message),
        attempt=(present.attempt + again) if present else 1,
        started_at=present.started_at if present else now,
        ended_at=None if body.state == "running" else now,
        transcript=body.transcript,
    )


def _lease_end(call: Call, lease_s: int) -> datetime.datetime:
    return call.now + datetime.timedelta(seconds=lease_s)
