"""The handlers of drain, resume, remove and decommission. A worker is removed only if Slurm reports no job on it.

With force, a remove and a decommission continue without what does not answer, and report what they did not do."""

import datetime
from collections.abc import Collection
from functools import partial
from typing import Literal, NamedTuple

from gpuaas_sdk.checks import Check
from gpuaas_sdk.controller import (
    Evidence,
    MachineAway,
    Member,
    Operation,
    Permanent,
    Refused,
    Temporary,
    members,
)
from gpuaas_sdk.installs import undo
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm import reports, roles, unfinished_moves, usage
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import config, hold, home, nodes, slurm, state
from gpuaas_app_slurm.workload.footprint import SLURM
from gpuaas_app_slurm.workload.removal_acts import SlurmActs

POLL_S = 0.5
FINISH = "finish: "
"""Begins the name of a step that finishes a removal after a cancel that came too late. The undo and the handler belong
to the same operation, so their steps have other names."""


async def drain(op: Operation, settings: Settings) -> None:
    head = await reports.head(op)
    await op.each(op.to_do, lambda member: drain_member(op, member, head, settings), raises=False)
    await reports.publish_access(op)


async def resume(op: Operation, settings: Settings) -> None:
    head = await reports.head(op)
    await op.each(op.to_do, lambda member: _resume(op, member, head, settings), raises=False)
    await reports.publish_access(op)


async def remove(op: Operation, settings: Settings) -> None:
    untouched = [member for member in op.to_do if op.now(member).status == "requested"]
    await op.each(untouched, lambda member: members.leave_untouched(op, member))
    await _remove_all(op, [member for member in op.to_do if member not in untouched], settings)


async def finish_removals(op: Operation, begun: Collection[Member], settings: Settings) -> None:
    """Finish the removals that had begun when the operation was cancelled: it is too late to return."""
    await _remove_all(op, begun, settings, FINISH)


async def _remove_all(op: Operation, leaving: Collection[Member], settings: Settings, prefix: str = "") -> None:
    if op.force:
        head = await head_if_it_answers(op, settings)
        await op.each(leaving, lambda member: _remove_by_force(op, member, head, settings, prefix), raises=False)
        if head is None:
            return
    else:
        answering = await reports.head(op)
        await op.each(leaving, lambda member: remove_member(op, member, answering, settings, prefix), raises=False)
    await reports.publish_access(op)


async def decommission(op: Operation, settings: Settings) -> None:
    nodes_left = roles.nodes_of(op.members)
    controllers = tuple(member for member in op.members if member.component_key == roles.CONTROLLER)
    if not op.force:
        await op.step("reach the machines", require_machines, op, settings)
    for controller in controllers:
        await op.step("check for a move that did not end", unfinished_moves.end, op, controller, settings)
        await op.step("check for jobs", _check_for_jobs, op, controller, settings)
        await op.step("report the last usage", _report_last_usage, op, controller, settings)
    results = await op.each(nodes_left, lambda member: _decommission(op, member, settings), raises=False)
    if results.failed:
        if not results.ok:
            await _reopen(op)
        return
    await op.each(controllers, lambda member: _decommission(op, member, settings))


async def drain_member(op: Operation, member: Member, head: Machine, settings: Settings) -> None:
    name = await reports.node_name(op, member)
    await require_node(head, name)
    if op.now(member).status in ("ready", "degraded"):
        await op.report(member, status="draining", reason=op.reason)
    await op.step("drain the node", _set_drain, op, head, name, member=member)
    before = await nodes.read(head, name)
    if op.kind == "drain" and before is not None and state.drained_by_others(before):
        await op.step("keep the drain of another user", op.say, state.kept_text(before), member=member)
    await op.step("wait for its jobs", _wait_drained, op, member, head, name, settings, member=member)
    node = await nodes.read(head, name)
    is_foreign = node is not None and state.drained_by_others(node)
    detail = op.now(member).adapter_detail | {
        "slurm_state": node.slurm_state if node else "absent",
        "reason": node.reason if node else "",
        "drained_by": "ExternallyDrained" if is_foreign else op.id,
    }
    if op.now(member).status in ("draining", "drained"):
        reason = state.kept_text(node) if node is not None and is_foreign else detail["reason"]
        await op.report(member, status="drained", reason=reason, detail=detail)


