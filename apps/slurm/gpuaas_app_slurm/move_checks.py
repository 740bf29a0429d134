"""What must be true before the controller moves to another machine, and the preview of a move. They change nothing,
except that force cancels jobs of srun and salloc."""

import asyncio
import datetime

from gpuaas_sdk.checks import Check
from gpuaas_sdk.controller import Member, Operation, Permanent, PlannedChange, Preview, Refused, members
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm import previews, reports, roles
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import accounting, apply, config, home, key_rotation, nodes, slurm, state

EFFECT = "Batch jobs continue. For some seconds, commands of Slurm fail and no job starts."
INTERACTIVE = (
    "Jobs of srun and salloc must end first, because their commands use the address of the old machine. With force "
    "they are cancelled"
)
NOT_MOVED = "Log files of slurmctld and files that people put on the old machine are not moved."
POLL_S = 1.0


async def preview(op: Operation) -> Preview:
    observed_at = datetime.datetime.now(datetime.UTC)
    head = await reports.head(op)
    jobs = await nodes.jobs_of_cluster(head)
    waiting = state.interactive(jobs)
    notes = [
        NOT_MOVED,
        *([f"{INTERACTIVE}: {state.listed(waiting)}."] if waiting else []),
    ]
    change = PlannedChange(
        subject="slurmctld, slurmdbd and MariaDB", before=head.hostname, after="the new machine", effect=EFFECT
    )
    member_ids, deleted = await previews.members_by_node(op, op.members), await previews.deleted(op)
    shown = previews.preview(state.running(jobs), member_ids, observed_at, notes=notes, irreversible=[deleted])
    return previews.without_loss(shown, [change])


def dead(op: Operation, member: Member) -> Refused:
    """Return the refusal if the old machine does not answer and nothing was moved."""
    return Refused(
        f"machine {member.node_name} ({member.address}) does not answer. The queue and the accounting of the cluster "
        "are on it, so they cannot be moved",
        fix="start the machine; if it is lost, the queue and the accounting are lost with it: "
        f"gpuaas decommission {op.instance.name} --force --reason 'machine lost', then deploy again",
    )


async def require_movable(op: Operation, member: Member, spare: Member, settings: Settings) -> None:
    """Refuse a move that cannot work. Nothing was changed yet."""
    _refuse_shared_machine(op, member, op.replacement(member))
    await _refuse_names(op, spare, await op.machine(member), settings)
    await require_leavable(op, member, settings)


async def require_leavable(op: Operation, member: Member, settings: Settings) -> None:
    """Refuse if the controller cannot leave its machine now. Changes nothing."""
    _refuse_shared_machine(op, member, member.allocation_id)
    head = await op.machine(member)
    await _refuse_homes(op, head)
    await _require_slurm(op, head)
    await _refuse_two_keys(op, head)
    if not op.force:
        await _require_nodes(op, settings)
        await refuse_interactive(op, head)


async def refuse_interactive(op: Operation, head: Machine) -> None:
    """Refuse while commands wait for jobs: they would not find slurmctld at their end, and hold the nodes."""
    waiting = await nodes.jobs_with_commands(head)
    if waiting:
        raise Refused(
            f"commands of people wait for {len(waiting)} jobs, and use the address of the old machine: "
            f"{state.listed(waiting)}",
            fix="let these jobs of srun and salloc end, or cancel them: gpuaas member replace with --force",
        )


async def end_interactive(op: Operation, head: Machine, settings: Settings) -> None:
    """Cancel the jobs for which commands wait, as force asks."""

    async def are_gone() -> Check:
        waiting = await nodes.jobs_with_commands(head)
        await nodes.cancel(head, tuple(job.job_id for job in waiting))
        return Check(not waiting, f"cancelling jobs of srun and salloc: {state.listed(waiting)}")

    check = await op.until(are_gone, within_s=settings.cancel_jobs_s, every_s=POLL_S)
    if not check.ok:
        raise Permanent(check.reason, fix="squeue; scancel JOB")


def _refuse_shared_machine(op: Operation, member: Member, allocation_id: str) -> None:
    """Refuse a machine with a second role: the move would change, or undo, what the other role needs."""
    others = [each for each in op.members if each.allocation_id == allocation_id and each.member_id != member.member_id]
    if others:
        raise Refused(
            f"{others[0].node_name} is also a {others[0].component_key} of this cluster; the controller moves only "
            "between machines that have no other role",
            fix=f"move the other role first, or choose another machine: gpuaas get members {op.instance.name}",
        )


async def _refuse_homes(op: Operation, head: Machine) -> None:
    homes = await home.in_use(head, config.parse_inputs(op.instance.inputs).home, head.address)
    if homes.is_exported:
        raise Refused(
            f"the controller machine {head.hostname} exports the home folders (home nfs), and running jobs use them",
            fix="deploy another cluster with home shared:/PATH or nfs:SERVER:/PATH, and copy the files there",
        )


async def _refuse_names(op: Operation, spare: Member, head: Machine, settings: Settings) -> None:
    if not await op.answers(spare, patience_s=settings.reach_leaving_s):
        raise Refused(
            f"the new machine {spare.node_name} ({spare.address}) does not answer", fix="choose another machine"
        )
    machine = await op.machine(spare)
    names = {str(node.adapter_detail.get("node_name", node.node_name)) for node in roles.nodes_of(op.members)}
    if machine.hostname in names | {head.hostname}:
        raise Refused(
            f"the new machine {machine.address} has the host name {machine.hostname}, which another machine of the "
            "cluster has",
            fix="hostnamectl set-hostname NAME on the new machine, or choose another one",
        )


async def _require_slurm(op: Operation, head: Machine) -> None:
    inputs = config.parse_inputs(op.instance.inputs)
    for check in (await slurm.controller_answers(head), await accounting.ready(head, inputs.cluster_name)):
        if not check.ok and not op.force:
            raise Refused(check.reason, fix="gpuaas member repair makes Slurm run again; then request it again")
    text = await apply.unedited(head, op.instance.instance_id, (inputs,))
    apply.refuse_held(config.present(text))


async def _refuse_two_keys(op: Operation, head: Machine) -> None:
    if await key_rotation.is_open(head):
        raise Refused(
            "the key of this cluster is being replaced, and its machines have two keys until that ends",
            fix=f"finish it: gpuaas action run {op.instance.name} auth.rotate; then request the move again",
        )


async def _require_nodes(op: Operation, settings: Settings) -> None:
    """Refuse while a machine does not answer: it would search for slurmctld at the old place."""
    others = members.one_per_machine(roles.nodes_of(op.members))
    answers = await asyncio.gather(*(op.answers(node, patience_s=settings.reach_leaving_s) for node in others))
    away = [f"{node.node_name} ({node.address})" for node, ok in zip(others, answers, strict=True) if not ok]
    if away:
        raise Refused(
            f"{', '.join(away)}: the machine does not answer, so it would not find slurmctld on the new machine",
            fix="start the machine, replace its member, or use force: a repair points it there when it is back",
        )
