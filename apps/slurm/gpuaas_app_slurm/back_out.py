"""The undo handlers, for a cancel and to compensate: every member returns to the state before, or leaves its machine.

Steps have other names than those of the handlers, because both belong to the same operation."""

import datetime
from functools import partial

from gpuaas_sdk.checks import Check
from gpuaas_sdk.controller import Evidence, Member, Operation, Permanent, members
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm import reports, roles, take_down
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import nodes, state
from gpuaas_app_slurm.workload.footprint import SLURM


async def undo_drain(op: Operation, settings: Settings) -> None:
    """Lift the drains that this operation has set."""
    head = await reports.head(op)
    await op.each(op.to_do, lambda member: lift_drain(op, member, head), raises=False)
    await reports.publish_access(op)


async def undo_remove(op: Operation, settings: Settings) -> None:
    """Lift the drains of members that still run. A member whose removal has begun cannot return, so it is completed."""
    begun = [member for member in op.to_do if op.now(member).status == "removing"]
    intact = [member for member in op.to_do if member not in begun]
    if begun:
        await take_down.finish_removals(op, begun, settings)
    if intact:
        head = await reports.head(op)
        await op.each(intact, lambda member: _keep(op, member, head), raises=False)
        await reports.publish_access(op)


async def undo_resume(op: Operation, settings: Settings) -> None:
    """Drain the nodes again. Jobs that started in the meantime continue, so a node may stay `draining`."""
    head = await reports.head(op)
    await op.each(op.to_do, lambda member: _drain_again(op, member, head), raises=False)
    await reports.publish_access(op)


async def undo_add(op: Operation, settings: Settings) -> None:
    """Take the members that did not become ready off their machines; compensate also takes off those that did."""
    head = await reports.head(op)
    await op.each(op.to_do, lambda member: _leave(op, member, head, settings), raises=False)
    await reports.publish_access(op)


async def undo_deploy(op: Operation, settings: Settings) -> None:
    """Take Slurm off every machine. The nodes go first, because the controller shows whether they run jobs."""
    controllers = tuple(member for member in op.members if member.component_key == roles.CONTROLLER)
    await op.each(roles.nodes_of(op.members), lambda member: _leave(op, member, None, settings))
    await op.each(controllers, lambda member: _leave(op, member, None, settings))


async def lift_drain(op: Operation, member: Member, head: Machine) -> None:
    name = await reports.node_name(op, member)
    await op.step("lift the drain", nodes.undrain, head, name, op.id, member=member)
    before = op.status_before(member)
    if before in ("ready", "degraded") and op.now(member).status not in ("failed", before):
        node = await nodes.read(head, name)
        shown = {"slurm_state": node.slurm_state, "reason": node.reason} if node else {}
        detail = {name: value for name, value in op.now(member).adapter_detail.items() if name != "drained_by"}
        await op.report(member, status=before, detail=detail | shown)
    elif before in ("ready", "degraded"):
        await op.report(member, status=before)


async def _keep(op: Operation, member: Member, head: Machine) -> None:
    members.require_intact(op, member)
    await lift_drain(op, member, head)


async def _drain_again(op: Operation, member: Member, head: Machine) -> None:
    name = await reports.node_name(op, member)
    await op.step("drain the node again", _set_drain, op, head, name, member=member)
    look = await nodes.look(head, name)
    is_drained = state.node_drained(name, look.node, look.jobs).ok
    if op.now(member).status in ("drained", "failed") and not is_drained:
        # Jobs started while the drain was lifted, before this was reported. Or the resume failed.
        await op.report(member, status="ready")
    if op.now(member).status in ("ready", "degraded"):
        await op.report(member, status="draining", reason=op.reason)
    if op.now(member).status in ("draining", "failed") and is_drained:
        await op.report(member, status="drained", reason=op.reason)


async def _set_drain(op: Operation, head: Machine, name: str) -> None:
    await nodes.drain(head, name, state.drain_reason(op.id, "the resume was undone"))


async def _leave(op: Operation, member: Member, head: Machine | None, settings: Settings) -> None:
    """Take a member that joined, or began to, off its machine. Without a controller there is no node to delete."""
    if op.now(member).status in ("removed", "tombstoned"):
        return  # The undo was interrupted after this member, and is repeated.
    if op.now(member).status == "requested":
        await members.leave_untouched(op, member)
        return
    if not await op.answers(member, patience_s=settings.reach_leaving_s):
        if member.was_ready:
            raise Permanent(f"machine {member.node_name} ({member.address}) does not answer", fix="start the machine")
        await members.give_up(op, member, SLURM)
        return
    if op.now(member).status != "removing":
        await members.begin_removal(op, member, await _idle(op, member, head))
    if head is not None:
        name = await reports.node_name(op, member)
        delete = partial(take_down.delete_node, op, member, head, name, settings)
        await op.step("delete the node that joined", delete, member=member)
    await op.step("take Slurm off the machine again", take_down.uninstall_member, op, member, settings, member=member)
    await reports.removed(op, member)


async def _idle(op: Operation, member: Member, head: Machine | None) -> Evidence:
    """Return evidence that no job runs on a member that is taken back; wait for the end of its jobs."""
    observed_at = datetime.datetime.now(datetime.UTC)
    if not member.was_ready:
        return members.never_ready()
    machine = head or await op.machine(roles.controller_of(op.members))
    if member.component_key == roles.CONTROLLER:
        return take_down.evidence_of_queue(await nodes.jobs_of_cluster(machine), observed_at)
    name = await reports.node_name(op, member)
    seen: list[Evidence] = []

    async def is_idle() -> Check:
        await nodes.kept_drained(machine, name, state.drain_reason(op.id, "the add is undone"))
        look = await nodes.look(machine, name)
        seen[:] = [reports.evidence(look, name)]
        return state.no_work(name, look.node, look.jobs)

    await op.until(is_idle)
    return seen[0]
