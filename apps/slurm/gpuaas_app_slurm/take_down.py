"""The handlers of drain, resume, remove and decommission. A worker is removed only if Slurm reports no job on it.

With force, a remove and a decommission continue without what does not answer, and report what they did not do."""

import datetime

from gpuaas_sdk.checks import Check
from gpuaas_sdk.controller import Evidence, MachineAway, Member, Operation, Permanent, Refused, Temporary
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm import reports, roles
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import config, nodes, slurm, state, undo, uninstall

POLL_S = 0.5


async def drain(op: Operation, settings: Settings) -> None:
    head = await reports.head(op)
    await op.each(op.to_do, lambda member: drain_member(op, member, head, settings), raises=False)
    await reports.publish_access(op)


async def resume(op: Operation, settings: Settings) -> None:
    head = await reports.head(op)
    await op.each(op.to_do, lambda member: _resume(op, member, head, settings), raises=False)
    await reports.publish_access(op)


async def remove(op: Operation, settings: Settings) -> None:
    if op.force:
        head = await _head_if_it_answers(op, settings)
        await op.each(op.to_do, lambda member: _remove_by_force(op, member, head, settings), raises=False)
        if head is None:
            return
    else:
        answering = await reports.head(op)
        await op.each(op.to_do, lambda member: remove_member(op, member, answering, settings), raises=False)
    await reports.publish_access(op)


async def decommission(op: Operation, settings: Settings) -> None:
    nodes_left = roles.nodes_of(op.members)
    controllers = tuple(member for member in op.members if member.component_key == roles.CONTROLLER)
    if not op.force:
        await op.step("reach the machines", _require_machines, op, settings)
    for controller in controllers:
        await op.step("check for jobs", _check_for_jobs, op, controller, settings)
    results = await op.each(nodes_left, lambda member: _decommission(op, member, settings), raises=False)
    if results.failed:
        if not results.ok:
            await _reopen(op)
        return
    await op.each(controllers, lambda member: _decommission(op, member, settings))


async def drain_member(op: Operation, member: Member, head: Machine, settings: Settings) -> None:
    name = await reports.node_name(op, member)
    if await nodes.read(head, name) is None:
        raise Refused(f"Slurm has no node {name}", fix="sinfo -N")
    if op.now(member).status in ("ready", "degraded"):
        await op.report(member, status="draining", reason=op.reason)
    await op.step("drain the node", _set_drain, op, head, name, member=member)
    await op.step("wait for its jobs", _wait_drained, op, head, name, settings, member=member)
    node = await nodes.read(head, name)
    is_foreign = node is not None and state.drained_by_others(node)
    detail = op.now(member).adapter_detail | {
        "slurm_state": node.slurm_state if node else "absent",
        "reason": node.reason if node else "",
        "drained_by": "ExternallyDrained" if is_foreign else op.id,
    }
    if op.now(member).status in ("draining", "drained"):
        await op.report(member, status="drained", reason=detail["reason"], detail=detail)


async def _set_drain(op: Operation, head: Machine, name: str) -> None:
    await nodes.drain(head, name, state.drain_reason(op.id, op.reason))


async def _wait_drained(op: Operation, head: Machine, name: str, settings: Settings) -> None:
    async def is_drained() -> Check:
        node = await nodes.read(head, name)
        if node is not None and "DOWN" in node.flags:
            raise Permanent(
                f"node {name} is {node.slurm_state}: it is unknown whether jobs still run there",
                fix="start slurmd on the machine again, or remove the member with force",
            )
        return await nodes.kept_drained(head, name, state.drain_reason(op.id, op.reason))

    check = await op.until(is_drained, within_s=settings.drain_wait_s, every_s=settings.drain_poll_s)
    if not check.ok:
        raise Permanent(check.reason, fix=f"squeue -w {name}")


async def _resume(op: Operation, member: Member, head: Machine, settings: Settings) -> None:
    name = await reports.node_name(op, member)

    async def takes_work() -> Check:
        return state.node_takes_work(name, await nodes.read(head, name))

    async def step() -> None:
        await nodes.resume(head, name)
        check = await op.until(takes_work, within_s=settings.join_s, every_s=POLL_S)
        if not check.ok:
            raise Permanent(check.reason, fix=f"scontrol show node {name}")

    await op.step("resume the node", step, member=member)
    await reports.ready_worker(op, member, head)


async def remove_member(op: Operation, member: Member, head: Machine, settings: Settings) -> None:
    """Remove a worker whose machine answers, after its jobs have ended."""
    name = await reports.node_name(op, member)
    if op.now(member).status != "removing":
        # After a crash the drain may be set already. Then something was changed, so it is too late to refuse.
        if op.now(member).status == op.status_before(member):
            await _require_removable(op, member, head, name, settings)
        if await nodes.read(head, name) is not None:
            await drain_member(op, member, head, settings)
        await _report_removing(op, member, await _idle_now(head, name))
    await op.step("delete the node", nodes.delete, head, name, member=member)
    await op.step("take Slurm off the machine", uninstall_member, op, member, settings, member=member)
    await reports.removed(op, member)


