"""What would refuse an operation as the cluster is now, for its preview: the first checks of its handler, those that
change nothing. With force, those that force lifts are left out."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable

import msgspec
from gpuaas_sdk.controller import Operation, Preview, members

from gpuaas_app_slurm import (
    changes,
    move_checks,
    reports,
    roles,
    rollback,
    stop_start,
    take_down,
    upgrade,
    version_changes,
)
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import apply, config, moves, nodes, state

PATIENCE_S = 3.0
"""How long a preview waits for a silent machine: a person waits for the answer."""

Show = Callable[[Operation], Awaitable[Preview]]
Require = Callable[[Operation, Settings], Awaitable[None]]


def announced(show: Show, require: Require, settings: Settings) -> Show:
    """Return the preview handler that also shows why the operation would be refused."""
    quick = dataclasses.replace(settings, reach_leaving_s=min(PATIENCE_S, settings.reach_leaving_s))

    async def preview(op: Operation) -> Preview:
        shown, refusal = await asyncio.gather(show(op), members.refusal(require(op, quick)))
        return msgspec.structs.replace(shown, refusal=refusal or shown.refusal)

    return preview


async def drain(op: Operation, settings: Settings) -> None:
    head = await reports.head(op)
    for member in op.targets:
        await take_down.require_node(head, await reports.node_name(op, member))


async def leave(op: Operation, settings: Settings) -> None:
    """Check a remove, or the replace of a worker or of a login machine."""
    head = await reports.head(op)
    for member in op.targets:
        if not op.force and member.status != "requested":
            await take_down.require_removable(op, member, head, settings)


async def move(op: Operation, settings: Settings) -> None:
    controller = roles.controller_of(op.members)
    await moves.refuse_begun(await op.machine(controller))
    await move_checks.require_leavable(op, controller, settings)


async def stop(op: Operation, settings: Settings) -> None:
    if op.force:
        return
    await stop_start.require_machines(op, settings)
    running = state.running(await nodes.jobs_of_cluster(await reports.head(op)))
    if running:
        raise stop_start.busy(op, running)


async def restart(op: Operation, settings: Settings) -> None:
    await moves.refuse_begun(await op.machine(roles.controller_of(op.members)))
    if not op.force:
        await stop_start.require_machines(op, settings)


async def decommission(op: Operation, settings: Settings) -> None:
    if op.force:
        return
    await moves.refuse_begun(await op.machine(roles.controller_of(op.members)))
    await take_down.require_machines(op, settings)
    take_down.refuse_jobs(op, await nodes.jobs_of_cluster(await reports.head(op)))


async def reconfigure(op: Operation, settings: Settings) -> None:
    before, after = config.parse_inputs(op.inputs_before), changes.checked(op.inputs_after)
    head = await reports.head(op)
    await apply.require_changeable(head, op.instance.instance_id, after, (before, after))


async def move_forward(op: Operation, settings: Settings) -> None:
    """Check an upgrade. Its packages are checked only when it runs: they must be placed on the machines for that."""
    head = await op.machine(roles.controller_of(op.members))
    await moves.refuse_begun(head)
    await upgrade.require_upgradable(op, changes.checked(op.inputs_after), head)
    await apply.unedited(head, op.instance.instance_id, (config.parse_inputs(op.instance.inputs),))


async def move_back(op: Operation, settings: Settings) -> None:
    """Check a rollback."""
    head = await op.machine(roles.controller_of(op.members))
    await moves.refuse_begun(head)
    await rollback.require_backup(op, head, settings)
    version_changes.refuse_never_joined(op)
    await apply.unedited(head, op.instance.instance_id, (config.parse_inputs(op.instance.inputs),))
