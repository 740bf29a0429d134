"""Parts of handlers that every app has: work on the machine of a member, its removal, and refusals that force lifts.

Each takes the operation first. Used by the handlers of apps, inside or around their steps."""

import asyncio
import datetime
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeVar

import msgspec
from gpuaas_contract.instances import Member
from gpuaas_contract.operations import Evidence, Leftover

from gpuaas_sdk.controller import rules
from gpuaas_sdk.controller.operation import Operation
from gpuaas_sdk.failures import Permanent, Refused, Temporary
from gpuaas_sdk.installs import Footprint, acts, removals, undo, uninstall
from gpuaas_sdk.installs.acts import Acts
from gpuaas_sdk.machine import Machine

ERROR_MAX = 2000
LEFT_ELSEWHERE = "left_elsewhere"
"""Name in a member's detail of what was left on a machine that is not the member's."""

Work = Callable[[Machine], Awaitable[None]]


class _OnMachine(Protocol):
    """What `one_per_machine` needs of a member."""

    @property
    def allocation_id(self) -> str: ...


_Machined = TypeVar("_Machined", bound=_OnMachine)


async def on_machine(op: Operation, member: Member, phase: str, work: Work, *, patience_s: float = 60.0) -> None:
    """Run the work on the member's machine. If it fails, the detail of the member has the phase, machine and error.

    await members.on_machine(op, member, "install packages", install)"""
    try:
        await op.on(member, work, patience_s=patience_s)
    except Refused:
        raise
    except Permanent as error:
        failure = {"phase": phase, "machine": name(member), "error": str(error)[:ERROR_MAX]}
        await op.report(member, detail=op.now(member).adapter_detail | failure)
        raise


def name(member: Member) -> str:
    """Return the machine of a member as people read it. Pure.

    members.name(member)  # gpu-1 (10.0.0.1)"""
    return f"{member.node_name} ({member.address})"


def one_per_machine(members: Iterable[_Machined]) -> list[_Machined]:
    """Return one member of each machine, for work that concerns a machine and not its roles. Pure.

    machines = [await op.machine(member) for member in members.one_per_machine(op.members)]"""
    return list({member.allocation_id: member for member in members}.values())


async def require_answers(
    op: Operation, members: Iterable[Member], fix: str, *, consequence: str = "", patience_s: float = 20.0
) -> None:
    """Refuse while the machine of one of these members does not answer. Nothing was changed yet.

    await members.require_answers(op, op.members, "start the machine, or stop with force")"""
    asked = one_per_machine(members)
    answers = await asyncio.gather(*(op.answers(member, patience_s=patience_s) for member in asked))
    if away := sorted(name(member) for member, answered in zip(asked, answers, strict=True) if not answered):
        many = "machines" if len(away) > 1 else "machine"
        verb = "do" if len(away) > 1 else "does"
        so = f", so {consequence}" if consequence else ""
        raise Refused(f"{many} {', '.join(away)} {verb} not answer{so}", fix=fix)


async def only_by_force(op: Operation, reason: str, fix: str) -> None:
    """Refuse the operation for this reason; with force, show the reason and continue.

    await members.only_by_force(op, f"it is unknown whether jobs run: {error}", "repair the head, or use force")"""
    if not op.force:
        raise Refused(reason, fix=fix)
    await op.say(f"continuing because force was requested, although {reason}")


async def refusal(check: Awaitable[None]) -> str:
    """Return why the check refuses the operation, and what to do; empty if it does not. For previews.

    reason = await members.refusal(require_idle(op))"""
    try:
        await check
    except Refused as error:
        return rules.refusal(error)
    return ""


def never_ready() -> Evidence:
    """Return the evidence that a member which was never ready does no work.

    await members.begin_removal(op, member, members.never_ready())"""
    return Evidence(
        state="idle",
        source="the platform's record",
        observed_at=datetime.datetime.now(datetime.UTC),
        detail="the member was never ready, so it did no work",
    )


async def begin_removal(op: Operation, member: Member, evidence: Evidence) -> None:
    """Report the member as removing, with the evidence, before anything is destroyed.

    await members.begin_removal(op, member, await look(machine))"""
    if op.now(member).status != "removing":
        detail = op.now(member).adapter_detail | {removals.BEGUN_BY: op.id}
        await op.report(member, status="removing", reason=op.reason, evidence=evidence, detail=detail)


def require_intact(op: Operation, member: Member) -> None:
    """Refuse to return a member to the state before if this operation has begun to take the app off its machine.

    members.require_intact(op, member)  # first in the undo of a remove"""
    now = op.now(member)
    if now.status == "removing" or now.adapter_detail.get(removals.BEGUN_BY) == op.id:
        raise Permanent(
            f"the removal of {member.node_name} has already begun and cannot be undone",
            fix=f"gpuaas op retry {op.id} --reason 'finish the removal'",
        )


