"""The actions `queue.*`, `job.logs` and `usage.read`: what people do with jobs through the API. Registered by
`controller`.

A person acts as their own Unix account. `queue.cancel_any` is for those who operate the cluster."""

import datetime
from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from gpuaas_sdk import results
from gpuaas_sdk.controller import Operation, Refused
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm import reports, roles
from gpuaas_app_slurm.workload import job_records, queue
from gpuaas_app_slurm.workload.job_records import JobRecord
from gpuaas_app_slurm.workload.queue import JobOutput, QueuedJob

ROWS_MAX = 500
PATH_SHOWN_MAX = 500
STATES = {"all": "", "running": "running", "pending": "pending"}


class ReadQueue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The inputs of `queue.read`."""

    login: str = ""
    mine: bool = False
    state: Literal["all", "running", "pending"] = "all"
    partition: str = ""


class CancelJobs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The inputs of `queue.cancel` and `queue.cancel_any`."""

    jobs: tuple[str, ...]


class ReadLogs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The inputs of `job.logs`."""

    job: str
    lines: int = 100


class ReadUsage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The inputs of `usage.read`. Jobs that started in the period count."""

    since: datetime.datetime | None = None
    until: datetime.datetime | None = None
    login: str = ""


async def submit(op: Operation) -> dict[str, Any]:
    """Submit a job as the caller. If this runs again, the job that was submitted before is found by its comment."""
    request = op.inputs_as(queue.Request)
    if not request.script.startswith("#!"):
        raise Refused("the script does not start with #!", fix="begin it with a line such as #!/bin/bash")
    head, login, mark = await reports.head(op), await login_of(op), f"gpuaas:{op.id}"
    known = [job for job in await queue.read(head, *queue.filters(login, "all", "")) if job.comment == mark]
    job_id = known[0].job_id.split("_")[0] if known else await queue.submit(head, login, request, mark)
    return _table(await queue.read(head, *queue.filters("", "all", "", [job_id])))


async def read_queue(op: Operation) -> dict[str, Any]:
    asked = op.inputs_as(ReadQueue)
    login = await login_of(op) if asked.mine else asked.login
    head = await reports.head(op)
    return _table(await queue.read(head, *queue.filters(login, STATES[asked.state], asked.partition)))


async def cancel(op: Operation) -> dict[str, Any]:
    """Cancel jobs of the caller. Slurm itself refuses those of other people."""
    return await _cancel(op, await login_of(op))


async def cancel_any(op: Operation) -> dict[str, Any]:
    return await _cancel(op, None)


async def logs(op: Operation) -> dict[str, Any]:
    """Return the end of the output of a job of the caller, read with the caller's rights on the job's machine."""
    asked = op.inputs_as(ReadLogs)
    head, login = await reports.head(op), await login_of(op)
    job = await queue.output_of(head, asked.job)
    if job is None or job.login != login:
        raise Refused(
            f"you have no job {asked.job}" if job is None else f"job {asked.job} belongs to {job.login}",
            fix=f"gpuaas action run {op.instance.name} queue.read --input mine=true",
        )
    if not job.node or not job.path:
        return {"rows": [], "note": f"Job {asked.job} is {job.state}: it has no output yet."}
    text = await queue.tail(await _machine(op, job, head), login, job.path, asked.lines)
    return _lines(asked, job, text)


async def read_usage(op: Operation) -> dict[str, Any]:
    """Return what each user used, from accounting. Jobs that run count with what they used so far."""
    asked = op.inputs_as(ReadUsage)
    head, now = await reports.head(op), datetime.datetime.now(datetime.UTC)
    since, until = asked.since or now - datetime.timedelta(days=30), asked.until or now
    if until <= since:
        raise Refused(f"until ({until}) is not after since ({since})", fix="choose a later time for until")
    # sacct reads no time before 1970.
    period = max(0, int(since.timestamp())), max(0, int(until.timestamp()))
    reading = await job_records.read(head, *period)
    note = f"Jobs that started from {since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M} UTC, read {now:%Y-%m-%d %H:%M}."
    missing = "" if reading.is_whole else " Some may be missing: slurmctld has not sent all ended jobs to slurmdbd yet."
    return {"rows": usage_rows(reading.jobs, period, asked.login), "note": note + missing}


