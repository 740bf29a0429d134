"""What an app's controller does with an operation: claim it, keep the lease, report, end it. Every report is fenced."""

import dataclasses
import datetime

import msgspec
from gpuaas_contract import errors, event_types, lifecycles, runtime
from gpuaas_contract.instances import AccessBundle, Member
from gpuaas_contract.operations import FailureClass, Lease, Operation, OperationError, Step

from gpuaas_platform.call import Call, Origin
from gpuaas_platform.capacity import service as capacity
from gpuaas_platform.instances import changes, rules, store
from gpuaas_platform.kit import clock, db

LEASE_MIN_S, LEASE_MAX_S = 1, 60
_DETAIL_MAX_BYTES = 16_384
_STEPS_MAX = 2_000


async def try_claim(call: Call, body: runtime.ClaimOperation) -> runtime.Claim:
    """Look first, write only when there is something to take: waiting controllers cost no transactions."""
    call = dataclasses.replace(call, origin=dataclasses.replace(call.origin, now=call.site.clock()))
    reader, now = call.site.database.reader, clock.micros(call.now)
    project_id = call.params["project_id"]
    held = await store.held_under(reader, project_id, body.claim_id, now)
    if held is None and await store.claimable(reader, project_id, body.app_slug, now) is None:
        return runtime.Claim()
    if await call.is_gone():
        return runtime.Claim()  # a controller that died while it waited must not hold the work for a whole lease
    return await call.site.database.write(lambda tx: _claim(tx, call, body))


async def heartbeat(tx: db.Tx, call: Call, body: runtime.Heartbeat) -> Lease:
    operation = await _held(tx, call, body.epoch)
    lease = operation.lease
    if lease is None:
        raise errors.LeaseLost
    renewed = msgspec.structs.replace(lease, expires_at=_lease_end(call, body.lease_s))
    # A renewed lease is no news to watchers, so the revision stays.
    await store.OPERATIONS.save(tx, msgspec.structs.replace(operation, lease=renewed))
    return renewed


async def report_step(tx: db.Tx, call: Call, body: runtime.ReportStep) -> Operation:
    operation = await _held(tx, call, body.epoch)
    steps = list(operation.steps)
    position = next(
        (at for at, step in enumerate(steps) if (step.name, step.member_id) == (body.name, body.member_id)), None
    )
    if position is None:
        if len(steps) >= _STEPS_MAX:
            raise errors.ValidationFailed(f"An operation has at most {_STEPS_MAX} steps.")
        steps.append(_moved_step(None, body, call.now))
    elif steps[position].state == "succeeded":
        return operation
    else:
        steps[position] = _moved_step(steps[position], body, call.now)
    saved = await changes.save_operation(tx, msgspec.structs.replace(operation, steps=steps))
    told = event_types.OperationStep(
        operation_id=operation.operation_id,
        kind=operation.kind,
        step=body.name,
        member_id=body.member_id,
        state=body.state,
        message=body.message,
    )
    await changes.tell(tx, call.origin, "apps.operation.step", operation, told)
    return saved


async def report_member(tx: db.Tx, call: Call, member_id: str, body: runtime.ReportMember) -> Member:
    operation = await _held(tx, call, body.epoch)
    member = await store.MEMBERS.get(tx, member_id)
    if member is None or member.instance_id != operation.instance_id:
        raise errors.NotFound
    _check_size(body)
    rules.check_member_report(operation, member, body.status, body.evidence, call.now)
    changed = msgspec.structs.replace(
        member,
        status=body.status,
        status_reason=body.status_reason,
        adapter_detail=member.adapter_detail if body.adapter_detail is None else body.adapter_detail,
        observed_version=member.observed_version if body.observed_version is None else body.observed_version,
        was_ready=member.was_ready or body.status == "ready",
    )
    saved = await changes.save_member(tx, call.origin, member, changed)
    await _note_outcome(tx, operation, saved, body)
    if saved.status in lifecycles.GONE_MEMBER:
        await _let_go(tx, saved)
    return saved


async def publish_access(tx: db.Tx, call: Call, body: runtime.PublishAccess) -> AccessBundle:
    operation = await _held(tx, call, body.epoch)
    bundle = AccessBundle(endpoints=body.endpoints, paths=body.paths, commands=body.commands, notes=body.notes)
    await store.put_bundle(tx, operation.instance_id, bundle)
    return bundle


async def complete(tx: db.Tx, call: Call, body: runtime.CompleteOperation) -> Operation:
    operation = await _operation(tx, call)
    if operation.status == "succeeded" and operation.epoch == body.epoch:
        return operation
    rules.check_holder(operation, body.epoch)
    target_ids = {target.member_id for target in operation.targets}
    members = await store.members_of(tx, operation.instance_id)
    rules.check_complete(operation, [member for member in members if member.member_id in target_ids])
    return await _end(tx, call.origin, operation, None)


async def fail(tx: db.Tx, call: Call, body: runtime.FailOperation) -> Operation:
    operation = await _operation(tx, call)
    if operation.status == "failed" and operation.epoch == body.epoch:
        return operation
    rules.check_holder(operation, body.epoch)
    return await _end(tx, call.origin, operation, _error(body.code, body.message, body.failure_class, body.fix))


async def expire(tx: db.Tx, origin: Origin, operation: Operation) -> None:
    """Past its deadline an operation fails, whoever holds it; the epoch grows, so the holder's reports are refused."""
    fenced = msgspec.structs.replace(operation, epoch=operation.epoch + 1)
    message = f"{operation.kind} was not done by its deadline, {operation.deadline_at:%Y-%m-%d %H:%M:%S} UTC."
    await _end(tx, origin, fenced, _error("deadline_passed", message, "expired", "Ask for it again, or decommission."))


