"""The preview handlers of drain, remove and decommission: which jobs they would affect. They change nothing."""

import datetime

import msgspec
from gpuaas_sdk.controller import Member, Operation, PlannedChange, Preview, Work

from gpuaas_app_slurm import reports, roles
from gpuaas_app_slurm.workload import config, home, nodes, state

REPLACES = "The new machine proves itself with a job. Until the old one leaves, the replace can be undone."
COMMANDS = (
    "Commands of srun and salloc on these login machines wait for jobs. While they do, the operation is refused. With "
    "force, the jobs are cancelled"
)
WAITS = "The operation waits for these jobs. Only with force are they cancelled, and their GPU hours lost."
CANCELS = "Force is set: the operation does not wait for these jobs. They are cancelled, and their GPU hours are lost."
SILENT = {
    True: "its jobs are not waited for. If its machine answers, they are cancelled. If not, Slurm requeues those that "
    "can be and ends the others, and nothing is deleted on the machine.",
    False: "its replace needs force. Slurm requeues the jobs there that can be.",
}
"""What a replace does with a node that Slurm shows as silent, with and without force."""


async def drain(op: Operation) -> Preview:
    shown = await _of_nodes(op, notes=["The drain waits for these jobs, and cancels none."])
    names = await members_by_node(op, op.targets)
    of_others = [
        f"{state.kept_text(node)}."
        for node in await nodes.read_all(await reports.head(op))
        if node.name in names and state.drained_by_others(node)
    ]
    return msgspec.structs.replace(shown, notes=[*shown.notes, *of_others])


async def remove(op: Operation) -> Preview:
    return await _of_removed(op)


async def replace(op: Operation) -> Preview:
    return await _of_replaced(op)


async def stop(op: Operation) -> Preview:
    return await _of_stopped(op)


async def restart(op: Operation) -> Preview:
    return await _of_restarted(op)


async def decommission(op: Operation) -> Preview:
    return await _of_cluster(op)


async def _of_removed(op: Operation) -> Preview:
    return await _of_nodes(op, notes=[CANCELS if op.force else WAITS], irreversible=[await deleted(op)])


async def _of_replaced(op: Operation) -> Preview:
    """Return what a remove would affect. Jobs of nodes that do not answer are not waited for: that needs force."""
    shown, targets = await _of_removed(op), await members_by_node(op, op.targets)
    silent = [
        node
        for node in await nodes.read_all(await reports.head(op))
        if node.name in targets and node.flags & {"DOWN", "NOT_RESPONDING"}
    ]
    notes = [f"Node {node.name} is {node.slurm_state}: {SILENT[op.force]}" for node in silent]
    # Of jobs on silent nodes only, the notes about these nodes state what happens.
    are_all_silent = bool(targets) and len(silent) == len(targets)
    others = [note for note in shown.notes if not are_all_silent or note not in (WAITS, CANCELS)]
    return msgspec.structs.replace(shown, notes=[REPLACES, *notes, *others])


async def _of_stopped(op: Operation) -> Preview:
    notes = ["While jobs run, the stop is refused. With force, they are requeued; those that cannot be are cancelled."]
    shown = await _of_running(op, notes=notes)
    kept = "Queued jobs stay in the queue, and accounting keeps its records. No job can be submitted until the start."
    return msgspec.structs.replace(shown, notes=[*shown.notes, kept])


async def _of_restarted(op: Operation) -> Preview:
    change = PlannedChange(
        subject="mariadb, slurmdbd, slurmctld and slurmd",
        before="running",
        after="restarted",
        effect="Jobs continue. For some seconds, commands of Slurm fail and no job starts.",
    )
    return without_loss(await _of_running(op, notes=[]), [change])


async def _of_running(op: Operation, *, notes: list[str]) -> Preview:
    """Return the preview of an operation that concerns running jobs, and no queued ones."""
    observed_at = datetime.datetime.now(datetime.UTC)
    jobs = state.running(await nodes.jobs_of_cluster(await reports.head(op)))
    members = await members_by_node(op, op.members)
    return preview(jobs, members, observed_at, notes=notes if jobs else [], irreversible=[])


