"""The handlers of drain, resume, remove and decommission. A worker is removed only if Slurm reports no job on it."""

import asyncio
from collections.abc import Awaitable, Callable

from gpuaas_sdk.controller import Evidence, Member, Operation, Permanent, Temporary
from gpuaas_sdk.machine import Machine, MachineUnreachable

from gpuaas_app_slurm import reports, roles
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import config, nodes, slurm, state, undo, uninstall

POLL_S = 0.5


async def drain(op: Operation, settings: Settings) -> None:
    head = await _head(op)
    await _each_target(op, lambda member: _drain(op, member, head, settings))


async def resume(op: Operation, settings: Settings) -> None:
    """Resume the targets. Not with `op.each`: it would report a member as failed whose drain must not be lifted."""
    head = await _head(op)
    await _together(op.targets, lambda member: _resume(op, member, head, settings))
    await reports.publish_access(op)


async def remove(op: Operation, settings: Settings) -> None:
    head = await _head(op)
    await _each_target(op, lambda member: _remove(op, member, head, settings))


async def decommission(op: Operation, settings: Settings) -> None:
    nodes_left = roles.nodes_of(op.members)
    controllers = tuple(member for member in op.members if member.component_key == roles.CONTROLLER)
    for controller in controllers:
        await op.step("check for jobs", _check_for_jobs, op, controller, settings)
    await op.each(nodes_left, lambda member: _decommission(op, member, settings))
    await op.each(controllers, lambda member: _decommission(op, member, settings))


async def _each_target(op: Operation, function: Callable[[Member], Awaitable[None]]) -> None:
    """Run the function for each target, and publish the access bundle even if some of them failed."""
    _, failures = await reports.survivors(op, op.targets, function)
    await reports.publish_access(op)
    reports.raise_any(failures, len(op.targets))


async def _drain(op: Operation, member: Member, head: Machine, settings: Settings) -> None:
    name = await _node_name(op, member)
    if reports.now(op, member).status in ("ready", "degraded"):
        await op.report(member, status="draining", reason=op.reason)
    await op.step("drain the node", _set_drain, op, head, name, member=member)
    await op.step("wait for its jobs", _wait_drained, op, head, name, settings, member=member)
    node = await nodes.read(head, name)
    is_foreign = node is not None and state.drained_by_others(node)
    detail = reports.now(op, member).adapter_detail | {
        "slurm_state": node.slurm_state if node else "absent",
        "reason": node.reason if node else "",
        "drained_by": "ExternallyDrained" if is_foreign else op.id,
    }
    if reports.now(op, member).status in ("draining", "drained"):
        await op.report(member, status="drained", reason=detail["reason"], detail=detail)


async def _set_drain(op: Operation, head: Machine, name: str) -> None:
    await nodes.drain(head, name, state.drain_reason(op.id, op.reason))


async def _wait_drained(op: Operation, head: Machine, name: str, settings: Settings) -> None:
    async def is_drained() -> state.Check:
        node = await nodes.read(head, name)
        if node is not None and "DOWN" in node.flags:
            raise Permanent(
                f"node {name} is {node.slurm_state}: it is unknown whether jobs still run there",
                fix="start the machine again, or remove the member with force",
            )
        return await nodes.drained(head, name)

    check = await nodes.until(
        is_drained, timeout_s=settings.drain_wait_s, every_s=settings.drain_poll_s, progress=op.say
    )
    if not check.ok:
        raise Permanent(check.reason, fix=f"squeue -w {name}")


async def _resume(op: Operation, member: Member, head: Machine, settings: Settings) -> None:
    name = await _node_name(op, member)

    async def takes_work() -> state.Check:
        return state.node_takes_work(name, await nodes.read(head, name))

    async def step() -> None:
        await nodes.resume(head, name)
        check = await nodes.until(takes_work, timeout_s=settings.join_s, every_s=POLL_S, progress=op.say)
        if not check.ok:
            raise Permanent(check.reason, fix=f"scontrol show node {name}")

    await op.step("resume the node", step, member=member)
    await reports.ready_worker(op, member, head)


async def _remove(op: Operation, member: Member, head: Machine, settings: Settings) -> None:
    name = await _node_name(op, member)
    if await reports.is_reachable(op, member, settings):
        await _report_removing(op, member, await _let_work_end(op, member, head, name, settings))
        await op.step("delete the node", nodes.delete, head, name, member=member)
        await op.step("take Slurm off the machine", _uninstall, op, member, member=member)
        await op.report(member, status="removed")
    elif op.force:
        evidence = reports.evidence("unreachable", "ssh", f"{member.node_name} ({member.address}) did not answer")
        await _report_removing(op, member, evidence)
        await op.step(
            "delete the Slurm node, although its machine does not respond", _delete_lost, head, name, member=member
        )
        left = undo.left_behind(op.instance.instance_id, [member.component_key])
        await op.report(member, status="removed", detail={"node_name": name, "left_behind": left})
    else:
        error = "if the machine will not come back, remove the member with force"
        raise reports.MachineAway(member.node_name, member.address, settings.reach_leaving_s, error)


