"""The handlers of reconfigure: change settings of a running cluster, undo it, and show what it would do."""

import datetime
from functools import partial

from gpuaas_sdk.controller import Member, Operation, Preview, members
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm import changes, previews, reports, roles
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import apply, config, hold, nodes, reporter


async def reconfigure(op: Operation, settings: Settings) -> None:
    before, after = config.parse_inputs(op.inputs_before), changes.checked(op.inputs_after)
    for change in changes.plan(before, after):
        await op.say(f"{change.subject}: {change.before or 'none'} -> {change.after or 'none'}")
    await _change(op, after, (before, after), settings, "change the settings", "remember the settings")


async def undo(op: Operation, settings: Settings) -> None:
    """Return to the inputs before. Jobs that were submitted to a partition that is removed again stop this."""
    before, after = config.parse_inputs(op.inputs_before), config.parse_inputs(op.inputs_after)
    if await op.on(roles.controller_of(op.members), hold.is_held, patience_s=settings.reach_s):
        return  # an upgrade is not finished, so the change was refused, or cancelled before that: it changed nothing
    await _change(op, before, (after, before), settings, "put the settings back", "remember the settings of before")


async def preview(op: Operation) -> Preview:
    before, after = config.parse_inputs(op.inputs_before), changes.checked(op.inputs_after)
    observed_at = datetime.datetime.now(datetime.UTC)
    jobs = changes.touched(after.scheduler, await nodes.jobs_of_cluster(await reports.head(op)))
    work = (*jobs.in_removed, *jobs.running_over, *jobs.queued_over)
    member_ids = await previews.members_by_node(op, op.members)
    shown = previews.preview(work, member_ids, observed_at, notes=changes.notes(jobs), irreversible=[])
    # No job is ended, so there is nothing to wait for and nothing to lose.
    return previews.without_loss(shown, changes.plan(before, after))


async def _change(
    op: Operation,
    inputs: config.Inputs,
    known: tuple[config.Inputs, config.Inputs],
    settings: Settings,
    change: str,
    remember: str,
) -> None:
    controller = roles.controller_of(op.members)
    write = partial(_write, op, controller, inputs, known, settings)
    await _step(op, controller, change, settings, write)
    await _step(op, controller, remember, settings, reporter.remember)
    await reports.publish_access(op, inputs)


async def _step(op: Operation, controller: Member, name: str, settings: Settings, work: members.Work) -> None:
    async def step() -> None:
        await members.on_machine(op, controller, name, work, patience_s=settings.reach_s)

    await op.step(name, step)


async def _write(
    op: Operation,
    controller: Member,
    inputs: config.Inputs,
    known: tuple[config.Inputs, config.Inputs],
    settings: Settings,
    machine: Machine,
) -> None:
    if not await reporter.is_remembered(machine):
        # An earlier release deployed the cluster. Without its files there would be no way back.
        await reporter.start(machine, roles.roles_on(op.members, controller.allocation_id))
    await apply.change(machine, op.instance.instance_id, inputs, known, settings, op.say)