async def _require_removable(op: Operation, member: Member, head: Machine, name: str, settings: Settings) -> None:
    """Refuse to remove a worker whose machine does not answer, or which queued jobs need. Changes nothing."""
    if not await op.answers(member, patience_s=settings.reach_leaving_s):
        raise Refused(
            f"machine {member.node_name} ({member.address}) does not answer, so Slurm cannot be taken off it",
            fix="start the machine; if it will not come back, remove the member with force",
        )
    waiting = state.waiting_for(name, await nodes.jobs_of_cluster(head))
    if waiting:
        listed = ", ".join(f"{job.job_id} ({job.user})" for job in waiting[:20])
        ids = " ".join(str(job.job_id) for job in waiting[:20])
        raise Refused(
            f"{len(waiting)} queued {'job names' if len(waiting) == 1 else 'jobs name'} node {name} and could not run "
            f"without it: {listed}",
            fix=f"change or cancel them (scancel {ids}), or remove the member with force",
        )


async def _idle_now(head: Machine, name: str) -> Evidence:
    """Return evidence from a look at this moment. Raise Temporary if it does not show that the node is idle."""
    evidence = reports.evidence(await nodes.look(head, name), name)
    if evidence.state != "idle":
        raise Temporary(evidence.detail, after_s=2.0)
    return evidence


async def _remove_by_force(op: Operation, member: Member, head: Machine | None, settings: Settings) -> None:
    """Remove a worker even if its machine, its slurmd or slurmctld does not answer. Report what could not be done."""
    name = await reports.node_name(op, member)
    answers = await op.answers(member, patience_s=settings.reach_leaving_s)
    tried_at = datetime.datetime.now(datetime.UTC)
    not_done: list[str] = []
    if head is None:
        evidence = _not_observed("slurmctld does not answer", tried_at)
        not_done.append(f"slurmctld does not answer: node {name} is still in Slurm, and its jobs were not cancelled")
    else:
        await op.step("cancel its jobs", _cancel_jobs_on, op, head, name, settings, member=member)
        evidence = reports.evidence(await nodes.look(head, name), name)
    if not answers:
        evidence = Evidence(
            state="unreachable",
            source="ssh",
            observed_at=tried_at,
            detail=f"{member.node_name} ({member.address}) did not answer; {evidence.detail}",
        )
        not_done.append(undo.left_behind(op.instance.instance_id, [member.component_key]))
    await _report_removing(op, member, evidence)
    if head is not None:
        await op.step("delete the node in any state", nodes.delete_by_force, head, name, member=member)
    if answers:
        await op.step("take Slurm off the machine", uninstall_member, op, member, settings, member=member)
    left = {"left_behind": "; ".join(not_done)} if not_done else {}
    await reports.removed(op, member, "; ".join(not_done), node_name=name, **left)


async def _cancel_jobs_on(op: Operation, head: Machine, name: str, settings: Settings) -> None:
    """Cancel the jobs on the node, and wait a while for their end. A node whose slurmd is dead cannot end them."""
    if await nodes.read(head, name) is None:
        return
    await nodes.drain(head, name, state.drain_reason(op.id, op.reason))

    async def are_gone() -> Check:
        _, node, jobs = await nodes.look(head, name)
        if node is None or node.flags & {"DOWN", "NOT_RESPONDING"}:
            return Check(True)
        if jobs:
            await head.run("scancel", *(str(job.job_id) for job in jobs), check=False)
        return state.no_work(name, node, jobs)

    await op.until(are_gone, within_s=settings.cancel_jobs_s, every_s=1.0)


async def _require_machines(op: Operation, settings: Settings) -> None:
    """Refuse to decommission while a machine that has run jobs does not answer: it can be given up only by force."""

    async def missing(member: Member) -> str:
        answers = await op.answers(member, patience_s=settings.reach_leaving_s)
        return "" if answers or not member.was_ready else f"{member.node_name} ({member.address})"

    away = sorted({name for member in op.members if (name := await missing(member))})
    if away:
        raise Refused(
            f"{', '.join(away)}: the machine does not answer, so Slurm cannot be taken off it",
            fix="start the machine; if it will not come back, decommission with force",
        )


async def _check_for_jobs(op: Operation, controller: Member, settings: Settings) -> None:
    """Refuse to decommission a cluster with jobs. Without a member that was ever ready, there can be no jobs."""
    if not any(member.was_ready for member in op.members):
        return
    try:
        await op.on(controller, lambda head: _close(op, head, settings), patience_s=settings.reach_leaving_s)
    except (Temporary, MachineAway) as error:
        reason = f"it is unknown whether jobs run or wait: {error}"
        if not op.force:
            raise Refused(reason, fix="start slurmctld, or decommission with force") from error
        await op.say(f"continuing because force was requested, although {reason}")
    except Permanent as error:
        if isinstance(error, Refused) or not op.force:
            raise
        await op.say(f"continuing because force was requested, despite this error: {error}")