async def require_node(head: Machine, name: str) -> None:
    """Refuse to drain what Slurm does not have, or is about to restart: it lifts each drain after that. Changes
    nothing."""
    node = await nodes.read(head, name)
    if node is None:
        raise Refused(f"Slurm has no node {name}", fix="sinfo -N")
    state.refuse_reboot(name, node)


async def _set_drain(op: Operation, head: Machine, name: str) -> None:
    await nodes.drain(head, name, state.drain_reason(op.id, op.reason))


async def _wait_drained(op: Operation, member: Member, head: Machine, name: str, settings: Settings) -> None:
    silent_since: float | None = None

    async def is_present() -> Check:
        """Check that the machine answers after Slurm has shown no job there. Slurm notices a silent machine only after
        a minute, so until then its record may be older than the silence."""
        nonlocal silent_since
        if await op.answers(member, patience_s=settings.reach_leaving_s):
            silent_since = None
            return Check(True)
        silent_since = settings.clock() if silent_since is None else silent_since
        if settings.clock() - silent_since > settings.slurm_notices_s and await _responds(head, name):
            return Check(True)
        return Check(False, f"machine {members.name(member)} does not answer, so it is unknown whether jobs run there")

    async def is_drained() -> Check:
        node = await nodes.read(head, name)
        if node is not None and "DOWN" in node.flags:
            raise Permanent(
                f"node {name} is {node.slurm_state}: it is unknown whether jobs still run there",
                fix="start slurmd on the machine again, or remove the member with force",
            )
        drained = await nodes.kept_drained(head, name, state.drain_reason(op.id, op.reason))
        if drained.ok:
            drained = await _no_commands(member, head, name)
        return await is_present() if drained.ok else drained

    check = await op.until(is_drained, within_s=settings.drain_wait_s, every_s=settings.drain_poll_s)
    if not check.ok:
        raise Permanent(check.reason, fix="squeue" if member.component_key == roles.LOGIN else f"squeue -w {name}")


async def _responds(head: Machine, name: str) -> bool:
    """Return whether Slurm shows the node as responding. While an upgrade holds the queue, slurmctld notices a silent
    machine only after an hour, so this shows nothing then."""
    node = await nodes.read(head, name)
    is_silent = node is None or bool(node.flags & {"NOT_RESPONDING", "DOWN", "UNKNOWN"})
    return not is_silent and not await hold.is_held(head)


async def _no_commands(member: Member, head: Machine, name: str) -> Check:
    """Check that people wait for no job on a login machine: srun and salloc end with it, and their jobs with them."""
    if member.component_key != roles.LOGIN:
        return Check(True)
    return state.no_commands(name, await nodes.jobs_of_cluster(head))


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


async def remove_member(op: Operation, member: Member, head: Machine, settings: Settings, prefix: str = "") -> None:
    """Remove a worker whose machine answers, after its jobs have ended."""
    # After a crash the drain may be set already. Then something was changed, so it is too late to refuse.
    if op.now(member).status == op.status_before(member) != "removing":
        await require_removable(op, member, head, settings)
    await leave(op, member, head, settings, prefix)
    await reports.removed(op, member)


async def leave(op: Operation, member: Member, head: Machine, settings: Settings, prefix: str = "") -> None:
    """Take a worker off its machine, which answers, after its jobs have ended."""
    name = await reports.node_name(op, member)
    if op.now(member).status != "removing":
        if await nodes.read(head, name) is not None:
            await drain_member(op, member, head, settings)
        await members.begin_removal(op, member, await _idle_now(head, name))
    await op.step(f"{prefix}delete the node", delete_node, op, member, head, name, settings, member=member)
    await op.step(f"{prefix}take Slurm off the machine", uninstall_member, op, member, settings, member=member)


