"""Real jobs of a normal user, how each ended, and the judgement: did an operation end one?

A job notes its begin and its end in a file, because a rollback returns the accounting to an earlier state."""

import itertools
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpuaas_app_slurm.workload.state import hosts

from bench.campaign.cluster import HEAD, USER, Cluster
from bench.campaign.faults import Harm

PREFIX = "work-"
NOTES = f"home/{USER}/notes"
"""Folder for the notes of jobs, in the shared folder of the lab."""
LIMIT_MINUTES = 3
"""The time limit of a job. Jobs end by themselves in less than one minute."""
_FIELDS = "JobID,JobName,State,NodeList,Submit,Start,End,Reason"


@dataclass(frozen=True)
class Ended:
    """A row of `sacct`. A job that runs or waits has no end yet."""

    job_id: str
    name: str
    state: str
    """As Slurm prints it: `COMPLETED`, `NODE_FAIL`, `CANCELLED by 0`."""
    machines: frozenset[str]
    start_s: float
    end_s: float
    reason: str = ""
    submit_s: float = 0.0
    shares_id: bool = False
    """Another job had the same id: slurmctld had forgotten it while it ran. Slurm then cancels one of them."""
    is_noted: bool = False
    """It began once, and noted its own end."""
    named: str = ""
    """The machine that its user named. If it is removed by force while the job waits, the job ends on no node."""

    @property
    def is_over(self) -> bool:
        return not self.state.startswith(("RUNNING", "PENDING", "COMPLETING", "SUSPENDED"))


@dataclass(frozen=True)
class Forced:
    """A request with force or a member that was given up: the jobs on its machine may end."""

    machine: str
    at_s: float


@dataclass(frozen=True)
class Return:
    """A rollback, or the undo of an upgrade: Slurm had the state of an earlier moment after it. Its preview and its
    guide name what that loses: jobs that were submitted or started since."""

    state_of_s: float
    began_s: float
    ended_s: float

    def loses(self, start_s: float) -> bool:
        """Return whether a job that was submitted or started then is lost, or starts again."""
        return self.state_of_s <= start_s <= self.ended_s


@dataclass
class Jobs:
    cluster: Cluster
    submitted: dict[str, str] = field(default_factory=dict)
    """Job id -> name."""
    named: dict[str, str] = field(default_factory=dict)
    """Job id -> the machine that its user named, or nothing."""
    submitted_s: dict[str, float] = field(default_factory=dict)
    """Job id -> when it was submitted."""
    cancelled: set[str] = field(default_factory=set)
    """Jobs that their user cancelled."""
    refused: int = 0
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    """Numbers for the names of jobs. Jobs that are submitted at the same time must not share a name: it is that of the
    file in which a job notes its end."""

    async def submit(
        self, runs_s: float, nodes: int = 1, machine: str = "", *, can_requeue: bool = False
    ) -> str | None:
        name = f"{PREFIX}{next(self.numbers)}"
        where = [f"--nodelist={machine}"] if machine else [f"--nodes={nodes}", "--ntasks-per-node=1"]
        requeue = "--requeue" if can_requeue else "--no-requeue"
        limits = ["--mem=16", f"--time={LIMIT_MINUTES}", requeue, "--chdir=/tmp", "--output=/dev/null"]
        note = f"/shared/{NOTES}/{name}"
        ran = await self.cluster.as_user(
            "sbatch", "--parsable", f"--job-name={name}", *where, *limits, f"--wrap={_work(note, runs_s)}"
        )
        if ran.returncode != 0 or not ran.stdout.strip().isdigit():
            self.refused += 1
            self.cluster.journal.note("job", f"not accepted by Slurm: {ran.stderr.strip()[-150:]}")
            return None
        job_id = ran.stdout.strip()
        self.submitted[job_id], self.submitted_s[job_id], self.named[job_id] = name, time.time(), machine
        where_text = f"on {machine}" if machine else f"on {nodes} node(s)"
        self.cluster.journal.note("job", f"{job_id} runs {runs_s:.0f} s {where_text}")
        return job_id

    async def cancel(self, job_ids: Iterable[str]) -> None:
        """Cancel jobs as their user does."""
        wanted = sorted(set(job_ids) - self.cancelled)
        if wanted:
            self.cancelled.update(wanted)
            await self.cluster.as_user("scancel", *wanted)
            self.cluster.journal.note("job", f"{', '.join(wanted)}: cancelled by {USER}")

    async def ended(self) -> list[Ended] | None:
        """Return all rows of `sacct` about the jobs; None if the accounting does not answer."""
        command = ["env", "SLURM_TIME_FORMAT=%s", "sacct", "-a", "-X", "-D", "-n", "-P", "-S", "now-1days"]
        ran = await self.cluster.on(HEAD, *command, "-o", _FIELDS)
        if ran.returncode != 0:
            return None
        rows = [row for line in ran.stdout.splitlines() if len(row := line.split("|")) == len(_FIELDS.split(","))]
        jobs = [_ended(row) for row in rows if row[0] in self.submitted]
        ids = Counter(job_id for job_id, _ in {(job.job_id, job.submit_s) for job in jobs})
        return [
            replace(
                job,
                shares_id=ids[job.job_id] > 1,
                is_noted=self.is_noted(job.name),
                named=self.named.get(job.job_id, ""),
            )
            for job in jobs
        ]

    def is_noted(self, name: str) -> bool:
        """Return whether the job began once, and noted its own end."""
        file = self._note(name)
        return file.exists() and file.read_text().split() == ["begin", "end"]

    def noted_s(self) -> dict[str, float]:
        """Return job id -> when the job noted its end."""
        names = {job_id: name for job_id, name in self.submitted.items() if self.is_noted(name)}
        return {job_id: self._note(name).stat().st_mtime for job_id, name in names.items()}

    def _note(self, name: str) -> Path:
        return self.cluster.lab.store.shared / NOTES / name


