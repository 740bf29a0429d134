"""The members of an operation: read them, change their status without a controller, release their machines."""

from collections.abc import Sequence
from typing import NamedTuple

from gpuaas_contract import lifecycles
from gpuaas_contract.instances import Member
from gpuaas_contract.lifecycles import MemberStatus
from gpuaas_contract.operations import INSTANCE_KINDS, Operation, OperationHead
from gpuaas_contract.protocol import status as status_rules
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
    """Change the status of members without their controller, and release the machines on which no member is left.

    All members in one call, because the machines that are still in use are then read only once."""
    moved = [
        await instance_members.save(
            tx, origin, operation.app_slug, member, replace(member, status=status, status_reason=reason)
        )
        for member, status, reason in moves
    ]
    for member in moved:
        await note_missing(tx, operation, member)
    left = [member.allocation_id for member in moved if member.status in lifecycles.GONE_MEMBER]
    await release(tx, operation, left)
    return moved


async def note_missing(tx: db.Tx, operation: OperationHead, member: Member) -> None:
    """Count a member that was given up as missing in its role: it is still wanted."""
    if status_rules.leaves_gap(operation, member.status):
        await instances.add_missing(tx, member.instance_id, member.component_key)


async def release(tx: db.Tx, operation: OperationHead, allocation_ids: Sequence[str]) -> None:
    """Release allocations of the operation's instance, except those on which a live member runs or to which one will
    move."""
    kept = await store.moved_to(tx, operation.instance_id, allocation_ids)
    await instance_members.release(tx, operation.instance_id, operation.project_id, allocation_ids, kept=kept)


def reported(member: Member, report: ReportMember | ObservedMember) -> Member:
    """Return the member with the reported values; fields that the report omits do not change."""
    return replace(
        member,
        status=report.status,
        status_reason=limits.clipped(report.status_reason),
        adapter_detail=member.adapter_detail if report.adapter_detail is None else report.adapter_detail,
        observed_version=member.observed_version if report.observed_version is None else report.observed_version,
    )


async def of_targets(reader: db.Reader, operation: Operation) -> dict[str, Member]:
    """Return the members of the operation's targets, by id. Does not read former members of the instance."""
    members = await instances.members_named(reader, [target.member_id for target in operation.targets])
    return {member.member_id: member for member in members}


async def concerned(reader: db.Reader, operation: Operation) -> dict[str, Member]:
    """Return the members of the targets, by id; for an operation on the whole instance also all other live members."""
    members = await of_targets(reader, operation)
    if operation.kind in INSTANCE_KINDS:
        live = await instances.live_members(reader, operation.instance_id)
        members |= {member.member_id: member for member in live}
    return members
