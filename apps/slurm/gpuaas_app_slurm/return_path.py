"""Return a cluster to the Slurm that it had before an upgrade. Used by the rollback and by the undo of an upgrade."""

import asyncio

import structlog
from gpuaas_sdk.checks import Check
from gpuaas_sdk.controller import Member
from gpuaas_sdk.installs import packages
from gpuaas_sdk.machine import Machine
from msgspec.structs import replace

from gpuaas_app_slurm import login, losses, reports, roles, usage, version_changes
from gpuaas_app_slurm.version_changes import Move
from gpuaas_app_slurm.workload import backup, hold, nodes, slurm, state
from gpuaas_app_slurm.workload.footprint import SLURM

STOPPED = ("slurmctld", "slurmdbd")
POLL_S = 0.5
_UNTIL_END = "waiting for the end of "

log = structlog.get_logger()


async def go_back(move: Move, head: Machine, before: backup.Queue) -> bool:
    """Put packages, state and database back, first on the controller machine. Queued jobs are held until the caller
    releases them. Return whether every node has returned."""
    op = move.op
    await op.step("note the queue of now", _note, move, head, before)
    await op.step("end jobs that started since", _end_later_jobs, move, head, before)
    controller = move.controller
    await op.step("report the last usage", _report_usage, move)
    await op.step("stop slurmctld and slurmdbd", _stop, head)
    await op.step("install packages of before", version_changes.install, move, controller, member=controller)
    await op.step("restore state and database", _restore, move, head)
    await op.step("start slurmdbd of before", version_changes.start_accounting, move, head)
    await op.step("start slurmctld of before", version_changes.start_scheduler, move, head)
    await op.step("close jobs that ended", _close_ended, head, before)
    await op.step("keep removed nodes and drains", _keep_nodes, head)
    returned = await op.each(
        roles.nodes_of(op.members), lambda member: version_changes.move_node(move, member, head), raises=False
    )
    await op.step("note that the backup was used", backup.note_return, head, op.id)
    return not returned.failed


async def start_again(move: Move, head: Machine) -> None:
    """Start what a backup that was not finished has stopped. Nothing else was changed."""
    if (await slurm.controller_answers(head)).ok:
        return
    await move.op.step("start slurmdbd again", version_changes.start_accounting, move, head)
    await move.op.step("start slurmctld again", version_changes.start_scheduler, move, head)


async def report_all(move: Move, head: Machine) -> None:
    """Report every member with the versions that it has now."""
    op = move.op
    known = {node.name: node for node in await nodes.read_all(head)}

    async def report(member: Member) -> None:
        if member.component_key == roles.LOGIN:
            await login.report_ready(op, member, move.inputs.users[0])
            return
        node = known.get(await reports.node_name(op, member))
        is_drained = node is not None and state.drained_by_app(node)
        await reports.worker(op, member, head, "drained" if is_drained else "ready")

    failed = [member for member in roles.nodes_of(op.members) if op.now(member).status == "failed"]
    rest = [member for member in roles.nodes_of(op.members) if member not in failed]
    await asyncio.gather(*(report(member) for member in rest))
    await reports.ready_controller(op, move.controller, move.inputs)
    await reports.publish_access(op, move.inputs)


async def _note(move: Move, head: Machine, before: backup.Queue) -> None:
    """Note the jobs and the drains of now. If an earlier return has restored the state and did not end, it has noted
    them. If slurmctld of the new version never answered, they are those of before."""
    answers, earlier = (await slurm.controller_answers(head)).ok, await backup.unfinished_return(head, before)
    installed = SLURM.software.version(await packages.software_versions(head, SLURM))
    if earlier is not None and (installed == before.package_version or not answers):
        now = replace(earlier, operation_id=move.op.id)
    elif answers:
        now = await backup.queue_now(head, move.op.id)
    else:
        now = replace(before, operation_id=move.op.id)
    await backup.note(head, backup.AFTER, now)


async def _end_later_jobs(move: Move, head: Machine, before: backup.Queue) -> None:
    """End the jobs that run now and do not run in the state of before, while slurmctld has them. That state lets
    those start again that were queued. A node on which such a job still runs refuses it, and Slurm drains the node."""
    now = await backup.read(head, backup.AFTER)
    later = losses.losses(before, now).to_end if now else ()
    if not later or not (await slurm.controller_answers(head)).ok:
        return
    await nodes.cancel(head, later)

    async def have_ended() -> Check:
        left = [job for job in state.running(await nodes.jobs_of_cluster(head)) if job.job_id in later]
        return Check(not left, f"{_UNTIL_END}{state.running_text(tuple(left))}")

    ended = await move.op.until(have_ended, within_s=move.settings.cancel_jobs_s, every_s=POLL_S)
    if not ended.ok:  # a dead machine cannot end its jobs, and must not keep the others from returning
        left = f"Slurm may drain nodes whose jobs did not end: {ended.reason.removeprefix(_UNTIL_END)}"
        log.warning("rollback.jobs_left", error=left)
        await move.op.say(left)


async def _report_usage(move: Move) -> None:
    await usage.report_before_loss(move.op, move.controller, move.settings)


async def _stop(head: Machine) -> None:
    for unit in STOPPED:
        await head.run("systemctl", "stop", unit)


async def _restore(move: Move, head: Machine) -> None:
    now = await backup.read(head, backup.AFTER)
    await backup.require_whole(head)
    await backup.restore(head)
    first = now.next_job_id if now else 0
    await hold.keep(head, move.op.instance.instance_id, move.inputs, first)


async def _close_ended(head: Machine, before: backup.Queue) -> None:
    """Cancel the jobs of the restored queue that have ended since: Slurm would wait for them, or run them again."""
    now = await backup.read(head, backup.AFTER)
    ended = losses.losses(before, now).to_cancel if now else ()
    if ended:
        await nodes.cancel(head, ended)


async def _keep_nodes(head: Machine) -> None:
    """Delete the nodes of the restored state that were removed since, and drain and resume the others as they were."""
    now = await backup.read(head, backup.AFTER)
    if now is None:
        return
    changes = losses.node_changes(now, await nodes.read_all(head))
    for name in changes.gone:
        await nodes.delete_by_force(head, name)
    for name, reason in changes.drained:
        await nodes.set_drain(head, name, reason)
    for name in changes.resumed:
        await nodes.set_resume(head, name)
