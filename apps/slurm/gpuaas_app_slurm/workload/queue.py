"""Jobs in the queue: submit and cancel them as their owner, list them, and read the end of their output.

What a person asks for runs as the person's own Unix account, never as root: then Slurm and the kernel decide what the
person may do, also if a path in a job leads to the file of another person. Every value is an argument of its own."""

import re
import secrets
import shlex
from collections.abc import Collection, Sequence
from typing import Any

import msgspec
from gpuaas_sdk.failures import Permanent, Refused, Temporary
from gpuaas_sdk.machine import Machine, Ran

from gpuaas_app_slurm.workload import state

OUTPUT_BYTES_MAX = 64 * 1024
# The environment of the person's job is their own, not that of the session that submits it.
SUBMIT = (
    'exec env -i HOME="$HOME" USER="$USER" LOGNAME="$USER" LANG=C.UTF-8 '
    'PATH=/usr/local/bin:/usr/bin:/bin sbatch --parsable "$@"'
)
# Only the end of a regular file is read: a pipe or a device would block, or never end.
LOGS = """[ -e "$1" ] || { echo "there is no file $1 yet" >&2; exit 44; }
[ -f "$1" ] || { echo "$1 is no regular file" >&2; exit 1; }
[ -r "$1" ] || { echo "you may not read $1" >&2; exit 1; }
tail -c "$3" -- "$1" | tail -n "$2"
"""
ABSENT_STATUS = 44
NAME_SHOWN_MAX = 100
"""Longer names of one person's jobs would leave no place for the jobs of others in a list."""


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The inputs of `queue.submit`. The schema in the manifest limits each value."""

    script: str
    name: str = ""
    partition: str = ""
    time: str = ""
    nodes: int = 0
    tasks: int = 0
    cpus_per_task: int = 0
    gpus_per_node: int = 0
    memory_mb: int = 0
    array: str = ""
    dependency: str = ""
    reservation: str = ""
    folder: str = ""
    output: str = ""
    hold: bool = False


class QueuedJob(msgspec.Struct, frozen=True):
    job_id: str
    name: str
    login: str
    state: str
    reason: str | None
    partition: str
    nodes: int
    node_names: str | None
    cpus: int
    gpus: int
    submitted_at: str | None
    started_at: str | None
    limit_minutes: int | None
    comment: str = ""

    def row(self) -> dict[str, Any]:
        """Return the job as a row of `queue.read`."""
        shown = {name: value for name, value in msgspec.structs.asdict(self).items() if name != "comment"}
        return shown | {"name": self.name[:NAME_SHOWN_MAX]}


class JobOutput(msgspec.Struct, frozen=True):
    """Where the output of a job is."""

    login: str
    node: str
    """The machine that its script runs on; empty: it has not started."""
    path: str
    state: str


def options(request: Request, mark: str) -> tuple[str, ...]:
    """Return the options of sbatch. `mark` is a comment by which the job is found again. Pure."""
    given: dict[str, str | int] = {
        "job-name": request.name,
        "partition": request.partition,
        "time": request.time,
        "nodes": request.nodes,
        "ntasks": request.tasks,
        "cpus-per-task": request.cpus_per_task,
        "gpus-per-node": request.gpus_per_node,
        "mem": f"{request.memory_mb}M" if request.memory_mb else "",
        "array": request.array,
        "dependency": request.dependency,
        "reservation": request.reservation,
        "chdir": request.folder,
        "output": request.output,
    }
    chosen = tuple(f"--{name}={value}" for name, value in given.items() if value)
    return (*chosen, f"--comment={mark}", *(("--hold",) if request.hold else ()))


async def submit(controller: Machine, login: str, request: Request, mark: str) -> str:
    """Submit a job as this user and return its id."""
    argv = ("sh", "-c", SUBMIT, "sbatch", *options(request, mark))
    ran = await controller.run(*argv, input=request.script, as_user=login, check=False)
    job_id = ran.stdout.strip().split(";")[0]
    if ran.exit_status == 0 and job_id.isdigit():
        return job_id
    raise _refusal(ran, "Slurm did not accept the job", "gpuaas action list INSTANCE; correct the inputs")


async def cancel(controller: Machine, job_ids: Sequence[str], as_user: str | None) -> str:
    """Cancel jobs as this user, who may cancel their own; without a user as root. Returns what Slurm refused."""
    ran = await controller.run("scancel", *job_ids, as_user=as_user, check=False)
    if "contact" in ran.stderr.lower():
        raise Temporary(f"scancel on {controller.hostname} failed: {ran.stderr.strip()[-500:]}", after_s=2.0)
    return ran.stderr.strip()[-1000:]


async def read(controller: Machine, *filters: str) -> tuple[QueuedJob, ...]:
    """Return the jobs of the queue; `filters` are options of squeue."""
    ran = await controller.run("squeue", "--json", *filters, check=False)
    if ran.exit_status != 0 and "Invalid job id" in ran.stderr:
        return ()
    if ran.exit_status != 0:
        raise Temporary(f"squeue on {controller.hostname} failed: {ran.stderr.strip()[-500:]}")
    return tuple(_queued(raw) for raw in msgspec.json.decode(ran.stdout)["jobs"])


async def output_of(controller: Machine, job_id: str) -> JobOutput | None:
    """Return where the output of a job is, from accounting, which has it also after Slurm has forgotten the job."""
    # The owner of the job chose the path, and it can have any character, also newlines: a delimiter that is known in
    # advance would let a path add a row of its own.
    fields, delimiter = "User,State,NodeList,StdOut", f"@{secrets.token_hex(8)}@"
    argv = ("sacct", "-Xnp", f"--delimiter={delimiter}", "--expand-patterns", "-j", job_id, "-o", fields)
    ran = await controller.run(*argv, check=False)
    if ran.exit_status != 0:
        raise Temporary(f"sacct on {controller.hostname} failed: {ran.stderr.strip()[-500:]}")
    rows = [row.split(delimiter) for row in ran.stdout.split(f"{delimiter}\n") if row.count(delimiter) == 3]
    if not rows:
        return None
    login, now, nodes, path = rows[-1]
    first = next(iter(state.hosts(nodes)), "") if nodes and "assigned" not in nodes else ""
    return JobOutput(login, first, path, now.split(" ")[0])


async def tail(machine: Machine, login: str, path: str, lines: int) -> str | None:
    """Return the last lines of a file, read with the rights of this user; None if it does not exist."""
    argv = ("sh", "-c", LOGS, "logs", path, str(lines), str(OUTPUT_BYTES_MAX))
    ran = await machine.run(*argv, as_user=login, check=False, timeout_s=20)
    if ran.exit_status == ABSENT_STATUS:
        return None
    if ran.exit_status != 0:
        # Other people read the fix and may run it, and the owner of the job chose the path.
        look = f"ls -l {shlex.quote(path[:200])}"
        raise Refused(f"cannot read the output on {machine.hostname}: {ran.stderr.strip()[-500:]}", fix=look)
    return ran.stdout


def filters(login: str, states: str, partition: str, job_ids: Collection[str] = ()) -> tuple[str, ...]:
    """Return the options of squeue for a filter; an empty one filters nothing. Pure."""
    given = {"--user": login, "--states": states, "--partition": partition, "--jobs": ",".join(job_ids)}
    return tuple(f"{name}={value}" for name, value in given.items() if value)


def _queued(raw: dict[str, Any]) -> QueuedJob:
    array, task = raw.get("array_job_id", {}), raw.get("array_task_id", {})
    job_id = f"{array['number']}_{task['number']}" if array.get("number") and task.get("set") else str(raw["job_id"])
    tres = raw.get("tres_alloc_str", "") or raw.get("tres_req_str", "")
    reason = raw.get("state_reason", "")
    return QueuedJob(
        job_id,
        raw.get("name", ""),
        raw.get("user_name", ""),
        "+".join(raw.get("job_state", [])),
        None if reason in ("", "None") else reason,
        raw.get("partition", ""),
        _number(raw.get("node_count", {})) or 0,
        raw.get("nodes") or None,
        _number(raw.get("cpus", {})) or 0,
        sum(int(count) for count in re.findall(r"(?:^|,)gres/gpu=(\d+)", tres)),
        _shown(raw.get("submit_time", {})),
        _shown(raw.get("start_time", {})),
        _number(raw.get("time_limit", {})),
        raw.get("comment", ""),
    )


def _number(value: dict[str, Any]) -> int | None:
    return int(value["number"]) if value.get("set") and not value.get("infinite") else None


def _shown(value: dict[str, Any]) -> str | None:
    moment = state.moment(value)
    return moment.isoformat() if moment else None


def _refusal(ran: Ran, what: str, fix: str) -> Permanent | Temporary:
    error = (ran.stderr.strip() or ran.stdout.strip())[-500:]
    if "contact" in error.lower() or "timed out" in error.lower():
        return Temporary(f"{what}: {error}", after_s=2.0)
    return Refused(f"{what}: {error}", fix=fix)