async def delete_node(op: Operation, member: Member, head: Machine, name: str, settings: Settings) -> None:
    """Delete the node of a member whose machine answers."""
    reason = state.drain_reason(op.id, op.reason)
    await op.on(member, lambda machine: slurm.leave(machine, head, name, reason), patience_s=settings.reach_s)


async def require_removable(op: Operation, member: Member, head: Machine, settings: Settings) -> None:
    """Refuse to remove a node whose machine does not answer, which queued jobs need, or on which commands wait for
    jobs. Changes nothing."""
    name = await reports.node_name(op, member)
    if not await op.answers(member, patience_s=settings.reach_leaving_s):
        raise Refused(
            f"machine {member.node_name} ({member.address}) does not answer, so Slurm cannot be taken off it",
            fix=f"start the machine; if it will not come back, {op.kind} the member with force",
        )
    waiting = state.waiting_for(name, await nodes.jobs_of_cluster(head))
    if waiting:
        listed = ", ".join(f"{job.job_id} ({job.user})" for job in waiting[:20])
        ids = " ".join(str(job.job_id) for job in waiting[:20])
        raise Refused(
            f"{len(waiting)} queued {'job names' if len(waiting) == 1 else 'jobs name'} node {name} and could not run "
            f"without it: {listed}",
            fix=f"change or cancel them (scancel {ids}), or {op.kind} the member with force",
        )
    state.refuse_reboot(name, await nodes.read(head, name))
    unused = await _no_commands(member, head, name)
    if not unused.ok:
        raise Refused(
            f"{unused.reason}. These commands of srun and salloc would end with the login machine, and their jobs with "
            "them",
            fix=f"let them end, or {op.kind} the member with force, which cancels these jobs",
        )


async def _idle_now(head: Machine, name: str) -> Evidence:
    """Return evidence from a look at this moment. Raise Temporary if it does not show that the node is idle."""
    evidence = reports.evidence(await nodes.look(head, name), name)
    if evidence.state != "idle":
        raise Temporary(evidence.detail, after_s=2.0)
    return evidence


async def _remove_by_force(
    op: Operation, member: Member, head: Machine | None, settings: Settings, prefix: str
) -> None:
    """Remove a worker even if its machine, its slurmd or slurmctld does not answer. Report what could not be done. A
    member whose machine was silent is `tombstoned`, because Slurm is still there."""
    name = await reports.node_name(op, member)
    not_done, is_silent = await leave_by_force(op, member, head, settings, prefix)
    more = {"interrupted_jobs": jobs} if (jobs := op.now(member).adapter_detail.get("interrupted_jobs")) else {}
    left = {"left_behind": not_done} if not_done else {}
    status: Literal["removed", "tombstoned"] = "tombstoned" if is_silent else "removed"
    await reports.removed(op, member, not_done, status=status, node_name=name, **left, **more)


class Departure(NamedTuple):
    """How a worker left its machine by force."""

    not_done: str
    """What could not be done; empty if all was done."""
    is_silent: bool
    """Whether its machine did not answer, so that Slurm is still there."""


