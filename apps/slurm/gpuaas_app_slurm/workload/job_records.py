"""Jobs in the accounting of Slurm, as `sacct` prints them. `usage` reports what they used.

A run of a job has one row in accounting. Its id and submit time are unique there: a job that is queued again gets
another submit time, and an id that is used again belongs to a later one."""

import re

import msgspec
from gpuaas_sdk.machine import Machine

FIELDS = "JobIDRaw,User,Account,Partition,State,Submit,Start,End,ElapsedRaw,CPUTimeRAW,AllocTRES,NNodes"
# First the time, then what slurmctld has not sent to slurmdbd yet, then the jobs: all that ended before this time are
# among them if nothing was left to send. No job of a person can change these commands; times are seconds since 1970.
READ = rf"""
date +%s
queue=$(timeout 3 sdiag 2>/dev/null | sed -n 's/^DBD Agent queue size: *//p') || queue=
echo "${{queue:-unknown}}"
export SLURM_TIME_FORMAT=%s
timeout 30 sacct -aXDnP -S "uts$1" -E "uts$2" -o {FIELDS}
"""


class JobRecord(msgspec.Struct, frozen=True):
    """One run of a job, in seconds of the clock of slurmctld."""

    job_id: str
    user: str
    account: str
    partition: str
    state: str
    submitted_at: int
    started_at: int | None
    """None: it never started."""
    ended_at: int | None
    """None: it runs or waits."""
    elapsed_s: int
    """Without the time it was suspended."""
    cpu_s: int
    gpus: int
    nodes: int

    @property
    def gpu_s(self) -> int:
        return self.gpus * self.elapsed_s


class Reading(msgspec.Struct, frozen=True):
    """What accounting had at a moment."""

    read_at: int
    is_whole: bool
    """Whether slurmctld had sent everything to slurmdbd: if not, jobs that ended before this moment may be missing."""
    jobs: tuple[JobRecord, ...]


async def read(machine: Machine, since: int, until: int) -> Reading:
    """Read the jobs that ran or waited in a period. It changes nothing and needs no rights."""
    return parse((await machine.script(READ, str(since), str(until), timeout_s=40)).stdout)


def parse(text: str) -> Reading:
    """Return what `READ` printed. Raises ValueError if it is not whole. Pure."""
    lines = text.splitlines()
    if len(lines) < 2 or not lines[0].isdigit():
        raise ValueError("the answer of accounting was cut off")
    return Reading(int(lines[0]), lines[1] == "0", tuple(_job(line) for line in lines[2:] if line))


def _job(line: str) -> JobRecord:
    job_id, user, account, partition, state, submit, start, end, elapsed, cpu, tres, nodes = line.split("|")
    gpus = re.search(r"(?:^|,)gres/gpu=(\d+)", tres)
    return JobRecord(
        job_id,
        user,
        account,
        partition,
        # "CANCELLED by 1000" names the number of who did it.
        state.split(" ")[0],
        int(submit),
        _seconds(start),
        _seconds(end),
        int(elapsed or 0),
        int(cpu or 0),
        int(gpus[1]) if gpus else 0,
        int(nodes or 0),
    )


def _seconds(text: str) -> int | None:
    """Return the time; None for `Unknown` and `None`, which Slurm prints if there is none yet."""
    return int(text) if text.isdigit() and int(text) > 0 else None