async def _of_cluster(op: Operation) -> Preview:
    """Every job counts, also queued ones: the decommission is refused while there is any, and force cancels all."""
    observed_at = datetime.datetime.now(datetime.UTC)
    jobs = await nodes.jobs_of_cluster(await reports.head(op))
    lost = [
        "The accounting database with the record of all jobs is deleted.",
        await deleted(op),
    ]
    notes = ["While there are jobs, the decommission is refused. With force, they are cancelled."] if jobs else []
    return preview(jobs, await members_by_node(op, op.targets), observed_at, notes=notes, irreversible=lost)


def preview(
    jobs: tuple[state.Job, ...],
    member_ids: dict[str, str],
    observed_at: datetime.datetime,
    *,
    notes: list[str],
    irreversible: list[str],
) -> Preview:
    """Make the preview from what Slurm reported. Pure. `member_ids` by the name of the node."""
    ends = [job.ends_at for job in jobs]
    return Preview(
        answered=True,
        source="squeue",
        observed_at=observed_at,
        running_work=[_work(job, member_ids) for job in jobs],
        gpu_hours_at_stake=round(sum(job.gpu_hours(observed_at) for job in jobs), 3),
        done_by=max((end for end in ends if end), default=None) if all(ends) else None,
        irreversible=irreversible,
        notes=notes,
    )


def without_loss(shown: Preview, changes: list[PlannedChange]) -> Preview:
    """Return the preview of an operation that ends no work: it shows work, changes and nothing that is lost. Pure."""
    return msgspec.structs.replace(shown, gpu_hours_at_stake=0, done_by=None, changes=changes)


async def _of_nodes(op: Operation, *, notes: list[str], irreversible: list[str] | None = None) -> Preview:
    """Return the preview for the nodes of the targets: jobs that run there, jobs of commands on login machines, and
    queued jobs that name one of the nodes."""
    observed_at = datetime.datetime.now(datetime.UTC)
    every_job = await nodes.jobs_of_cluster(await reports.head(op))
    member_ids = await members_by_node(op, op.targets)
    running = tuple(job for job in every_job if "PENDING" not in job.state and set(job.nodes) & set(member_ids))
    waiting = [job.job_id for name in member_ids for job in state.waiting_for(name, every_job)]
    logins = {await reports.node_name(op, member): member.member_id for member in roles.logins_of(op.targets)}
    started = tuple(job for name in logins for job in state.started_from(name, every_job))
    # They are lost with the machine of their command, so they are shown there.
    placed = tuple(msgspec.structs.replace(job, nodes=(job.submit_host,)) for job in started)
    shown = list(notes) if running else []
    if started:
        shown.append(f"{COMMANDS}: {state.listed(started)}.")
    if waiting:
        listed = ", ".join(str(job_id) for job_id in sorted(set(waiting))[:100])
        shown.append(f"Queued jobs name these nodes and cannot run without them: {listed}.")
    work, places = (*running, *placed), member_ids | logins
    return preview(work, places, observed_at, notes=shown, irreversible=irreversible or [])


async def members_by_node(op: Operation, members: tuple[Member, ...]) -> dict[str, str]:
    workers = roles.workers_of(members)
    return {await reports.node_name(op, member): member.member_id for member in workers}


async def deleted(op: Operation) -> str:
    """Describe what is deleted with Slurm on the machines of the targets. Homes on a shared folder stay."""
    controller = await op.machine(roles.controller_of(op.members))
    homes = await home.in_use(controller, config.parse_inputs(op.instance.inputs).home, controller.address)
    if homes.kind == "local":
        return f"Slurm, its log files and the home folders of its users on {_names(op.targets)} are deleted."
    return f"Slurm and its log files on {_names(op.targets)} are deleted. Home folders on {homes.source} stay."


def _work(job: state.Job, member_ids: dict[str, str]) -> Work:
    return Work(
        work_id=str(job.job_id),
        member_ids=[member_ids[name] for name in job.nodes if name in member_ids],
        owner=job.user,
        gpus=job.gpus,
        started_at=None if "PENDING" in job.state else job.started_at,
        ends_at=job.ends_at,
    )


def _names(members: tuple[Member, ...]) -> str:
    return ", ".join(sorted({member.node_name for member in members}))