async def leave_by_force(
    op: Operation, member: Member, head: Machine | None, settings: Settings, prefix: str = ""
) -> Departure:
    """Take a worker off its machine in any state of the machine, of slurmd and of slurmctld."""
    name = await reports.node_name(op, member)
    answers = await op.answers(member, patience_s=settings.reach_leaving_s)
    tried_at = datetime.datetime.now(datetime.UTC)
    not_done: list[str] = []
    if head is None:
        evidence = _not_observed("slurmctld does not answer", tried_at)
        not_done.append(f"slurmctld does not answer: node {name} is still in Slurm, and its jobs were not cancelled")
    else:
        if answers or member.component_key == roles.LOGIN:
            cancel = partial(_cancel_jobs_on, op, member, head, name, settings, answers=answers)
            await op.step(f"{prefix}cancel its jobs", cancel, member=member)
        evidence = reports.evidence(await nodes.look(head, name), name)
    if not answers:
        evidence = Evidence(
            state="unreachable",
            source="ssh",
            observed_at=tried_at,
            detail=f"{member.node_name} ({member.address}) did not answer; {evidence.detail}",
        )
        not_done.append(undo.left_behind(SLURM, op.instance.instance_id, [member.component_key]))
    await members.begin_removal(op, member, evidence)
    if head is not None:
        end = partial(_end_node, op, member, head, name, settings, answers=answers)
        await op.step(f"{prefix}take the node out of service", end, member=member)
    if answers:
        await op.step(f"{prefix}take Slurm off the machine", uninstall_member, op, member, settings, member=member)
    else:
        why = f"{members.name(member)} did not answer; {'; '.join(not_done)}"
        await op.report(member, left=[members.left_on(member, SLURM, why)])
    return Departure("; ".join(not_done), not answers)


async def _end_node(
    op: Operation, member: Member, head: Machine, name: str, settings: Settings, *, answers: bool
) -> None:
    """Delete the node; if its machine did not answer, keep it in Slurm without jobs, because the machine may return.

    If jobs were left on it, Slurm requeues those that can be, and ends the others: record which."""
    jobs = (await nodes.look(head, name)).jobs
    if answers:
        await op.on(member, lambda machine: slurm.leave_by_force(machine, head, name), patience_s=settings.reach_s)
    else:
        await nodes.give_up(head, name, op.id)
    if jobs:
        text = state.interrupted(jobs, await nodes.jobs_of_cluster(head))
        await op.say(text)
        await op.report(member, detail=op.now(member).adapter_detail | {"interrupted_jobs": text})


async def _cancel_jobs_on(
    op: Operation, member: Member, head: Machine, name: str, settings: Settings, *, answers: bool
) -> None:
    """Cancel the jobs on the node, and wait a while for their end. A node whose slurmd is dead cannot end them.

    Jobs of commands on a login machine run elsewhere. Without their commands they would hold their nodes."""
    if member.component_key == roles.LOGIN:
        started = state.started_from(name, await nodes.jobs_of_cluster(head))
        await nodes.cancel(head, tuple(job.job_id for job in started))
    if not answers or await nodes.read(head, name) is None:
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


async def require_machines(op: Operation, settings: Settings) -> None:
    """Refuse to decommission while a machine that has run jobs does not answer: it can be given up only by force."""
    used = [member for member in op.members if member.was_ready]
    fix = "start the machine; if it will not come back, decommission with force"
    consequence = "Slurm cannot be taken off it"
    await members.require_answers(op, used, fix, consequence=consequence, patience_s=settings.reach_leaving_s)


async def _check_for_jobs(op: Operation, controller: Member, settings: Settings) -> None:
    """Refuse to decommission a cluster with jobs. Without a member that was ever ready, there can be no jobs."""
    if not any(member.was_ready for member in op.members):
        return
    try:
        await op.on(controller, lambda head: _close(op, head, settings), patience_s=settings.reach_leaving_s)
    except (Temporary, MachineAway) as error:
        fix = "start slurmctld, or decommission with force"
        await members.only_by_force(op, f"it is unknown whether jobs run or wait: {error}", fix)
    except Permanent as error:
        if isinstance(error, Refused) or not op.force:
            raise
        await op.say(f"continuing because force was requested, despite this error: {error}")


async def _report_last_usage(op: Operation, controller: Member, settings: Settings) -> None:
    """Report what jobs used: the accounting of the cluster is deleted with it."""
    if not any(member.was_ready for member in op.members):
        return
    check = await usage.report_last(op, controller, settings)
    if check.ok:
        return
    if not op.force:
        await reports.open_partitions(op, await reports.head(op))
    fix = "start slurmdbd, or decommission with force, which loses this usage"
    await members.only_by_force(op, f"the usage of jobs may be missing: {check.reason}", fix)