async def _let_work_end(op: Operation, member: Member, head: Machine, name: str, settings: Settings) -> Evidence:
    """Drain the node, wait for its jobs, and return the evidence that it is idle.

    If Slurm has no such node, it was deleted or never joined."""
    if await nodes.read(head, name) is not None:
        if op.force:
            await op.step("cancel its jobs", _cancel_jobs_on, op, head, name, member=member)
        await _drain(op, member, head, settings)
        node = await nodes.read(head, name)
        if node is not None:
            return reports.evidence("idle", "scontrol show nodes", f"{name} is {node.slurm_state} and runs no job")
    return reports.evidence("idle", "scontrol show nodes", f"Slurm has no node {name}, so no job can run there")


async def _cancel_jobs_on(op: Operation, head: Machine, name: str) -> None:
    await nodes.drain(head, name, state.drain_reason(op.id, op.reason))
    jobs = await nodes.jobs_on(head, name)
    if jobs:
        await op.say(f"cancelling {len(jobs)} jobs on {name}, because force was requested")
        await head.run("scancel", *(str(job.job_id) for job in jobs), check=False)


async def _delete_lost(head: Machine, name: str) -> None:
    await nodes.delete(head, name, although_unreachable=True)


async def _check_for_jobs(op: Operation, controller: Member, settings: Settings) -> None:
    """Refuse to decommission a cluster with jobs. Without a member that was ever ready, there can be no jobs."""
    if not any(member.was_ready for member in op.members):
        return
    try:
        await reports.patiently(
            op, controller, settings.reach_leaving_s, settings, lambda head: _close(op, head, settings)
        )
    except (Temporary, Permanent) as error:
        if not op.force:
            raise Permanent(str(error), fix="let the jobs end, or decommission with force") from error
        await op.say(f"continuing because force was requested, despite this error: {error}")


async def _close(op: Operation, head: Machine, settings: Settings) -> None:
    """Close the partition if there are no jobs, and check again: a job may have been submitted before it was closed."""
    partition = config.parse_inputs(op.instance.inputs).partition
    if not op.force:
        _refuse_jobs(await nodes.jobs_of_cluster(head))
    await nodes.set_partition(head, partition, "down")
    if op.force:
        check = await nodes.cancel_all_jobs(head, timeout_s=settings.cancel_jobs_s, progress=op.say)
        if not check.ok:
            raise Permanent(check.reason)
    elif jobs := await nodes.jobs_of_cluster(head):
        await nodes.set_partition(head, partition, "up")
        _refuse_jobs(jobs)


def _refuse_jobs(jobs: tuple[state.Job, ...]) -> None:
    check = state.cluster_quiet(jobs)
    if not check.ok:
        raise Permanent(check.reason, fix="let the jobs end, or decommission with force")


async def _decommission(op: Operation, member: Member, settings: Settings) -> None:
    if not await reports.is_reachable(op, member, settings):
        left = undo.left_behind(op.instance.instance_id, [member.component_key])
        detail = member.adapter_detail | {"left_behind": left}
        reason = f"{member.node_name} ({member.address}) did not answer; {left}"
        await op.report(member, status="tombstoned", reason=reason, detail=detail)
        return
    await _report_removing(op, member, _evidence_of_check(op, member))
    await op.step("take Slurm off the machine", _uninstall, op, member, member=member)
    await op.report(member, status="removed")


def _evidence_of_check(op: Operation, member: Member) -> Evidence:
    """Return the evidence from `_check_for_jobs`. With force, jobs may still run where Slurm did not answer."""
    if op.force:
        return reports.evidence("unknown", "force", "jobs were cancelled if Slurm answered")
    observation = "no job was running or queued" if member.was_ready else "the member was never ready, so it ran no job"
    return reports.evidence("idle", "squeue", observation)


async def _uninstall(op: Operation, member: Member) -> None:
    machine = await op.machine(member)
    kept = await uninstall.remove_role(machine, op.instance.instance_id, member.component_key, op.say)
    if kept:
        await op.report(member, detail=member.adapter_detail | {"packages_kept": list(kept)})


async def _report_removing(op: Operation, member: Member, evidence: Evidence) -> None:
    """Report the member as removing, with the evidence, before anything is destroyed."""
    if reports.now(op, member).status != "removing":
        await op.report(member, status="removing", reason=op.reason, evidence=evidence)


async def _head(op: Operation) -> Machine:
    machine = await op.machine(roles.controller_of(op.members))
    check = await slurm.controller_answers(machine)
    if not check.ok:
        raise Temporary(check.reason)
    return machine


async def _node_name(op: Operation, member: Member) -> str:
    """Return the name of the member's node in Slurm. The record is used first: the machine may be unreachable."""
    known = reports.now(op, member).adapter_detail.get("node_name")
    if known:
        return str(known)
    try:
        return (await op.machine(member)).hostname
    except MachineUnreachable:
        return member.node_name


async def _together(members: tuple[Member, ...], function: Callable[[Member], Awaitable[None]]) -> None:
    """Run the function for all members at the same time; raise the first error after all have ended."""
    results = await asyncio.gather(*(function(member) for member in members), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
