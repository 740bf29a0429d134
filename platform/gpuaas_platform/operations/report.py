"""Reports of a controller on an operation that it has claimed: steps, members, and the access bundle.

A report writes only its own rows, so its cost does not depend on the number of members or steps."""

from gpuaas_contract import errors, event_types, lifecycles, runtime
from gpuaas_contract.instances import AccessBundle, Member
from gpuaas_contract.operations import OperationHead, Receipt, Target
from gpuaas_contract.paths import OperationMemberPath, OperationPath
from gpuaas_contract.protocol import report as report_rules
from gpuaas_contract.protocol import request as request_rules
from gpuaas_contract.protocol import steps as step_rules
from msgspec.structs import replace

from gpuaas_platform.call import Call
from gpuaas_platform.instances import breakers, events, holds
from gpuaas_platform.instances import members as instance_members
from gpuaas_platform.instances import service as instances
from gpuaas_platform.kit import db, structs
from gpuaas_platform.operations import claim, fence, limits, members, read, state, store


async def report_step(tx: db.Tx, call: Call[OperationPath], body: runtime.ReportStep) -> Receipt:
    """Record a step, identified by its name and member. A step that counts as done does not change any more."""
    operation = await fence.check(tx, call, call.path.operation_id, body.epoch)
    present = await store.step(tx, operation.operation_id, body.name, body.member_id)
    if not step_rules.changes(present, body, operation.exits_taken):
        return claim.receipt(operation)
    step = step_rules.reported(present, replace(body, message=limits.clipped(body.message)), call.now)
    total = operation.steps_total + (present is None)
    if total > runtime.STEPS_MAX:
        raise errors.ValidationFailed(f"An operation has at most {runtime.STEPS_MAX} steps.")
    operation = await state.advance(tx, replace(operation, steps_total=total))
    write = store.add_step if present is None else store.save_step
    await write(tx, operation, step)
    payload = structs.pick(
        event_types.OperationStep, step, operation_id=operation.operation_id, kind=operation.kind, step=step.name
    )
    await events.emit(tx, call.origin, "apps.operation.step", operation, payload)
    return claim.receipt(operation)


async def report_member(tx: db.Tx, call: Call[OperationMemberPath], body: runtime.ReportMember) -> Receipt:
    """Record a member's status, and update the outcome of the operation's target."""
    operation = await fence.check(tx, call, call.path.operation_id, body.epoch)
    member, target = await _reported(tx, call, operation, body)
    refusal = limits.clipped(body.status_reason) if body.refused else None
    if refusal is not None:
        restored = report_rules.status_after_refusal(target, member)
        body = replace(body, status=restored, status_reason="")
    if operation.kind == "replace" and (member.status, body.status) == ("removing", "provisioning"):
        target = replace(target, previous_allocation_id=target.previous_allocation_id or member.allocation_id)
        member = await instance_members.moved(tx, member, target.allocation_id)
    saved = await instance_members.save(tx, call.origin, operation.app_slug, member, members.reported(member, body))
    instance = await instances.get(tx, operation.instance_id)
    outcome, error = report_rules.outcome(operation, target, saved, refusal)
    evidence = limits.clipped_evidence(body.evidence) if body.evidence else target.evidence
    changed = report_rules.with_lines(replace(target, outcome=outcome, error=error, evidence=evidence), body)
    await store.save_target(tx, operation.operation_id, changed)
    if target.outcome != "failed" and report_rules.counts_as_failed_join(operation, saved.status):
        await breakers.count_failures(tx, call.origin, operation, instance, [saved])
    if outcome == "failed" and operation.stop_after_failures:
        await _skip_rest(tx, call, operation)
    operation = await state.advance(tx, operation)
    if saved.status in lifecycles.GONE_MEMBER:
        await members.release(tx, operation, [saved.allocation_id])
    if saved.status != member.status:
        await members.note_missing(tx, operation, saved)
        await state.derive_instance(tx, call.origin, instance, operation)
    return claim.receipt(operation)


async def publish_access(tx: db.Tx, call: Call[OperationPath], body: runtime.PublishAccess) -> AccessBundle:
    operation = await fence.check(tx, call, call.path.operation_id, body.epoch)
    bundle = structs.pick(AccessBundle, body)
    await instances.put_access_bundle(tx, operation.instance_id, bundle)
    return bundle


async def _reported(
    tx: db.Tx, call: Call[OperationMemberPath], operation: OperationHead, body: runtime.ReportMember
) -> tuple[Member, Target]:
    """Check the report; return the stored member and its target."""
    member = await instances.find_member(tx, operation.instance_id, call.path.member_id)
    if member is None:
        raise errors.NotFound
    target = await store.target(tx, operation.operation_id, member.member_id)
    about_member = store.whole(operation, [target] if target else [], ())
    status = member.status if body.refused else body.status
    report_rules.check_member_report(about_member, member, status, body.evidence, call.now)
    if report_rules.meets_holds(operation, member, status):
        standing = await holds.standing(tx, member.instance_id, call.now)
        request_rules.check_holds(report_rules.hold_kind(operation), [member.member_id], standing)
    return member, about_member.targets[0]


async def _skip_rest(tx: db.Tx, call: Call, head: OperationHead) -> None:
    """If the operation's stop rule applies, skip the targets on which no work has started."""
    if await store.failed_targets(tx, head.operation_id) < head.stop_after_failures:
        return
    operation = await read.whole(tx, head)
    present = await members.of_targets(tx, operation)
    why = f"{operation.stop_after_failures} members failed before its turn"
    skipped = report_rules.to_skip(operation, present)
    targets = [
        replace(target, outcome="skipped", error=why) if target.member_id in skipped else target
        for target in operation.targets
    ]
    if operation.kind == "add":
        moves = [members.Move(present[member_id], "removed", why) for member_id in sorted(skipped)]
        await members.move(tx, call.origin, operation, moves)
    await state.save_targets(tx, operation, targets)