async def _close(op: Operation, head: Machine, settings: Settings) -> None:
    """Close the partitions if there are no jobs, and check again: a job may have been submitted before that.

    With force, cancel all jobs. The partitions then stay closed in every case, because the decommission continues."""
    if op.force:
        await reports.set_partitions(op, head, "down")
        check = await nodes.cancel_all_jobs(head, timeout_s=settings.cancel_jobs_s, progress=op.say)
        if not check.ok:
            raise Permanent(check.reason)
        return
    async with reports.opened_after_failure(op, head):
        refuse_jobs(op, await nodes.jobs_of_cluster(head))
        await reports.set_partitions(op, head, "down")
        refuse_jobs(op, await nodes.jobs_of_cluster(head))


async def _reopen(op: Operation) -> None:
    """Open the partitions again if no member was taken off its machine: the cluster continues."""
    if all(op.now(member).status in ("ready", "degraded", "drained") for member in roles.workers_of(op.members)):
        await reports.open_partitions(op, await reports.head(op))


def refuse_jobs(op: Operation, jobs: tuple[state.Job, ...]) -> None:
    """Refuse to decommission a cluster with jobs."""
    check = state.cluster_quiet(jobs)
    if not check.ok:
        raise Refused(check.reason, fix=_let_them_end(op))


def _let_them_end(op: Operation) -> str:
    by_force = f"gpuaas decommission {op.instance.name} --force --reason 'cancel jobs'"
    return f"let the jobs end, or cancel all of them: {by_force}"


async def _decommission(op: Operation, member: Member, settings: Settings) -> None:
    if not await op.answers(member, patience_s=settings.reach_leaving_s):
        if member.was_ready and not op.force:
            raise Refused(
                f"machine {member.node_name} ({member.address}) does not answer", fix="decommission with force"
            )
        await members.give_up(op, member, SLURM)
        return
    if op.now(member).status != "removing":
        evidence = await _last_look(op, member, settings)
        if evidence.state != "idle" and not op.force:
            raise Refused(evidence.detail, fix=_let_them_end(op))
        await members.begin_removal(op, member, evidence)
    await op.step("take Slurm off the machine", uninstall_member, op, member, settings, member=member)
    await reports.removed(op, member)


async def _last_look(op: Operation, member: Member, settings: Settings) -> Evidence:
    """Return what Slurm shows of the member's work immediately before it is taken off its machine.

    The controller goes last, when its workers are gone, so its evidence is the queue of the cluster."""
    observed_at = datetime.datetime.now(datetime.UTC)
    if not member.was_ready:
        return members.never_ready()
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
        await members.take_off(op, member, machine, SLURM, SlurmActs(await _homes(op, member, machine)))

    await op.on(member, take_off, patience_s=settings.reach_s)


async def _homes(op: Operation, member: Member, machine: Machine) -> str:
    """Return where homes are. It is reported before the mount is removed, so that a retry still has it."""
    detail = op.now(member).adapter_detail
    if "home" not in detail:
        homes = await home.in_use(machine, config.parse_inputs(op.instance.inputs).home, machine.address)
        detail = detail | {"home": homes.shown}
        await op.report(member, detail=detail)
    return str(detail["home"])


async def head_if_it_answers(op: Operation, settings: Settings) -> Machine | None:
    """Return the controller machine; None if it or slurmctld does not answer for a while."""
    answering: list[Machine] = []

    async def answers() -> Check:
        machine = await op.machine(roles.controller_of(op.members))
        check = await slurm.controller_answers(machine)
        answering[:] = [machine] if check.ok else []
        return check

    await op.until(answers, within_s=settings.reach_leaving_s, every_s=2.0)
    return answering[0] if answering else None