async def take_over(
    op: Operation, member: Member, machine: Machine, footprint: Footprint, app_acts: Acts = acts.NONE
) -> None:
    """Remove what instances that no longer use the machine have left there. Refuse the machine of another instance.

    await members.take_over(op, member, machine, KV)"""

    async def is_used(instance_id: str) -> bool:
        return await op.is_used_by(instance_id, member)

    await uninstall.take_over(machine, footprint, op.instance.instance_id, is_used, op.say, acts=app_acts)


async def take_off(
    op: Operation, member: Member, machine: Machine, footprint: Footprint, app_acts: Acts = acts.NONE
) -> None:
    """Take the role of the member off its machine, and report what was removed and left, for the statement. With the
    last role, the artifacts that were placed there are removed too.

    await op.on(member, lambda machine: members.take_off(op, member, machine, KV))"""

    async def report(removal: removals.Removal) -> None:
        kept = {"packages_kept": list(removal.packages_kept)} if removal.packages_kept else {}
        left = [*_left_elsewhere(op, member), *(Leftover(what=what[:200], why=why) for what, why in removal.left)]
        await op.report(member, detail=op.now(member).adapter_detail | kept, removed=list(removal.removed), left=left)

    await remove_role(op, member, machine, footprint, app_acts, report)
    if not any(_stays_on(other, member) for other in op.members):
        await _unplace_all(op, member)


async def remove_role(
    op: Operation,
    member: Member,
    machine: Machine,
    footprint: Footprint,
    app_acts: Acts = acts.NONE,
    report: uninstall.Report | None = None,
) -> None:
    """Take the role of the member off its machine, or off the spare machine of a replace that is undone. Roles there
    that no member has any more go with it.

    await op.on(spare, lambda machine: members.remove_role(op, spare, machine, KV))"""

    async def beside() -> frozenset[str]:
        return await op.roles_beside(member)

    instance_id, role = op.instance.instance_id, member.component_key
    await uninstall.remove_role(
        machine, footprint, instance_id, role, op.say, acts=app_acts, report=report, roles_beside=beside
    )


def _stays_on(other: Member, member: Member) -> bool:
    """Return whether another member of the instance stays on the machine of this one."""
    here = other.allocation_id == member.allocation_id and other.member_id != member.member_id
    return here and other.status != "removing"


async def _unplace_all(op: Operation, member: Member) -> None:
    """Remove the artifacts of the instance from the machine. If its agent does not do it, the statement lists them, and
    the release of the machine removes them: a removal must not wait for that."""
    await _dropped(op, lambda: op.unplace_all(member))


async def _dropped(op: Operation, drop: Callable[[], Awaitable[None]]) -> None:
    try:
        await drop()
    except (Temporary, Permanent) as error:
        await op.say(f"{error}. The release of the machine removes it.")


async def drop_left(op: Operation, member: Member) -> None:
    """At the end of an upgrade, a rollback or their undo, remove the artifacts of the version to which the instance can
    no longer return. If the machine's agent does not do it, its release does: the operation must not wait for that.

    await op.each(op.members, lambda member: members.drop_left(op, member))"""
    await _dropped(op, lambda: op.unplace_left(member))


async def note_left(op: Operation, member: Member, leftover: Leftover) -> None:
    """Report what is left on a machine that is not the member's, such as the goal of a move that did not end. It stays
    in the statement when the app is taken off the member's machine.

    await members.note_left(op, member, members.left_on(at_new, KV, "the move did not end"))"""
    noted = [msgspec.structs.asdict(leftover)]
    detail = op.now(member).adapter_detail | {LEFT_ELSEWHERE: noted}
    await op.report(member, detail=detail, left=[leftover])


def _left_elsewhere(op: Operation, member: Member) -> list[Leftover]:
    return msgspec.convert(op.now(member).adapter_detail.get(LEFT_ELSEWHERE, []), list[Leftover])


async def leave_untouched(op: Operation, member: Member) -> None:
    """Report a member as removed whose add did not begin. Its machine can have another role, which stays.

    if op.now(member).status == "requested":
        await members.leave_untouched(op, member)"""
    nothing = ["nothing: the member had not been added to its machine"]
    await op.report(member, status="removed", reason="nothing was done on its machine", removed=nothing)


async def give_up(op: Operation, member: Member, footprint: Footprint) -> None:
    """Report a member as tombstoned whose machine does not answer, with what remains there.

    if op.force and not await op.answers(member):
        await members.give_up(op, member, KV)"""
    left = undo.left_behind(footprint, op.instance.instance_id, [member.component_key])
    reason = f"{name(member)} did not answer; {left}"
    still_there = [left_on(member, footprint, reason)]
    await op.report(member, status="tombstoned", reason=reason, detail={"left_behind": left}, left=still_there)


def left_on(member: Member, footprint: Footprint, why: str) -> Leftover:
    """Return the line of the statement for a machine on which the app was left. Pure.

    await op.report(member, left=[members.left_on(member, KV, "it did not answer")])"""
    return Leftover(what=f"{footprint.name} ({member.component_key}) on {member.node_name}", why=why)
