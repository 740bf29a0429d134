"""The preview handlers of drain, remove and decommission: which jobs they would affect. They change nothing."""

import datetime
from collections.abc import Awaitable

from gpuaas_sdk.controller import Member, Operation, Preview, Temporary, Work

from gpuaas_app_slurm import reports, roles
from gpuaas_app_slurm.workload import nodes, state

WAITS = "The operation waits for these jobs. Only with force are they cancelled, and their GPU hours lost."


async def drain(op: Operation) -> Preview:
    return await _answered(_of_nodes(op, notes=[WAITS]))


async def remove(op: Operation) -> Preview:
    taken_off = [f"Slurm, its log files and the home folders of its users on {_names(op.targets)} are deleted."]
    return await _answered(_of_nodes(op, notes=[WAITS], irreversible=taken_off))


async def decommission(op: Operation) -> Preview:
    return await _answered(_of_cluster(op))


async def _answered(work: Awaitable[Preview]) -> Preview:
    """Return the preview, or immediately why there is none: a user waits for it."""
    try:
        return await work
    except Temporary as error:
        return Preview(answered=False, notes=[f"The work is unknown: {error}"])


async def _of_cluster(op: Operation) -> Preview:
    """Every job counts, also queued ones: the decommission is refused while there is any, and force cancels all."""
    observed_at = datetime.datetime.now(datetime.UTC)
    jobs = await nodes.jobs_of_cluster(await reports.head(op))
    deleted = [
        "The accounting database with the record of all jobs is deleted.",
        f"Slurm, its log files and the home folders of its users on {_names(op.targets)} are deleted.",
    ]
    notes = ["While there are jobs, the decommission is refused. With force, they are cancelled."] if jobs else []
    return preview(jobs, await _members_by_node(op), observed_at, notes=notes, irreversible=deleted)


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


async def _of_nodes(op: Operation, *, notes: list[str], irreversible: list[str] | None = None) -> Preview:
    """Return the preview for the nodes of the targets: jobs that run there, and queued jobs that name one of them."""
    observed_at = datetime.datetime.now(datetime.UTC)
    every_job = await nodes.jobs_of_cluster(await reports.head(op))
    member_ids = await _members_by_node(op)
    running = tuple(job for job in every_job if "PENDING" not in job.state and set(job.nodes) & set(member_ids))
    waiting = [job.job_id for name in member_ids for job in state.waiting_for(name, every_job)]
    shown = list(notes) if running else []
    if waiting:
        listed = ", ".join(str(job_id) for job_id in sorted(set(waiting))[:100])
        shown.append(f"Queued jobs name these nodes and cannot run without them: {listed}.")
    return preview(running, member_ids, observed_at, notes=shown, irreversible=irreversible or [])


async def _members_by_node(op: Operation) -> dict[str, str]:
    workers = roles.workers_of(op.targets)
    return {await reports.node_name(op, member): member.member_id for member in workers}


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