def _work(note: str, runs_s: float) -> str:
    """Return the script of a job. Without the folder of notes it works, too."""
    return f"mkdir -p {note.rpartition('/')[0]}; echo begin >> {note}; sleep {runs_s:.0f} && echo end >> {note}"


def _ended(row: list[str]) -> Ended:
    job_id, name, state, nodes, submit, start, end, reason = row
    submitted_s = _moment(submit, time.time())
    machines = frozenset(hosts(nodes)) if nodes != "None assigned" else frozenset()
    start_s, end_s = _moment(start, submitted_s), _moment(end, time.time())
    return Ended(job_id, name, state, machines, start_s, end_s, reason, submitted_s)


def _moment(text: str, otherwise_s: float) -> float:
    return float(text) if text.isdigit() else otherwise_s


def ended_by_us(
    job: Ended,
    cancelled: set[str],
    harms: Collection[Harm],
    forced: Iterable[Forced],
    returns: Collection[Return] = (),
) -> str:
    """Return why the end of the job is the fault of the platform or the app; empty if it is not. Pure."""
    if not job.is_over or job.is_noted or job.state.startswith(("COMPLETED", "TIMEOUT")):
        return ""
    if any(force.machine in job.machines | {job.named} and force.at_s <= job.end_s + 5 for force in forced):
        return ""
    if job.shares_id or any(harm.made_forgotten(job.submit_s, job.start_s) for harm in harms):
        return ""
    # A return shows jobs that ended before it as cancelled by root.
    is_closed = any(made.began_s <= job.end_s <= made.ended_s for made in returns)
    if any(made.loses(job.start_s) for made in returns) or (is_closed and job.job_id in cancelled):
        return ""
    reached = job.machines | {HEAD}
    if job.state == "CANCELLED" and any(harm.covers(reached, job.start_s, job.end_s) for harm in harms):
        return ""  # By no user, and slurmctld could not reach the node: it cancels a job whose start has failed.
    if job.state.startswith("CANCELLED") and not is_closed:
        # Only root cancels jobs for the app. A user who cancels is named, too.
        own = job.job_id in cancelled and not job.state.endswith(" by 0")
        return "" if own else f"job {job.job_id} is {job.state} on {', '.join(job.machines) or 'no node'}"
    if any(harm.covers(job.machines, job.start_s, job.end_s) for harm in harms):
        return ""
    where = ", ".join(sorted(job.machines)) or "no node"
    return f"job {job.job_id} is {job.state} on {where} ({job.reason}), and no fault of ours explains it"


def is_brought_back(ended_s: float | None, at_s: float, returns: Iterable[Return]) -> bool:
    """Return whether a job that Slurm shows at this time had ended before a return brought its record back. Pure."""
    return ended_s is not None and any(ended_s < made.began_s <= at_s for made in returns)


def unrecorded(job_id: str, submit_s: float, harms: Iterable[Harm], returns: Iterable[Return]) -> str:
    """Return why it is our fault that accounting has no record of a job; empty if it is not. Pure."""
    if any(made.loses(submit_s) for made in returns):
        return ""
    if any(harm.made_forgotten(submit_s, submit_s) for harm in harms):
        return ""
    return f"job {job_id} has no record in accounting, noted no end, and no fault of ours explains it"
