"""Members as an operation sees them: those it works on, moves without a controller, machines that become free."""

from collections.abc import Sequence
from typing import NamedTuple

from gpuaas_contract import lifecycles
from gpuaas_contract.instances import Member
from gpuaas_contract.lifecycles import MemberStatus
from gpuaas_contract.operations import INSTANCE_KINDS, Operation, OperationHead
from gpuaas_contract.runtime import ObservedMember, ReportMember
from msgspec.structs import replace

from gpuaas_platform.call import Origin
from gpuaas_platform.instances import members as instance_members
from gpuaas_platform.instances import service as instances
from gpuaas_platform.kit import db
from gpuaas_platform.operations import limits, store


class Move(NamedTuple):
    member: Member
    status: MemberStatus
    reason: str


async def move(tx: db.Tx, origin: Origin, operation: OperationHead, moves: Sequence[Move]) -> list[Member]:
    """Move members without their controller, and release the machines that carry none of them any more.

    All at once: which machines are still in use is read once, however many members move."""
    moved = [
        await instance_members.save(
            tx, origin, operation.app_slug, member, replace(member, status=status, status_reason=reason)
        )
        for member, status, reason in moves
    ]
    left = [member.allocation_id for member in moved if member.status in lifecycles.GONE_MEMBER]
    await release(tx, operation, left)
    return moved


async def release(tx: db.Tx, operation: OperationHead, allocation_ids: Sequence[str]) -> None:
    """Release allocations of the operation's instance. One stays bound while a live member sits on it or will move to
    it."""
    kept = await store.moved_to(tx, operation.instance_id, allocation_ids)
    await instance_members.release(tx, operation.instance_id, operation.project_id, allocation_ids, kept=kept)


def reported(member: Member, report: ReportMember | ObservedMember) -> Member:
    """Return the member as its controller reports it; what the report leaves out stays."""
    return replace(
        member,
        status=report.status,
        status_reason=limits.clipped(report.status_reason),
        adapter_detail=member.adapter_detail if report.adapter_detail is None else report.adapter_detail,
        observed_version=member.observed_version if report.observed_version is None else report.observed_version,
    )


async def of_targets(reader: db.Reader, operation: Operation) -> dict[str, Member]:
    """Return the operation's targets by id. Its cost does not grow with the members that the instance had before."""
    members = await instances.members_named(reader, [target.member_id for target in operation.targets])
    return {member.member_id: member for member in members}


async def concerned(reader: db.Reader, operation: Operation) -> dict[str, Member]:
    """Return its targets; for an operation on the whole instance also the live members that came later."""
    members = await of_targets(reader, operation)
    if operation.kind in INSTANCE_KINDS:
        live = await instances.live_members(reader, operation.instance_id)
        members |= {member.member_id: member for member in live}
    return members
