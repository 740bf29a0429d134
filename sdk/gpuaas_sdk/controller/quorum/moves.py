"""What happens to one member: it joins, serves, restarts, leaves or moves, while the others keep their quorum.

`handlers` combines these. Every change is a step, so it is not repeated after a crash if it had succeeded."""

import asyncio
import datetime
from collections.abc import Awaitable, Callable, Iterable, Mapping

from gpuaas_contract.instances import Member
from gpuaas_contract.operations import Evidence

from gpuaas_sdk.checks import Check
from gpuaas_sdk.controller import members, package_sources
from gpuaas_sdk.controller.operation import Operation
from gpuaas_sdk.controller.quorum import rules
from gpuaas_sdk.controller.quorum.peers import Peers
from gpuaas_sdk.failures import Permanent, Refused, Temporary
from gpuaas_sdk.installs import package_changes, packages, receipts
from gpuaas_sdk.machine import Machine, MachineAway

_REPAIR_FIRST = "repair the members that do not serve first"
_NOT_STARTED = ("requested", "provisioning", "drained")


async def step(
    op: Operation, member: Member, name: str, work: Callable[[Machine], Awaitable[None]], at: Member | None = None
) -> None:
    """Run the work on the member's machine, or on the one it moves to, as a step.

    await quorum.step(op, member, "stop", peers.stop)"""
    await op.step(name, lambda: op.on(at or member, work), member=member)


def others(op: Operation, member: Member) -> list[Member]:
    """Return all members of the instance but this one.

    for other in quorum.others(op, member):
        await quorum.step(op, other, "clear", clear)"""
    return [other for other in op.members if other.member_id != member.member_id]


async def serving_member(op: Operation, peers: Peers, besides: Member | None = None, *more: Member) -> Member:
    """Return a member that serves, to ask it about the cluster. If there is none, raise `Temporary`.

    server = await quorum.serving_member(op, peers)"""
    for member in (*op.members, *more):
        is_other = besides is None or member.allocation_id != besides.allocation_id
        if is_other and member.status not in _NOT_STARTED and not await _unwell(op, peers, member):
            return member
    raise Temporary("no other member of the cluster serves", after_s=2.0)


async def unwell(op: Operation, peers: Peers, asked: Iterable[Member]) -> dict[str, str]:
    """Return those of the members that do not serve, with the reason."""
    chosen = list(asked)
    answers = await asyncio.gather(*(_unwell(op, peers, member) for member in chosen))
    return {member.node_name: answer for member, answer in zip(chosen, answers, strict=True) if answer}


async def _unwell(op: Operation, peers: Peers, member: Member) -> str:
    try:
        check = await op.on(member, peers.healthy, patience_s=peers.settings.answer_s)
    except (MachineAway, Temporary) as error:
        return str(error)
    return "" if check.ok else check.reason


async def source(op: Operation, peers: Peers, member: Member, machine: Machine) -> packages.Source:
    """Return where the machine gets its packages from."""
    chosen: packages.Choice = op.inputs_after.get("packages", "auto")
    return await package_sources.of(op, member, machine, peers.footprint, chosen)


async def install(op: Operation, peers: Peers, member: Member, name: str, at: Member) -> None:
    """Install the packages on a machine, after what other instances have left there was removed."""

    async def work(machine: Machine) -> None:
        await members.take_over(op, at, machine, peers.footprint, peers.acts)
        receipt = await receipts.open_for(machine, peers.footprint, op.instance.instance_id, (peers.role,))
        await packages.install(
            machine, peers.footprint, receipt, (peers.role,), source=await source(op, peers, at, machine)
        )

    await step(op, member, name, work, at)


async def found(op: Operation, peers: Peers, member: Member) -> None:
    """Start one member of a new cluster."""
    await op.advance(member, "provisioning")
    await install(op, peers, member, "install", member)
    await op.advance(member, "joining")
    await step(op, member, "start", lambda machine: peers.found(op, member, machine))


async def join(op: Operation, peers: Peers, member: Member, at: Member, prefix: str = "") -> None:
    """Let a machine enter the cluster, and count for the quorum when it has the data.

    await quorum.join(op, peers, member, member)"""

    async def enter(machine: Machine) -> None:
        await peers.enter(op, at, machine, await serving_member(op, peers, at))

    async def admit() -> None:
        await peers.admit(op, at, await serving_member(op, peers, at))

    await install(op, peers, member, f"{prefix}install", at)
    await step(op, member, f"{prefix}enter the cluster", enter, at)
    await op.step(f"{prefix}admit to the quorum", admit, member=member)


async def ready(op: Operation, peers: Peers, member: Member) -> None:
    """Wait until the member serves, then report it as ready."""
    now = op.now(member)
    check = await op.until(lambda: op.on(now, peers.healthy), every_s=0.5, within_s=peers.settings.start_s)
    if not check.ok:
        raise Permanent(f"{now.node_name} does not serve: {check.reason}", fix=f"gpuaas ssh {now.node_name} --root")
    await op.report(now, status="ready", version=await op.on(now, peers.version))


async def restart(op: Operation, peers: Peers, member: Member, name: str) -> None:
    """Restart a member while all others serve."""

    async def work(machine: Machine) -> None:
        check = rules.may_pause(await unwell(op, peers, others(op, member)), member.node_name)
        if not check.ok:
            raise Temporary(check.reason, after_s=2.0)
        await peers.restart(machine, f"{op.id} {member.member_id} {name}")

    await step(op, member, name, work)


