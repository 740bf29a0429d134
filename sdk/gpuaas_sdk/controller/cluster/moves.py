"""What happens to one member of a cluster: it joins, opens, drains, leaves or moves. `handlers` combines these.

Every change on a machine is a step, so it is not repeated after a crash if it had succeeded."""

import datetime
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gpuaas_contract.instances import Member
from gpuaas_contract.operations import Evidence

from gpuaas_sdk.controller import members
from gpuaas_sdk.controller.cluster.software import Software
from gpuaas_sdk.controller.operation import Operation
from gpuaas_sdk.machine import Machine

Result = TypeVar("Result")
Act = Callable[[Member, Machine], Awaitable[Result]]

EVERY_S = 1.0
LEAVING_S = 20.0
"""How long a machine may be silent before a forced removal leaves it as it is."""
_CLOSED = ("draining", "drained")
_ON_OLD_MACHINE = ("ready", "degraded", "draining", "drained", "failed")


def head(op: Operation, role: str) -> Member:
    """Return the member of the head's role.

    address = head(op, "primary").address"""
    return next(member for member in op.members if member.component_key == role)


async def kept(op: Operation, role: str, path: str) -> bytes | None:
    """Return a file that all members have, such as a token that lives longer than its secret; None if none has it. If
    the head has lost it, a member that served has it. The head must answer; others are left out if they do not.

    token = await kept(op, "primary", "/etc/kv/token")"""
    first = head(op, role)
    content = await op.on(first, lambda machine: machine.get(path))
    for member in op.members:
        if content is None and member.was_ready and member.member_id != first.member_id and await op.answers(member):
            content = await op.on(member, lambda machine: machine.get(path))
    return content


async def look(op: Operation, member: Member, act: Act[Result], *, patience_s: float = 60.0) -> Result:
    """Return what the act returns on the member's machine.

    version = await look(op, member, software.version)"""
    return await op.on(member, lambda machine: act(member, machine), patience_s=patience_s)


async def step(op: Operation, member: Member, name: str, act: Act[None], on: Member | None = None) -> None:
    """Perform the act on the member's machine, or on the one it moves to, as a step.

    await step(op, member, "stop", software.stop)"""
    await op.step(name, lambda: look(op, on or member, act), member=member)


def installing(op: Operation, software: Software) -> Act[None]:
    """Return the act that installs the version which the operation leads to.

    await step(op, member, "install", installing(op, software))"""

    async def act(member: Member, machine: Machine) -> None:
        await software.install(op, member, machine)

    return act


async def join(op: Operation, software: Software, member: Member) -> None:
    """Install the software on a new member's machine and let it take work.

    await join(op, software, member)"""
    await op.advance(member, "provisioning")
    await step(op, member, "install", installing(op, software))
    await op.advance(member, "joining")
    await open(op, software, member, "start")


async def open(op: Operation, software: Software, member: Member, name: str) -> None:
    """Let the member take work, and report it as ready after a look at its machine.

    await open(op, software, member, "resume")"""
    await step(op, member, name, software.start)
    await op.until(lambda: look(op, member, software.serves), every_s=EVERY_S)
    await op.report(member, status="ready", version=await look(op, member, software.version))


async def drain(op: Operation, software: Software, member: Member, name: str, *, report: bool = True) -> None:
    """Close the member, wait until its work has ended, and stop it; with force, do not wait.

    await drain(op, software, member, "drain")"""

    async def wait() -> None:
        await op.until(lambda: look(op, member, software.idle), every_s=EVERY_S)

    if op.now(member).status in ("ready", "degraded"):
        await op.report(member, status="draining")
    if not op.force:
        await step(op, member, f"{name}: close", software.close)
        # A step, so that it is not repeated after a crash: the operation may have started the member again.
        await op.step(f"{name}: wait for work", wait, member=member)
    await step(op, member, f"{name}: stop", software.stop)
    if report:
        await op.report(member, status="drained")


async def leave(op: Operation, software: Software, member: Member, name: str) -> None:
    """Remove the app from the machine. With force, a machine that does not answer is left as it is.

    await leave(op, software, member, "remove")"""
    if op.force and not await op.answers(member, patience_s=LEAVING_S):
        await members.give_up(op, member, software.footprint)
        return
    if op.now(member).was_ready and op.now(member).status != "removing":
        await drain(op, software, member, name)
    await _begin_removal(op, software, member)
    await step(op, member, name, _take_off(op, software))
    await op.report(member, status="removed")


async def give_back(op: Operation, software: Software, member: Member) -> None:
    """Undo a drain or a removal: the member is as before. If the machine is being cleared, it is too late.

    await give_back(op, software, member)"""
    if op.now(member).status == "removing":
        await leave(op, software, member, "finish the removal")
    elif op.status_before(member) in _CLOSED:
        await op.report(member, status="drained")
    else:
        await open(op, software, member, "open again")


async def replace(op: Operation, software: Software, member: Member, prefix: str = "") -> None:
    """Prepare the new machine, then clear the old one and let the new one take work.

    await replace(op, software, member)"""
    spare = await op.at_replacement(member)
    if not op.has_moved(member):
        await step(op, member, f"{prefix}install the new machine", installing(op, software), spare)
        if op.now(member).status != "removing":
            await drain(op, software, member, f"{prefix}old machine", report=False)
            await _begin_removal(op, software, member)
        await step(op, member, f"{prefix}clear the old machine", _take_off(op, software))
        await op.report(member, status="provisioning")
    await op.advance(member, "joining")
    await open(op, software, op.now(member), f"{prefix}open the new machine")


async def keep(op: Operation, software: Software, member: Member) -> None:
    """Undo a replace. If the old machine is being cleared, it is too late: finish it.

    await keep(op, software, member)"""
    if op.now(member).status not in _ON_OLD_MACHINE:
        await replace(op, software, member, "finish: ")
        return
    await step(op, member, "clear the new machine", _take_off(op, software), await op.at_replacement(member))
    await give_back(op, software, member)


async def change(op: Operation, software: Software, member: Member, name: str) -> None:
    """Let a member take work after a change, or report it as drained if it took none before.

    await change(op, software, member, "start")"""
    if op.status_before(member) in _CLOSED:
        await op.report(member, status="drained", version=await look(op, member, software.version))
    else:
        await open(op, software, member, name)


async def _begin_removal(op: Operation, software: Software, member: Member) -> None:
    """Look at the machine now and report what was seen. A look from before is never used."""
    if op.now(member).status == "removing":
        return
    running = await look(op, member, software.work) if op.now(member).was_ready else ()
    evidence = Evidence(
        state="busy" if running else "idle",
        source=software.source,
        observed_at=datetime.datetime.now(datetime.UTC),
        running_work=len(running),
    )
    await members.begin_removal(op, member, evidence if op.now(member).was_ready else members.never_ready())


def _take_off(op: Operation, software: Software) -> Act[None]:
    async def act(member: Member, machine: Machine) -> None:
        await members.take_off(op, member, machine, software.footprint, software.acts)

    return act