def usage_rows(jobs: Iterable[JobRecord], period: tuple[int, int], login: str = "") -> list[dict[str, Any]]:
    """Return the sums of each user over the jobs that started in the period. Pure."""
    by_user: dict[str, list[JobRecord]] = {}
    for job in jobs:
        if job.started_at is not None and period[0] <= job.started_at < period[1] and login in ("", job.user):
            by_user.setdefault(job.user, []).append(job)
    return [_usage_row(user, some) for user, some in sorted(by_user.items())]


def _usage_row(login: str, jobs: list[JobRecord]) -> dict[str, Any]:
    cpu_s, gpu_s = sum(job.cpu_s for job in jobs), sum(job.gpu_s for job in jobs)
    return {
        "login": login,
        "jobs": len(jobs),
        "running": sum(job.ended_at is None for job in jobs),
        "elapsed_s": sum(job.elapsed_s for job in jobs),
        "cpu_s": cpu_s,
        "gpu_s": gpu_s,
        "gpu_hours": round(gpu_s / 3600, 3),
    }


async def _cancel(op: Operation, as_user: str | None) -> dict[str, Any]:
    job_ids = op.inputs_as(CancelJobs).jobs
    head = await reports.head(op)
    before = await queue.read(head, *queue.filters("", "all", "", job_ids))
    others = sorted({job.job_id for job in before if as_user not in (None, job.login)})
    if others:
        raise Refused(
            f"{', '.join(others)}: jobs of other people, which only those who operate the cluster can cancel",
            fix=f"gpuaas action run {op.instance.name} queue.cancel_any --input jobs={','.join(others)}",
        )
    if unknown := _unknown(job_ids, before):
        look = f"gpuaas action run {op.instance.name} queue.read"
        raise Refused(f"the queue has no job {', '.join(unknown)}; nothing was cancelled", fix=look)
    refused = await queue.cancel(head, job_ids, as_user)
    shown = _table(await queue.read(head, *queue.filters("", "all", "", job_ids)))
    return shown | ({"note": f"Slurm reported: {refused}"} if refused else {})


def _unknown(job_ids: Iterable[str], listed: Iterable[QueuedJob]) -> list[str]:
    """Return the ids that Slurm does not list. Jobs of an array that wait are listed as one, under the array's id."""
    known = {job.job_id.split("_")[0] for job in listed}
    return [job_id for job_id in job_ids if job_id.split("_")[0] not in known]


async def login_of(op: Operation) -> str:
    """Return the login of who requested the action."""
    people = await op.people()
    person = next((item for item in people if item.user_id == op.requested_by and item.state == "active"), None)
    if person is None:
        raise Refused(
            "you have no login on the machines of this project, so no job can run as you",
            fix="ask an admin of the project for the role project_member; service accounts have no login",
        )
    return person.login


async def _machine(op: Operation, job: JobOutput, head: Machine) -> Machine:
    """Return the machine that the job's script ran on; that of slurmctld if it has left the cluster."""
    members = [item for item in op.members if (item.adapter_detail.get("node_name") or item.node_name) == job.node]
    workers = [member for member in members if member.component_key == roles.WORKER]
    return await op.machine(workers[0]) if workers else head


def _lines(asked: ReadLogs, job: JobOutput, text: str | None) -> dict[str, Any]:
    path = job.path[:PATH_SHOWN_MAX]
    if text is None:
        return {"rows": [], "note": f"Job {asked.job} is {job.state}: {job.node} has no file {path}."}
    # As `tail` counts them: `splitlines` would also split at characters that programs print within a line.
    written = text.removesuffix("\n").split("\n") if text else []
    wanted = written[-asked.lines :]
    rows = [{"number": number, "line": line} for number, line in enumerate(results.last_lines(wanted), start=1)]
    note = f"The end of {path} on {job.node}. Job {asked.job} is {job.state}."
    missing = len(wanted) - len(rows)
    return {"rows": rows, "note": note + (f" {missing} earlier lines are left out: too long." if missing else "")}


def _table(jobs: Iterable[QueuedJob]) -> dict[str, Any]:
    listed = list(jobs)
    rows = (job.row() for job in listed[:ROWS_MAX])
    return results.first_rows(rows, len(listed), "Filter by login, state or partition for others.")
