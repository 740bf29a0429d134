"""Drain, resume, remove and decommission: workers leave only when Slurm itself says that nothing runs on them."""

import asyncio
from collections.abc import Awaitable, Callable

from gpuaas_sdk.controller import Evidence, Member, Operation, Permanent, Temporary
from gpuaas_sdk.machine import Machine, MachineUnreachable

from gpuaas_app_slurm import config, nodes, plan, reports, slurm, state, teardown


async def drain(op: Operation) -> None:
    head = await _head(op)
    await _each_target(op, lambda member: _drain(op, member, head))


async def resume(op: Operation) -> None:
    """A refusal leaves the member as it is, so this does not go through `op.each`, which would mark it failed."""
    head = await _head(op)
    await _together(op.targets, lambda member: _resume(op, member, head))
    await reports.publish_access(op)


async def remove(op: Operation) -> None:
    head = await _head(op)
    await _each_target(op, lambda member: _remove(op, member, head))


async def decommission(op: Operation) -> None:
    workers = plan.workers_of(op.members)
    controllers = tuple(member for member in op.members if member.component_key == plan.CONTROLLER)
    for controller in controllers:
        await op.step("check for jobs", _check_for_jobs, op, controller)
    await op.each(workers, lambda member: _decommission(op, member))
    await op.each(controllers, lambda member: _decommission(op, member))


async def _each_target(op: Operation, function: Callable[[Member], Awaitable[None]]) -> None:
    """People are told of the workers that are left, also where some would not go."""
    _, failures = await reports.survivors(op, op.targets, function)
    await reports.publish_access(op)
    reports.raise_any(failures, len(op.targets))


async def _drain(op: Operation, member: Member, head: Machine) -> None:
    name = await _node_name(op, member)
    if reports.now(op, member).status in ("ready", "degraded"):
        await op.report(member, status="draining", reason=op.reason)
    await op.step("drain the node", _set_drain, op, head, name, member=member)
    await op.step("wait for its jobs", _wait_drained, op, head, name, member=member)
    node = await nodes.read(head, name)
    foreign = node is not None and state.drained_by_others(node)
    detail = reports.now(op, member).adapter_detail | {
        "slurm_state": node.slurm_state if node else "absent",
        "reason": node.reason if node else "",
        "drained_by": "ExternallyDrained" if foreign else op.id,
    }
    if reports.now(op, member).status in ("draining", "drained"):
        await op.report(member, status="drained", reason=detail["reason"], detail=detail)


async def _set_drain(op: Operation, head: Machine, name: str) -> None:
    await nodes.drain(head, name, plan.drain_reason(op.id, op.reason))


async def _wait_drained(op: Operation, head: Machine, name: str) -> None:
    async def asked() -> state.Check:
        node = await nodes.read(head, name)
        if node is not None and "DOWN" in node.flags:
            raise Permanent(
                f"node {name} is {node.slurm_state}: whether work still runs there cannot be known",
                fix="bring the machine back, or remove the member with force",
            )
        return await nodes.drained(head, name)

    check = await nodes.until(asked, timeout_s=plan.DRAIN_WAIT_S, every_s=plan.DRAIN_EVERY_S, say=op.say)
    if not check.ok:
        raise Permanent(check.reason, fix=f"squeue -w {name}")


async def _resume(op: Operation, member: Member, head: Machine) -> None:
    name = await _node_name(op, member)

    async def step() -> None:
        await nodes.resume(head, name)

        async def fit() -> state.Check:
            return state.node_takes_work(name, await nodes.read(head, name))

        check = await nodes.until(fit, timeout_s=plan.JOIN_S, every_s=0.5, say=op.say)
        if not check.ok:
            raise Permanent(check.reason, fix=f"scontrol show node {name}")

    await op.step("resume the node", step, member=member)
    await reports.ready_worker(op, member, head)


async def _remove(op: Operation, member: Member, head: Machine) -> None:
    name = await _node_name(op, member)
    if await _is_reachable(op, member, plan.REACH_LEAVING_S):
        await _removing(op, member, await _let_work_end(op, member, head, name))
        await op.step("delete the node", nodes.delete, head, name, member=member)
        await op.step("take Slurm off the machine", _leave, op, member, member=member)
        await op.report(member, status="removed")
    elif op.force:
        gone = reports.evidence("unreachable", "ssh", f"{member.node_name} ({member.address}) did not answer")
        await _removing(op, member, gone)
        await op.step("delete the node although its machine is away", _delete_lost, head, name, member=member)
        left = plan.left_behind(op.instance.instance_id, [plan.WORKER])
        await op.report(member, status="removed", detail={"node_name": name, "left_behind": left})
    else:
        error = "to take it away unseen, remove it with force"
        raise plan.MachineAway(member.node_name, member.address, plan.REACH_LEAVING_S, error)


