"""The handlers of upgrade: move a running cluster to the Slurm of another app version, undo it, and show what it does.

slurmdbd and slurmctld come first, then one worker that must run a job, then the other workers in groups, then login
machines. A worker that fails stops it: workers of later groups stay untouched.
Running jobs continue. Queued jobs are held from before the backup until all machines have the same version."""

import datetime

from gpuaas_sdk.controller import (
    Member,
    MembersFailed,
    Operation,
    Permanent,
    PlannedChange,
    Preview,
    Refused,
    package_sources,
)
from gpuaas_sdk.installs import package_changes, packages
from gpuaas_sdk.machine import Machine
from msgspec.structs import replace

from gpuaas_app_slurm import changes, previews, reports, return_path, roles, version_changes, worker_groups
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.version_changes import Move
from gpuaas_app_slurm.workload import (
    accounting,
    apply,
    backup,
    config,
    hold,
    moves,
    nodes,
    reporter,
    rest,
    slurm,
    state,
    versions,
)
from gpuaas_app_slurm.workload.footprint import SLURM

EFFECT = (
    "slurmdbd and slurmctld restart, then slurmd on one worker, which must run a job, then on the others in "
    "groups. A worker that fails stops the upgrade. Running jobs continue. Queued jobs wait, and commands of Slurm "
    "fail while slurmctld restarts."
)
WAY_BACK = (
    "A rollback is possible for {days:.0f} days. It returns to the state of before the upgrade: jobs submitted "
    "later are lost then. `gpuaas rollback INSTANCE --dry-run` names them."
)


async def upgrade(op: Operation, settings: Settings) -> None:
    before, after = config.parse_inputs(op.instance.inputs), changes.checked(op.inputs_after)
    move = Move(op, settings, after)
    head = await op.machine(move.controller)
    await _unfinished(op, head)
    if not await _is_begun(op, head) and not await _needs_work(move, before, head):
        await return_path.report_all(move, head)
        return
    await _move_controller(move, before, head)
    await _move_nodes(move, head)
    await op.step("let queued jobs start", hold.release, head, op.instance.instance_id, after, settings, op.say)
    await op.step("clean up", version_changes.clean_up, move)
    await reports.ready_controller(op, move.controller, after)
    await reports.publish_access(op, after)


async def undo(op: Operation, settings: Settings) -> None:
    """Return to the packages, the state and the database of before. This fails as soon as queued jobs may have started
    with the new version: a rollback names what is lost then."""
    inputs = config.parse_inputs(op.instance.inputs)
    head = await op.machine(roles.controller_of(op.members))
    await moves.refuse_begun(head)
    queue = await backup.read(head)
    move, has_returned = Move(op, settings, inputs, name=" of before"), True
    if queue is None or queue.operation_id != op.id or not await backup.is_complete(head):
        await return_path.start_again(move, head)
    else:
        move = Move(op, settings, inputs, queue.package_version, move.name)
        await _refuse_after_release(op, head, queue)
        await backup.require_whole(head)
        has_returned = await return_path.go_back(move, head, queue)
    await op.step("let queued jobs start again", hold.release, head, op.instance.instance_id, inputs, settings, op.say)
    await op.step("clean up again", version_changes.clean_up, move)
    if has_returned:
        await op.step("delete the backup", backup.forget, head, op.id)
    await return_path.report_all(move, head)


async def preview(op: Operation, settings: Settings) -> Preview:
    inputs = changes.checked(op.inputs_after)
    observed_at = datetime.datetime.now(datetime.UTC)
    head = await reports.head(op)
    jobs = await nodes.jobs_of_cluster(head)
    running = tuple(job for job in jobs if "PENDING" not in job.state)
    installed = SLURM.software.version(await packages.software_versions(head, SLURM))
    has_bundle = await package_sources.has_bundle(op, SLURM, inputs.packages)
    source = (
        f"the bundle of app version {op.to_version}" if has_bundle else "the newest of the machines' package sources"
    )
    notes = [WAY_BACK.format(days=settings.rollback_window_s / 86400)]
    if len(jobs) > len(running):
        notes.append(f"{len(jobs) - len(running)} queued jobs wait until the upgrade has ended.")
    member_ids = await previews.members_by_node(op, op.members)
    shown = previews.preview(running, member_ids, observed_at, notes=notes, irreversible=[])
    return previews.without_loss(shown, [PlannedChange(subject="Slurm", before=installed, after=source, effect=EFFECT)])