async def _claim(tx: db.Tx, call: Call, body: runtime.ClaimOperation) -> runtime.Claim:
    project_id = call.params["project_id"]
    operation = await store.held_under(tx, project_id, body.claim_id, clock.micros(call.now))
    if operation is None:
        waiting = await store.claimable(tx, project_id, body.app_slug, clock.micros(call.now))
        if waiting is None:
            return runtime.Claim()
        operation = await _take(tx, call, waiting, body)
    instance = await store.INSTANCES.get(tx, operation.instance_id)
    members = rules.live_members(await store.members_of(tx, operation.instance_id))
    return runtime.Claim(operation=operation, instance=instance, members=members, epoch=operation.epoch)


async def _take(tx: db.Tx, call: Call, waiting: Operation, body: runtime.ClaimOperation) -> Operation:
    epoch = waiting.epoch + 1
    taken = msgspec.structs.replace(
        waiting,
        status="running",
        epoch=epoch,
        attempts=waiting.attempts + 1,
        started_at=waiting.started_at or call.now,
        lease=Lease(holder=body.holder, claim_id=body.claim_id, epoch=epoch, expires_at=_lease_end(call, body.lease_s)),
    )
    saved = await changes.save_operation(tx, taken)
    told = event_types.OperationClaimed(
        operation_id=saved.operation_id, kind=saved.kind, holder=body.holder, epoch=saved.epoch
    )
    await changes.tell(tx, call.origin, "apps.operation.claimed", saved, told)
    instance = await store.INSTANCES.get(tx, waiting.instance_id)
    if waiting.kind == "deploy" and instance is not None and instance.status == "requested":
        await changes.set_instance_status(tx, call.origin, instance, "deploying", "", saved)
    return saved


async def _operation(tx: db.Tx, call: Call) -> Operation:
    operation = await store.OPERATIONS.get(tx, call.params["operation_id"])
    if operation is None or operation.project_id != call.params["project_id"]:
        raise errors.NotFound
    return operation


async def _held(tx: db.Tx, call: Call, epoch: int) -> Operation:
    operation = await _operation(tx, call)
    rules.check_holder(operation, epoch)
    return operation


async def _note_outcome(tx: db.Tx, operation: Operation, member: Member, body: runtime.ReportMember) -> None:
    targets = []
    for target in operation.targets:
        if target.member_id == member.member_id:
            outcome, error = rules.outcome(operation, member.status, member.status_reason, target)
            evidence = body.evidence or target.evidence
            target = msgspec.structs.replace(target, outcome=outcome, error=error, evidence=evidence)
        targets.append(target)
    await changes.save_operation(tx, msgspec.structs.replace(operation, targets=targets))


async def _let_go(tx: db.Tx, gone: Member) -> None:
    """An allocation stays bound to the instance while any other live member sits on it."""
    members = rules.live_members(await store.members_of(tx, gone.instance_id))
    if not any(member.allocation_id == gone.allocation_id for member in members):
        allocation = await capacity.in_project(tx, gone.project_id, gone.allocation_id)
        await capacity.set_used(tx, allocation, gone.instance_id, False)


async def _end(tx: db.Tx, origin: Origin, operation: Operation, error: OperationError | None) -> Operation:
    ended = await changes.save_operation(
        tx,
        msgspec.structs.replace(
            operation,
            status="failed" if error else "succeeded",
            error=error,
            lease=None,
            ended_at=origin.now,
            targets=[
                msgspec.structs.replace(target, outcome="failed", error=error.message)
                if error and target.outcome == "pending"
                else target
                for target in operation.targets
            ],
        ),
    )
    instance = await store.INSTANCES.get(tx, operation.instance_id)
    if instance is None:
        raise LookupError(operation.instance_id)
    members = await store.members_of(tx, operation.instance_id)
    status = rules.instance_status(instance.status, operation, error is None, members)
    await changes.set_instance_status(tx, origin, instance, status, error.message if error else "", ended)
    told = event_types.OperationEnded(
        operation_id=ended.operation_id,
        kind=ended.kind,
        status=ended.status,
        error=error.message if error else "",
    )
    await changes.tell(tx, origin, "apps.operation.ended", ended, told)
    return ended


def _moved_step(present: Step | None, body: runtime.ReportStep, now: datetime.datetime) -> Step:
    again = present is not None and present.state == "failed" and body.state == "running"
    return Step(
        name=body.name,
        member_id=body.member_id,
        state=body.state,
        message=body.message[:2_000],
        attempt=(present.attempt + again) if present else 1,
        started_at=present.started_at if present else now,
        ended_at=None if body.state == "running" else now,
    )


def _error(code: str, message: str, failure_class: FailureClass, fix: str) -> OperationError:
    return OperationError(
        code=code,
        message=message[:4_000],
        failure_class=failure_class,
        retryable=failure_class in ("retryable", "expired"),
        fix=fix,
    )


def _check_size(body: runtime.ReportMember) -> None:
    if body.adapter_detail is not None and len(msgspec.json.encode(body.adapter_detail)) > _DETAIL_MAX_BYTES:
        raise errors.ValidationFailed(f"adapter_detail holds at most {_DETAIL_MAX_BYTES} bytes of JSON.")


def _lease_end(call: Call, lease_s: int) -> datetime.datetime:
    return call.now + datetime.timedelta(seconds=max(LEASE_MIN_S, min(lease_s, LEASE_MAX_S)))
