"""How an operation ends, whoever ends it: its controller, a person through an exit, or the watchdog."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from gpuaas_contract import event_types, lifecycles
from gpuaas_contract.instances import Instance, Member
from gpuaas_contract.lifecycles import MemberStatus
from gpuaas_contract.operations import ASKING_KINDS, INSTANCE_KINDS, FailureClass, Operation, OperationError, Target
from gpuaas_contract.protocol import request as request_rules
from gpuaas_contract.protocol import status as status_rules
from gpuaas_contract.protocol.end import Ending

from gpuaas_platform.access.secrets import service as secrets
from gpuaas_platform.call import Origin
from gpuaas_platform.catalog import service as catalog
from gpuaas_platform.instances import breakers, changes, store
from gpuaas_platform.kit import db
from gpuaas_platform.operations import accept as accepting

replace = msgspec.structs.replace
_UNFINISHED = frozenset({"requested", "provisioning", "joining", "removing"})
"""Nobody goes on with a member in these states once its operation has ended."""
_JOINING = frozenset({"provisioning", "joining"})
"""Somebody had begun to bring it in: that it came to nothing counts for the role's breaker."""


async def end(tx: db.Tx, origin: Origin, operation: Operation, found: Ending) -> Operation:
    left_over = "cancelled" if found.status == "cancelled" else "failed"
    why = found.error.message if found.error else ""
    targets = [
        replace(target, outcome=left_over, error=target.error or why) if target.outcome == "pending" else target
        for target in found.targets
    ]
    ended = await changes.save_operation(
        tx,
        replace(
            operation,
            status=found.status,
            targets=targets,
            error=found.error,
            lease=None,
            ended_at=origin.now,
        ),
    )
    if ended.kind not in ASKING_KINDS:
        await _leave_members(tx, origin, ended)
        await _leave_instance(tx, origin, ended)
    told = event_types.OperationEnded(operation_id=ended.operation_id, kind=ended.kind, status=ended.status, error=why)
    await changes.tell(tx, origin, "apps.operation.ended", ended, told)
    return ended


async def fail(tx: db.Tx, origin: Origin, operation: Operation, error: OperationError) -> Operation:
    return await end(tx, origin, operation, Ending("failed", operation.targets, error))


async def expire(tx: db.Tx, origin: Origin, operation: Operation) -> None:
    """Past its deadline an operation fails, whoever holds it; the epoch grows, so the holder's reports are refused."""
    code, why = "deadline_passed", f"it was not done by {operation.deadline_at:%Y-%m-%d %H:%M:%S} UTC"
    if operation.status == "accepted":
        code, why = "never_claimed", "no app controller took it up before its deadline"
    elif operation.lease is None or operation.lease.expires_at < origin.now:
        code, why = "controller_lost", "its app controller fell silent, and none took it over before its deadline"
    fix = "See that the app's controller runs, then retry; the operation's exits say what else may be done."
    await fail(tx, origin, fenced(operation), failure(code, f"{operation.kind}: {why}.", "expired", fix))


def fenced(operation: Operation) -> Operation:
    """Whoever holds it now is refused from here on."""
    return replace(operation, epoch=operation.epoch + 1)


def failure(code: str, message: str, failure_class: FailureClass, fix: str) -> OperationError:
    return OperationError(
        code=code,
        message=message,
        failure_class=failure_class,
        retryable=failure_class in ("retryable", "drift", "expired"),
        fix=fix,
    )


class Move(NamedTuple):
    member: Member
    status: MemberStatus
    reason: str


async def move_members(tx: db.Tx, origin: Origin, operation: Operation, moves: Sequence[Move]) -> list[Member]:
    """Move members without their controller, and give the machines back that carry none of them any more.

    All at once: what is still in use is looked up once, however many there are."""
    moved = [
        await changes.save_member(
            tx, origin, operation.app_slug, member, replace(member, status=status, status_reason=reason)
        )
        for member, status, reason in moves
    ]
    left = [member.allocation_id for member in moved if member.status in lifecycles.GONE_MEMBER]
    await accepting.let_go(tx, operation.instance_id, operation.project_id, left)
    return moved


async def targets_of(reader: db.Reader, operation: Operation) -> dict[str, Member]:
    """Read by name: what the instance has had before is of no concern, and there may be much of it."""
    members = await store.members_named(reader, [target.member_id for target in operation.targets])
    return {member.member_id: member for member in members}


async def concerned(reader: db.Reader, operation: Operation) -> dict[str, Member]:
    """Its targets; of an operation on the whole instance also those who came later, whom it has not reached."""
    found = await targets_of(reader, operation)
    if operation.kind in INSTANCE_KINDS:
        found |= {member.member_id: member for member in await store.live_members(reader, operation.instance_id)}
    return found


async def instance_of(reader: db.Reader, operation: Operation) -> Instance:
    instance = await store.INSTANCES.get(reader, operation.instance_id)
    if instance is None:
        raise LookupError(operation.instance_id)
    return instance


async def _leave_members(tx: db.Tx, origin: Origin, ended: Operation) -> None:
    members = await targets_of(tx, ended)
    moves = [move for target in ended.targets if (move := _left_behind(ended, target, members[target.member_id]))]
    moved = await move_members(tx, origin, ended, moves)
    if ended.kind in request_rules.JOINING:
        failed = [member for member in moved if member.status == "failed"]
        begun = [member for member in failed if members[member.member_id].status in _JOINING]
        await breakers.count_failures(tx, origin, ended, await instance_of(tx, ended), begun)
    await accepting.let_go(tx, ended.instance_id, ended.project_id, _spare_allocations(ended.targets))


def _left_behind(ended: Operation, target: Target, member: Member) -> Move | None:
    """Where a member is left whom nobody goes on with; None: where it is."""
    if target.outcome == "failed" and member.status in _UNFINISHED:
        return Move(member, "failed", target.error)
    if target.outcome == "cancelled" and member.status == "requested":
        return Move(member, "removed", f"the {ended.kind} was cancelled")
    return None


def _spare_allocations(targets: Sequence[Target]) -> list[str]:
    """`replace` holds two machines per member; whichever the member does not sit on is given back."""
    return [found for target in targets for found in (target.allocation_id, target.previous_allocation_id) if found]


async def _leave_instance(tx: db.Tx, origin: Origin, ended: Operation) -> None:
    instance = await instance_of(tx, ended)
    if ended.kind not in INSTANCE_KINDS:
        await changes.settle_instance(tx, origin, instance, ended)
        return
    left = replace(instance, baseline=status_rules.baseline_after(instance.baseline, ended.kind, ended.status))
    if ended.status == "succeeded" and ended.to_version:
        manifest = await catalog.manifest_of(tx, instance.app_slug, ended.to_version)
        left = status_rules.moved_to(left, ended, manifest)
    condition = status_rules.last_operation(ended, instance.revision, origin.now)
    settled = await changes.settle_instance(tx, origin, instance, ended, [condition], left=left)
    if settled.status == "deleted":
        await secrets.end_all(tx, origin, instance.instance_id, "the instance was decommissioned")