async def _is_begun(op: Operation, head: Machine) -> bool:
    """Return whether this operation has changed the cluster already: a later attempt continues and refuses nothing."""
    queue = await backup.read(head)
    return await hold.is_held(head) or (queue is not None and queue.operation_id == op.id)


async def _unfinished(op: Operation, head: Machine) -> backup.Queue | None:
    """Return what an earlier upgrade noted that has changed the cluster and did not end. Refuse another version."""
    queue = await backup.read(head)
    if queue is None or queue.operation_id == op.id or not await backup.is_complete(head):
        return None
    if await backup.is_returned(head):
        return None
    installed = SLURM.software.version(await packages.software_versions(head, SLURM))
    if queue.from_version != op.from_version or queue.package_version == installed:
        return None
    if queue.to_version != op.to_version:
        raise Refused(
            f"the upgrade {queue.operation_id} to {queue.to_version} has not ended, and queued jobs wait for it",
            fix=f"gpuaas upgrade {op.instance.name} --version {queue.to_version}, "
            f"or return: gpuaas op compensate {queue.operation_id} --reason TEXT",
        )
    return queue


async def _needs_work(move: Move, before: config.Inputs, head: Machine) -> bool:
    """Check everything that can be checked while nothing has changed. Return whether packages or settings change."""
    op, planned = move.op, list[package_changes.Change]()

    async def check() -> None:
        planned[:] = await _check(move, before, head)

    await op.step("check machines and packages", check)
    if not planned:  # An earlier attempt has checked, and then changed nothing.
        await check()
    return any(change.specs for change in planned) or move.inputs.scheduler != before.scheduler


async def require_upgradable(op: Operation, after: config.Inputs, head: Machine) -> None:
    """Refuse an upgrade that cannot work now, as far as the controller machine shows it. Changes nothing."""
    before = config.parse_inputs(op.instance.inputs)
    await _unfinished(op, head)
    version_changes.refuse_never_joined(op)
    if after.packages == "present":
        raise Refused(
            "with packages=present the app installs nothing, so it cannot upgrade Slurm",
            fix=f"gpuaas upgrade {op.instance.name} --version {op.to_version} --set packages=bundle",
        )
    for answer in (await slurm.controller_answers(head), await accounting.ready(head, before.cluster_name)):
        if not answer.ok:
            raise Refused(answer.reason, fix="gpuaas member repair makes Slurm run again; then request it again")


async def _check(move: Move, before: config.Inputs, head: Machine) -> list[package_changes.Change]:
    op = move.op
    await require_upgradable(op, move.inputs, head)
    if not await reporter.is_remembered(head):
        # An earlier release deployed the cluster. Without its files there would be no way back.
        await reporter.start(head, roles.roles_on(op.members, move.controller.allocation_id))
    for node in await nodes.read_all(head):
        state.refuse_reboot(node.name, node)
    await apply.unedited(head, op.instance.instance_id, (before,))
    await apply.refuse_job_losses(head, move.inputs.scheduler)
    planned = await version_changes.plan(move)
    if before.rest_api:
        rest.refuse_without_packages(planned[move.controller.node_name].specs)
    package_changes.refuse_mixed(SLURM, planned)
    for change in planned.values():
        versions.refuse_jump(change)
    return list(planned.values())


