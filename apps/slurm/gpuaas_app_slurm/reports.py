"""What the handlers tell the platform of a member, and how long they stay patient with its machine."""

import asyncio
import datetime
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Literal

from gpuaas_sdk.controller import Evidence, Member, MembersFailed, Operation, Permanent
from gpuaas_sdk.machine import Machine, MachineUnreachable

from gpuaas_app_slurm import access, config, nodes, packages, plan

Work = Callable[[Machine], Awaitable[None]]
Failures = tuple[tuple[Member, Permanent], ...]

RETRY_EVERY_S = 2.0


async def with_machine(op: Operation, member: Member, phase: str, budget_s: float, work: Work) -> None:
    """Do the work on the member's machine; a machine that stays away longer than its budget fails the member."""
    try:
        await patiently(op, member, budget_s, work)
    except Permanent as error:
        machine = f"{member.node_name} ({member.address})"
        trouble = {"phase": phase, "machine": machine, "error": str(error)[:2000]}
        await op.report(member, detail=now(op, member).adapter_detail | trouble)
        raise


async def patiently(op: Operation, member: Member, budget_s: float, work: Work) -> None:
    away_since: float | None = None
    while True:
        try:
            return await work(await op.machine(member))
        except MachineUnreachable as error:
            away_since = away_since or time.monotonic()
            if time.monotonic() - away_since >= budget_s:
                raise plan.MachineAway(member.node_name, member.address, budget_s, str(error)) from error
            await op.say(str(error))
            await asyncio.sleep(RETRY_EVERY_S)


async def answers(op: Operation, member: Member, budget_s: float, work: Work) -> bool:
    try:
        await patiently(op, member, budget_s, work)
    except plan.MachineAway:
        return False
    return True


async def survivors(
    op: Operation, members: Iterable[Member], function: Callable[[Member], Awaitable[None]]
) -> tuple[tuple[Member, ...], Failures]:
    """Members whose work ended well, and those that failed with their errors; skipped ones are neither."""
    chosen = tuple(members)
    failures: Failures = ()
    try:
        await op.each(chosen, function)
    except MembersFailed as error:
        failures = error.failures
    failed = {member.member_id for member, _ in failures}
    return tuple(one for one in chosen if one.member_id not in failed and not op.skips(one)), failures


async def advance(op: Operation, member: Member, status: Literal["provisioning", "joining"]) -> None:
    """Move a member on its way up; never back, since a repeated operation finds it further along."""
    present = now(op, member).status
    before: dict[str, tuple[str, ...]] = {
        "provisioning": ("requested", "failed"),
        "joining": ("provisioning", "failed"),
    }
    if present in before[status]:
        await op.report(member, status=status)


async def ready_worker(op: Operation, member: Member, controller: Machine) -> None:
    machine = await op.machine(member)
    node = await nodes.read(controller, machine.hostname)
    package = await packages.installed_version(machine, "slurmd")
    detail = plan.worker_detail(machine.hostname, node, package)
    reason = plan.version_warning(detail)
    await op.report(member, status="ready", reason=reason, detail=detail, version=detail.get("daemon_version"))


async def publish_access(op: Operation) -> None:
    """How people use the cluster as it is now: the bundle says how many workers take jobs."""
    controller = plan.controller_of(op.members)
    machine = await op.machine(controller)
    serving = [member for member in plan.workers_of(op.members) if member.status == "ready"]
    inputs = config.parse_inputs(op.instance.inputs)
    head = (controller.allocation_id, machine.hostname, machine.address)
    await op.publish_access(access.bundle(inputs, op.instance.name, *head, len(serving)))


def raise_any(failures: Failures, count: int) -> None:
    if failures:
        raise MembersFailed(failures, count)


def now(op: Operation, member: Member) -> Member:
    """The member as last reported."""
    return next((other for other in op.members if other.member_id == member.member_id), member)


def evidence(state: Literal["idle", "busy", "unknown", "unreachable"], source: str, detail: str) -> Evidence:
    return Evidence(state=state, source=source, observed_at=datetime.datetime.now(datetime.UTC), detail=detail)
