"""Report members to the platform, and retry work on machines that are unreachable for a while. Used by the handlers."""

import asyncio
import datetime
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Literal

from gpuaas_sdk.controller import Evidence, Member, MembersFailed, Operation, Permanent
from gpuaas_sdk.machine import Machine, MachineUnreachable

from gpuaas_app_slurm import access, details, roles
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import config, home, nodes, packages, warnings

Work = Callable[[Machine], Awaitable[None]]
Failures = tuple[tuple[Member, Permanent], ...]


class MachineAway(Permanent):
    """The machine was unreachable for longer than the settings allow."""

    def __init__(self, name: str, address: str, waited_s: float, error: str) -> None:
        super().__init__(
            f"machine {name} ({address}) did not answer for {waited_s:.0f} s: {error}",
            fix=f"ping {address}; ssh {address} true",
        )


async def with_machine(op: Operation, member: Member, phase: str, settings: Settings, work: Work) -> None:
    """Run the function on the member's machine. If it fails, report the phase and the error in the member's detail."""
    try:
        await patiently(op, member, settings.reach_s, settings, work)
    except Permanent as error:
        machine = f"{member.node_name} ({member.address})"
        failure = {"phase": phase, "machine": machine, "error": str(error)[:2000]}
        await op.report(member, detail=now(op, member).adapter_detail | failure)
        raise


async def patiently(op: Operation, member: Member, budget_s: float, settings: Settings, work: Work) -> None:
    """Run the function, and repeat it while the machine is unreachable. Raises MachineAway after `budget_s`."""
    away_since: float | None = None
    while True:
        try:
            return await work(await op.machine(member))
        except MachineUnreachable as error:
            away_since = away_since or time.monotonic()
            if time.monotonic() - away_since >= budget_s:
                raise MachineAway(member.node_name, member.address, budget_s, str(error)) from error
            await op.say(str(error))
            await asyncio.sleep(settings.reach_retry_s)


async def is_reachable(op: Operation, member: Member, settings: Settings) -> bool:
    """Return whether the machine of a member that is removed answers within the time limit."""
    try:
        await patiently(op, member, settings.reach_leaving_s, settings, answer)
    except MachineAway:
        return False
    return True


async def answer(machine: Machine) -> None:
    """Check that the machine answers, by a command that changes nothing."""
    await machine.run("true")


async def survivors(
    op: Operation, members: Iterable[Member], function: Callable[[Member], Awaitable[None]]
) -> tuple[tuple[Member, ...], Failures]:
    """Run the function for each member. Return the members that succeeded, and those that failed with their errors.

    Members that the stop rule skipped are in neither."""
    chosen = tuple(members)
    failures: Failures = ()
    try:
        await op.each(chosen, function)
    except MembersFailed as error:
        failures = error.failures
    failed = {member.member_id for member, _ in failures}
    return tuple(member for member in chosen if member.member_id not in failed and not op.skips(member)), failures


async def advance(op: Operation, member: Member, status: Literal["provisioning", "joining"]) -> None:
    """Report the status of a new member, unless it has this or a later status, as in a repeated operation."""
    before: dict[str, tuple[str, ...]] = {
        "provisioning": ("requested", "failed"),
        "joining": ("provisioning", "failed"),
    }
    if now(op, member).status in before[status]:
        await op.report(member, status=status)


async def ready_worker(op: Operation, member: Member, controller: Machine) -> None:
    machine = await op.machine(member)
    node = await nodes.read(controller, machine.hostname)
    package = await packages.installed_version(machine, "slurmd")
    detail = details.worker_detail(machine.hostname, node, package) | await warnings.of(machine)
    reason = details.version_warning(detail)
    await op.report(member, status="ready", reason=reason, detail=detail, version=detail.get("daemon_version"))


async def publish_access(op: Operation) -> None:
    """Publish the access bundle with the present number of ready workers."""
    controller = roles.controller_of(op.members)
    machine = await op.machine(controller)
    ready = [member for member in roles.workers_of(op.members) if member.status == "ready"]
    logins = [member for member in roles.logins_of(op.members) if member.status == "ready"]
    inputs = config.parse_inputs(op.instance.inputs)
    homes = await home.in_use(machine, inputs.home, machine.address)
    entry = logins[0] if logins else controller
    place = (
        access.Login(entry.allocation_id, entry.node_name, entry.address)
        if logins
        else access.Login(controller.allocation_id, machine.hostname, machine.address)
    )
    await op.publish_access(access.bundle(inputs, op.instance.name, place, machine.address, len(ready), homes))


def raise_any(failures: Failures, count: int) -> None:
    if failures:
        raise MembersFailed(failures, count)


def now(op: Operation, member: Member) -> Member:
    """Return the member as it was last reported."""
    return next((other for other in op.members if other.member_id == member.member_id), member)


def evidence(state: Literal["idle", "busy", "unknown", "unreachable"], source: str, detail: str) -> Evidence:
    return Evidence(state=state, source=source, observed_at=datetime.datetime.now(datetime.UTC), detail=detail)