async def _move_controller(move: Move, before: config.Inputs, head: Machine) -> None:
    op, instance_id = move.op, move.op.instance.instance_id
    await op.step("hold queued jobs", hold.hold, head, instance_id, before, move.settings, op.say)
    await op.step("note the queue", _note, op, head)
    await op.step("back up state and database", backup.save, head)
    await op.step("install packages", version_changes.install, move, move.controller, member=move.controller)
    await op.step("write the configuration", hold.keep, head, instance_id, before)
    await op.step("start slurmdbd", version_changes.start_accounting, move, head)
    await op.step("start slurmctld", version_changes.start_scheduler, move, head)
    await reports.ready_controller(op, move.controller, move.inputs)


async def _note(op: Operation, head: Machine) -> None:
    if (unfinished := await _unfinished(op, head)) is not None:
        # The backup of the earlier request is the only one from before any change, so this one continues with it.
        await backup.note(head, backup.BEFORE, replace(unfinished, operation_id=op.id), keep=True)
        return
    queue = await backup.queue_now(head, op.id)
    version = SLURM.software.version(await packages.software_versions(head, SLURM))
    noted = replace(queue, package_version=version, from_version=op.from_version, to_version=op.to_version)
    await backup.note(head, backup.BEFORE, noted)


async def _move_nodes(move: Move, head: Machine) -> None:
    op = move.op
    workers = roles.workers_of(op.to_do)
    canary = await _canary(op, workers, head)
    if canary is not None:
        await _move_canary(move, canary, head)
    await _move_others(move, tuple(member for member in workers if member is not canary), head)
    await op.each(roles.logins_of(op.to_do), lambda member: version_changes.move_node(move, member, head), raises=False)


async def _canary(op: Operation, workers: tuple[Member, ...], head: Machine) -> Member | None:
    """Return the worker that must run a job before the others are touched: an idle one if there is one. If people have
    drained all, one of these: it runs no job, but must register with the new version. None if a worker already did."""
    if not workers or len(workers) < len(roles.workers_of(op.members)):
        return None
    known = {node.name: node for node in await nodes.read_all(head)}
    names = {member.member_id: await reports.node_name(op, member) for member in workers}

    def node_of(member: Member) -> state.Node | None:
        return known.get(names[member.member_id])

    able = [member for member in workers if (node := node_of(member)) is not None and "DRAIN" not in node.flags]
    idle = [member for member in able if (node := node_of(member)) is not None and "IDLE" in node.flags]
    drained = [member for member in workers if op.status_before(member) in ("drained", "draining")]
    return next(iter([*idle, *able, *drained]), None)


async def _move_canary(move: Move, canary: Member, head: Machine) -> None:
    try:
        await move.op.each((canary,), lambda member: version_changes.move_node(move, member, head))
    except MembersFailed as error:
        reason = "the canary failed, so no other worker was changed, and queued jobs wait"
        fix = f"repair {canary.node_name}, then: gpuaas op retry {move.op.id} --reason TEXT"
        back = f"or return to the old version: gpuaas op compensate {move.op.id} --reason TEXT"
        raise Permanent(f"{reason}: {error}", fix=f"{fix}; {back}") from error


async def _move_others(move: Move, workers: tuple[Member, ...], head: Machine) -> None:
    """Move the workers in groups. If one fails, the rest of its group is finished, and no other group begins."""
    op, old = move.op, [member.node_name for member in workers]
    for group in worker_groups.groups(workers):
        del old[: len(group)]
        try:
            await op.each(group, lambda member: version_changes.move_node(move, member, head))
        except MembersFailed as error:
            failed = [member.node_name for member, _ in error.failures]
            others = {member.node_name for member in roles.workers_of(op.members)} - {*failed, *old}
            raise worker_groups.stopped(op.id, op.instance.name, error, failed, tuple(others), old) from error


async def _refuse_after_release(op: Operation, head: Machine, queue: backup.Queue) -> None:
    installed = SLURM.software.version(await packages.software_versions(head, SLURM))
    if installed != queue.package_version and not await hold.is_held(head):
        raise Permanent(
            f"jobs may already run with Slurm {installed}, so the upgrade can no longer be undone without losses",
            fix=f"gpuaas op retry {op.id} --reason TEXT; then: gpuaas rollback {op.instance.name} --dry-run",
        )
