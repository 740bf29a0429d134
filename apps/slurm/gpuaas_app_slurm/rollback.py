"""The handlers of rollback: return to the Slurm of before the last upgrade, and show what that loses."""

import datetime

import structlog
from gpuaas_sdk.controller import Operation, PlannedChange, Preview, Refused
from gpuaas_sdk.installs import package_changes, packages
from gpuaas_sdk.machine import Machine
from msgspec.structs import replace

from gpuaas_app_slurm import losses, previews, reports, return_path, roles, version_changes
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.version_changes import Move
from gpuaas_app_slurm.workload import apply, backup, config, hold, moves, nodes, slurm
from gpuaas_app_slurm.workload.footprint import SLURM

log = structlog.get_logger()

EFFECT = "slurmdbd, slurmctld and every slurmd restart. Jobs that ran before the upgrade and still run continue."


async def rollback(op: Operation, settings: Settings) -> None:
    present, inputs = config.parse_inputs(op.instance.inputs), config.parse_inputs(op.inputs_after)
    head = await op.machine(roles.controller_of(op.members))
    await moves.refuse_begun(head)
    before = await _backup(op, head)
    move = Move(op, settings, inputs, before.package_version)
    if not await _is_begun(op, head):
        _refuse_late(before, settings)
        await op.step("check machines and packages", _check, move, present, head, before)
    await op.step("hold queued jobs", _hold, op, head, present, settings)
    await return_path.go_back(move, head, before)
    await op.step("let queued jobs start", hold.release, head, op.instance.instance_id, inputs, settings, op.say)
    await op.step("clean up", version_changes.clean_up, move)
    await reports.ready_controller(op, move.controller, inputs)
    await reports.publish_access(op, inputs)


async def preview(op: Operation, settings: Settings) -> Preview:
    observed_at = datetime.datetime.now(datetime.UTC)
    head = await reports.head(op)
    before = await require_backup(op, head, settings)
    now = await backup.queue_now(head, op.id)
    lost = losses.losses(before, now)
    ended = {*lost.killed, *lost.repeated}
    work = tuple(job for job in await nodes.jobs_of_cluster(head) if job.job_id in ended)
    installed = SLURM.software.version(await packages.software_versions(head, SLURM))
    change = PlannedChange(subject="Slurm", before=installed, after=before.package_version, effect=EFFECT)
    member_ids = await previews.members_by_node(op, op.members)
    irreversible = losses.sentences(lost, before, now)
    shown = previews.preview(work, member_ids, observed_at, notes=[], irreversible=irreversible)
    return replace(shown, done_by=None, changes=[change])


async def require_backup(op: Operation, head: Machine, settings: Settings) -> backup.Queue:
    """Return what the upgrade noted. Refuse without a backup of it, or after the window."""
    before = await _backup(op, head)
    _refuse_late(before, settings)
    return before


async def _backup(op: Operation, head: Machine) -> backup.Queue:
    before = await backup.read(head)
    version = op.from_version or op.instance.app_version
    if before is None or before.to_version != version or not await backup.is_complete(head):
        raise Refused(
            f"machine {head.hostname} has no backup from before the upgrade to {version}, so Slurm cannot return",
            fix="upgrade to an app version with the wanted Slurm, or deploy a new instance",
        )
    return before


def _refuse_late(before: backup.Queue, settings: Settings) -> None:
    """Refuse a rollback after the window. One that has begun is finished: a cluster between two versions is worse."""
    if not losses.is_in_window(before, datetime.datetime.now(datetime.UTC), settings.rollback_window_s):
        days = settings.rollback_window_s / 86400
        raise Refused(
            f"the upgrade was on {before.noted_at:%Y-%m-%d}; a rollback is possible for {days:.0f} days",
            fix="deploy a new instance of the older version beside this one",
        )


async def _is_begun(op: Operation, head: Machine) -> bool:
    now = await backup.read(head, backup.AFTER)
    return await hold.is_held(head) or (now is not None and now.operation_id == op.id)


async def _hold(op: Operation, head: Machine, present: config.Inputs, settings: Settings) -> None:
    """Hold queued jobs. If a rollback before this one held them, a slurmctld that does not answer needs no command: it
    starts no job, and reads the hold when it starts."""
    if await hold.is_held(head) and not (await slurm.controller_answers(head)).ok:
        return
    await hold.hold(head, op.instance.instance_id, present, settings, op.say)


async def _check(move: Move, present: config.Inputs, head: Machine, before: backup.Queue) -> None:
    """Refuse what cannot work while nothing has changed, and show what is lost."""
    await reports.head(move.op)
    await backup.require_whole(head)
    now = await backup.queue_now(head, move.op.id)
    lost = losses.sentences(losses.losses(before, now), before, now)
    log.info("rollback.losses", sentences=lost)  # The message of a step ends with it; the log of the operation stays.
    await move.op.say(" ".join(lost))
    version_changes.refuse_never_joined(move.op)
    await apply.unedited(head, move.op.instance.instance_id, (present,))
    package_changes.refuse_mixed(SLURM, await version_changes.plan(move))