async def _let_work_end(op: Operation, member: Member, head: Machine, name: str) -> Evidence:
    """Drain, wait, and answer what was seen. Slurm not knowing the node means it was deleted, or never joined."""
    if await nodes.read(head, name) is not None:
        if op.force:
            await op.step("cancel its jobs", _cancel_on, op, head, name, member=member)
        await _drain(op, member, head)
        node = await nodes.read(head, name)
        if node is not None:
            return reports.evidence("idle", "scontrol show nodes", f"{name} is {node.slurm_state} and runs no job")
    return reports.evidence("idle", "scontrol show nodes", f"Slurm has no node {name}: nothing can run there")


async def _cancel_on(op: Operation, head: Machine, name: str) -> None:
    await nodes.drain(head, name, plan.drain_reason(op.id, op.reason))
    jobs = await nodes.jobs_on(head, name)
    if jobs:
        await op.say(f"cancelling {len(jobs)} jobs on {name}, as forced")
        await head.run("scancel", *(str(job.job_id) for job in jobs), check=False)


async def _delete_lost(head: Machine, name: str) -> None:
    await nodes.delete(head, name, although_unreachable=True)


async def _check_for_jobs(op: Operation, controller: Member) -> None:
    """Refuse to take a cluster away under running jobs. Where nothing was ever ready there is nothing to protect."""
    if not any(member.was_ready for member in op.members):
        return
    try:
        await reports.patiently(op, controller, plan.REACH_LEAVING_S, lambda head: _quiet(op, head))
    except (Temporary, Permanent) as error:
        if not op.force:
            raise Permanent(str(error), fix="let the jobs end, or decommission with force") from error
        await op.say(f"going on as forced, although: {error}")


async def _quiet(op: Operation, head: Machine) -> None:
    """No job, and no way for a new one to start: the partition is closed, and asked once more after that."""
    partition = config.parse_inputs(op.instance.inputs).partition
    if not op.force:
        _refuse_jobs(await nodes.jobs_of_cluster(head))
    await nodes.set_partition(head, partition, "down")
    if op.force:
        check = await nodes.cancel_all_jobs(head, timeout_s=plan.CANCEL_JOBS_S, say=op.say)
        if not check.ok:
            raise Permanent(check.reason)
    elif jobs := await nodes.jobs_of_cluster(head):
        await nodes.set_partition(head, partition, "up")
        _refuse_jobs(jobs)


def _refuse_jobs(jobs: tuple[state.Job, ...]) -> None:
    check = state.cluster_quiet(jobs)
    if not check.ok:
        raise Permanent(check.reason, fix="let the jobs end, or decommission with force")


async def _decommission(op: Operation, member: Member) -> None:
    if not await _is_reachable(op, member, plan.REACH_LEAVING_S):
        left = plan.left_behind(op.instance.instance_id, [member.component_key])
        detail = member.adapter_detail | {"left_behind": left}
        reason = f"{member.node_name} ({member.address}) did not answer; {left}"
        await op.report(member, status="tombstoned", reason=reason, detail=detail)
        return
    await _removing(op, member, _seen_before(op, member))
    await op.step("take Slurm off the machine", _leave, op, member, member=member)
    await op.report(member, status="removed")


def _seen_before(op: Operation, member: Member) -> Evidence:
    """Without force the step before found no job, or nothing ever ran; with force nobody had to look."""
    if op.force:
        return reports.evidence("unknown", "force", "jobs were cancelled where Slurm answered")
    why = "no job was running or queued" if member.was_ready else "the member never took work"
    return reports.evidence("idle", "squeue", why)


async def _leave(op: Operation, member: Member) -> None:
    machine = await op.machine(member)
    kept = await teardown.leave(machine, op.instance.instance_id, member.component_key, op.say)
    if kept:
        await op.report(member, detail=member.adapter_detail | {"packages_kept": list(kept)})


async def _removing(op: Operation, member: Member, seen: Evidence) -> None:
    """From here on things are destroyed, so the platform wants to know what was seen before."""
    if reports.now(op, member).status != "removing":
        await op.report(member, status="removing", reason=op.reason, evidence=seen)


async def _is_reachable(op: Operation, member: Member, budget_s: float) -> bool:
    async def answer(machine: Machine) -> None:
        await machine.run("true")

    return await reports.answers(op, member, budget_s, answer)


async def _head(op: Operation) -> Machine:
    machine = await op.machine(plan.controller_of(op.members))
    check = await slurm.controller_answers(machine)
    if not check.ok:
        raise Temporary(check.reason)
    return machine


async def _node_name(op: Operation, member: Member) -> str:
    """Slurm's name of the member. Asked of the record first, since the machine may be away."""
    known = reports.now(op, member).adapter_detail.get("node_name")
    if known:
        return str(known)
    try:
        return (await op.machine(member)).hostname
    except MachineUnreachable:
        return member.node_name


async def _together(members: tuple[Member, ...], function: Callable[[Member], Awaitable[None]]) -> None:
    ends = await asyncio.gather(*(function(member) for member in members), return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException):
            raise end