async def _close(op: Operation, head: Machine, settings: Settings) -> None:
    """Close the partition if there are no jobs, and check again: a job may have been submitted before it was closed."""
    partition = config.parse_inputs(op.instance.inputs).partition
    if not op.force and (jobs := await nodes.jobs_of_cluster(head)):
        if op.attempt > 1:
            await nodes.set_partition(head, partition, "up")  # an earlier attempt may have closed it
        _refuse_jobs(jobs)
    await nodes.set_partition(head, partition, "down")
    if op.force:
        check = await nodes.cancel_all_jobs(head, timeout_s=settings.cancel_jobs_s, progress=op.say)
        if not check.ok:
            raise Permanent(check.reason)
    elif jobs := await nodes.jobs_of_cluster(head):
        await nodes.set_partition(head, partition, "up")
        _refuse_jobs(jobs)


async def _reopen(op: Operation) -> None:
    """Open the partition again if no member was taken off its machine: the cluster continues."""
    if all(op.now(member).status in ("ready", "degraded", "drained") for member in roles.workers_of(op.members)):
        head = await reports.head(op)
        await nodes.set_partition(head, config.parse_inputs(op.instance.inputs).partition, "up")


def _refuse_jobs(jobs: tuple[state.Job, ...]) -> None:
    check = state.cluster_quiet(jobs)
    if not check.ok:
        raise Refused(check.reason, fix="let the jobs end, or decommission with force")


async def _decommission(op: Operation, member: Member, settings: Settings) -> None:
    if not await op.answers(member, patience_s=settings.reach_leaving_s):
        if member.was_ready and not op.force:
            raise Refused(
                f"machine {member.node_name} ({member.address}) does not answer", fix="decommission with force"
            )
        await give_up(op, member)
        return
    if op.now(member).status != "removing":
        evidence = await _last_look(op, member, settings)
        if evidence.state != "idle" and not op.force:
            raise Refused(evidence.detail, fix="let the jobs end, or decommission with force")
        await _report_removing(op, member, evidence)
    await op.step("take Slurm off the machine", uninstall_member, op, member, settings, member=member)
    await reports.removed(op, member)


async def give_up(op: Operation, member: Member) -> None:
    """Report a member as tombstoned whose machine does not answer, with what remains there."""
    left = undo.left_behind(op.instance.instance_id, [member.component_key])
    reason = f"{member.node_name} ({member.address}) did not answer; {left}"
    await op.report(member, status="tombstoned", reason=reason, detail={"left_behind": left})


async def _last_look(op: Operation, member: Member, settings: Settings) -> Evidence:
    """Return what Slurm shows of the member's work immediately before it is taken off its machine.

    The controller goes last, when its workers are gone, so its evidence is the queue of the cluster."""
    observed_at = datetime.datetime.now(datetime.UTC)
    if not member.was_ready:
        detail = "the member was never ready, so it ran no job"
        return Evidence(state="idle", source="the platform's record", observed_at=observed_at, detail=detail)
    controller = roles.controller_of(op.members)
    try:
        if member.component_key == roles.CONTROLLER:
            jobs = await op.on(controller, nodes.jobs_of_cluster, patience_s=settings.reach_leaving_s)
            return evidence_of_queue(jobs, observed_at)
        name = await reports.node_name(op, member)
        look = await op.on(controller, lambda head: nodes.look(head, name), patience_s=settings.reach_leaving_s)
        return reports.evidence(look, name)
    except (Temporary, MachineAway) as error:
        if not op.force:
            raise
        return _not_observed(str(error), observed_at)


def evidence_of_queue(jobs: tuple[state.Job, ...], observed_at: datetime.datetime) -> Evidence:
    check = state.cluster_quiet(jobs)
    return Evidence(
        state="idle" if check.ok else "busy",
        source="squeue",
        observed_at=observed_at,
        detail=check.reason or "no job runs or waits in the cluster",
        running_work=len(jobs),
    )


def _not_observed(reason: str, tried_at: datetime.datetime) -> Evidence:
    return Evidence(state="unknown", source="scontrol show nodes, squeue", observed_at=tried_at, detail=reason)


async def uninstall_member(op: Operation, member: Member, settings: Settings) -> None:
    async def take_off(machine: Machine) -> None:
        kept = await uninstall.remove_role(machine, op.instance.instance_id, member.component_key, op.say)
        if kept:
            await op.report(member, detail=op.now(member).adapter_detail | {"packages_kept": list(kept)})

    await op.on(member, take_off, patience_s=settings.reach_s)


async def _report_removing(op: Operation, member: Member, evidence: Evidence) -> None:
    """Report the member as removing, with the evidence, before anything is destroyed."""
    if op.now(member).status != "removing":
        await op.report(member, status="removing", reason=op.reason, evidence=evidence)


async def _head_if_it_answers(op: Operation, settings: Settings) -> Machine | None:
    """Return the controller machine; None if it or slurmctld does not answer for a while."""
    answering: list[Machine] = []

    async def answers() -> Check:
        machine = await op.machine(roles.controller_of(op.members))
        check = await slurm.controller_answers(machine)
        answering[:] = [machine] if check.ok else []
        return check

    await op.until(answers, within_s=settings.reach_leaving_s, every_s=2.0)
    return answering[0] if answering else None