async def change_packages(op: Operation, peers: Peers, member: Member, name: str) -> None:
    """Install the packages of the version that the instance gets. The program that runs stays the old one."""

    async def work(machine: Machine) -> None:
        chosen = await source(op, peers, member, machine)
        instance_id = op.instance.instance_id
        await package_changes.install(machine, peers.footprint, instance_id, (peers.role,), chosen)

    await step(op, member, name, work)


async def compare_versions(op: Operation, peers: Peers) -> None:
    """Refuse a change of version that the software cannot make, before anything is changed."""
    changes = {}
    for member in op.to_do:

        async def plan(machine: Machine, member: Member = member) -> package_changes.Change:
            chosen = await source(op, peers, member, machine)
            return await package_changes.plan(machine, peers.footprint, (peers.role,), chosen)

        changes[member.node_name] = await op.on(member, plan)
    package_changes.refuse_mixed(peers.footprint, changes)
    for node_name, change in changes.items():
        if refusal := peers.refusal(change.before, change.after):
            raise Refused(f"{node_name}: {refusal}", fix="choose another version of the app")


async def leave(op: Operation, peers: Peers, member: Member, *, whole: bool, prefix: str = "") -> None:
    """Take a member away. `whole`: all members leave, so there is no quorum to keep.

    A member that seems untouched is handled like the others: a cancel can hide the last report of its join."""
    is_silent = op.force and not await op.answers(member, patience_s=peers.settings.answer_s)
    if op.now(member).status != "removing":  # after a crash: a refusal states that nothing was changed
        await members.begin_removal(op, member, await evidence(op, peers, member, whole=whole))
    if not whole:
        await op.step(f"{prefix}leave the cluster", lambda: retire(op, peers, member), member=member)
    if is_silent:
        await members.give_up(op, member, peers.footprint)
        return
    await take_off(op, peers, member, member, f"{prefix}clear the machine")
    await op.report(member, status="removed")


async def retire(op: Operation, peers: Peers, member: Member, *more: Member) -> None:
    """End a membership, through another member."""
    await peers.retire(op, member, await serving_member(op, peers, member, *more))


async def take_off(op: Operation, peers: Peers, member: Member, at: Member, name: str) -> None:
    """Take the app off a machine that is no longer part of the cluster."""
    await step(op, member, name, lambda machine: members.take_off(op, at, machine, peers.footprint, peers.acts), at)


async def evidence(op: Operation, peers: Peers, member: Member, *more: Member, whole: bool = False) -> Evidence:
    """Look whether the others keep their quorum. Refuse if they do not; with force, show it and continue.

    A member that was never ready can have a vote: a deploy can fail for one of the first members, and an add after the
    new member was admitted."""
    if not _may_vote(op.now(member)):
        return members.never_ready()
    if whole:
        return _evidence("the whole instance ends, so no quorum is needed")
    stay = [*(other for other in others(op, member) if _may_vote(other)), *more]

    async def safe() -> Check:
        return rules.may_leave(await unwell(op, peers, stay), len(stay), member.node_name)

    check = await op.until(safe, every_s=1.0, within_s=0 if op.force else peers.settings.safe_s)
    if not check.ok:
        await members.only_by_force(op, check.reason, _REPAIR_FIRST)
    return _evidence(f"{len(stay)} others keep the quorum")


def refuse_leaving(op: Operation, unwell: Mapping[str, str]) -> None:
    """Refuse a removal or a replacement that would be refused as the cluster is now. For previews. Pure."""
    joining = 1 if op.preview_of == "replace" else 0  # the new machine serves before the old member leaves
    for member in op.targets:
        stay = [other for other in others(op, member) if _may_vote(other)]
        away = {other.node_name: unwell[other.node_name] for other in stay if other.node_name in unwell}
        check = rules.may_leave(away, len(stay) + joining, member.node_name)
        if _may_vote(member) and not check.ok:
            raise Refused(check.reason, fix=_REPAIR_FIRST)


def _may_vote(member: Member) -> bool:
    """Return whether the member may count for the quorum. One that failed after it was admitted still counts, and so
    does one that was ready and is being repaired."""
    return member.was_ready or member.status not in ("requested", "provisioning")


def _evidence(detail: str) -> Evidence:
    now = datetime.datetime.now(datetime.UTC)
    return Evidence(state="idle", source="the health of every other member", observed_at=now, detail=detail)


async def replace(op: Operation, peers: Peers, member: Member, prefix: str = "") -> None:
    """Make before break: the new machine counts for the quorum before the old one leaves."""
    spare = await op.at_replacement(member)
    if not op.has_moved(member):
        if op.now(member).status != "removing":
            await join(op, peers, member, spare, f"{prefix}new machine: ")
            await members.begin_removal(op, member, await evidence(op, peers, member, spare))
        await op.step(f"{prefix}old machine leaves", lambda: retire(op, peers, member, spare), member=member)
        if op.force and not await op.answers(member, patience_s=peers.settings.answer_s):
            await op.report(member, left=[members.left_on(member, peers.footprint, "it did not answer")])
        else:
            await take_off(op, peers, member, member, f"{prefix}clear the old machine")
        await op.report(member, status="provisioning")
    await op.advance(op.now(member), "joining")
    await ready(op, peers, member)


async def return_to_old(op: Operation, peers: Peers, member: Member) -> None:
    """Undo a replacement: the new machine leaves. If the old member has left already, finish the replacement."""
    spare = await op.at_replacement(member)
    if op.now(member).status == "removing" or op.has_moved(member):
        await replace(op, peers, member, "finish: ")
        return
    await op.step("undo: new machine leaves", lambda: retire(op, peers, spare), member=member)
    await take_off(op, peers, member, spare, "undo: clear the new machine")
    await ready(op, peers, member)
