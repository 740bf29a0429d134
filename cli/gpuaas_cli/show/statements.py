"""Format a signed statement for `gpuaas op statement`: what was removed, what is left and why, member by member."""

from collections.abc import Sequence

from gpuaas_contract.operations import Leftover
from gpuaas_contract.statements import SignedStatement, StatedMember, StatedPart

from gpuaas_cli.output import Lines
from gpuaas_cli.show.steps import moment


def page(signed: SignedStatement) -> Lines:
    made = signed.statement
    force = ", with force" if made.force else ""
    return [
        f"{made.kind} of {made.instance_name} ({made.instance_id}, {made.app_slug} {made.app_version}){force}",
        f"operation {made.operation_id}: {made.status}" + (f" at {moment(made.ended_at)}" if made.ended_at else ""),
        f"requested by {made.requested_by}: {made.reason or 'without a reason'}",
        *(line for member in made.members for line in _member(member)),
        *(line for part in made.platform for line in _part(part)),
        "",
        f"issued {moment(made.issued_at)}, signed with key {signed.key_id}",
    ]


def _member(member: StatedMember) -> Lines:
    removed = [f"  removed: {text}" for text in member.removed]
    return ["", f"{member.node_name} {member.component_key}: {member.status}", *removed, *_left(member.left)]


def _part(part: StatedPart) -> Lines:
    return ["", f"{part.what}: {part.removed} removed, {len(part.left)} left", *_left(part.left)]


def _left(leftovers: Sequence[Leftover]) -> Lines:
    return [f"  left: {item.what}: {item.why}" for item in leftovers]
