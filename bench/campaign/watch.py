"""Look at the cluster from outside while a campaign runs: which jobs run where, and each event of the project."""

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from gpuaas_app_slurm.workload.state import hosts
from gpuaas_contract.events import EVENT_LIST, Event
from gpuaas_contract.operations import EVIDENCE_FRESH_FOR_S, Operation

from bench.campaign.cluster import HEAD, Cluster
from bench.campaign.faults import Faults
from bench.campaign.jobs import Return, is_brought_back

EVERY_S = 1.0
RESUMING = ("resume", "repair", "start", "replace")
"""Kinds of operations that let jobs run on a drained member."""


@dataclass(frozen=True)
class Sample:
    """The jobs that occupied nodes at some moment between two times."""

    from_s: float
    until_s: float
    jobs: dict[str, list[str]]
    """Machine -> ids of jobs that run there, or are about to end."""


@dataclass
class Watch:
    cluster: Cluster
    samples: list[Sample] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    async def look(self) -> None:
        """Ask Slurm for running jobs, again and again."""
        while True:
            from_s = time.time()
            ran = await self.cluster.on(HEAD, "squeue", "-h", "-t", "R,CG", "-o", "%i|%N", timeout_s=10)
            if ran.returncode == 0:
                self.samples.append(Sample(from_s, time.time(), _jobs(ran.stdout)))
            await asyncio.sleep(EVERY_S)

    async def follow(self) -> None:
        """Collect every event of the project."""
        async for event in self.cluster.project.client.events(self.cluster.project.project_id):
            self.events.append(event)

    async def stored(self) -> list[Event]:
        """Return the events that the platform has now."""
        events: list[Event] = []
        cursor = 0
        while True:
            page = await self.cluster.project.client.call(
                EVENT_LIST, query={"after": cursor}, project_id=self.cluster.project.project_id
            )
            if not page.items:
                return events
            events += page.items
            cursor = page.cursor

    def drained_while_work_ran(
        self,
        done: Iterable[Operation],
        faults: Faults,
        since_s: float,
        returns: Collection[Return] = (),
        noted_s: Mapping[str, float] | None = None,
    ) -> list[tuple[float, str]]:
        """Return each time that a member was shown as drained although a job ran on it. `noted_s`: job id -> when the
        job noted its end. Slurm shows a job that ended as running if a return brought its record back."""
        wrong, ended_s = [], noted_s or {}
        changing = [item for item in done if item.kind in (*RESUMING, "drain", "remove")]
        for machine, member_id, from_s, until_s in drained_times(self.events, time.time()):
            for sample in self.samples:
                inside = from_s < sample.from_s and sample.until_s < until_s and sample.from_s >= since_s
                shown = sample.jobs.get(machine, ()) if inside else ()
                jobs = [job for job in shown if not is_brought_back(ended_s.get(job), sample.from_s, returns)]
                if not jobs:
                    continue
                if _is_resumed(changing, member_id, sample) or _is_given_up(changing, member_id, sample):
                    continue
                if faults.forgot_drain(from_s, sample.until_s):
                    continue
                text = (
                    f"{machine} was drained since {_clock(from_s)}; jobs {', '.join(jobs)} at {_clock(sample.from_s)}"
                )
                wrong.append((sample.from_s, text))
        return wrong


def drained_times(events: Iterable[Event], now_s: float) -> list[tuple[str, str, float, float]]:
    """Return machine, member, begin and end of each time in which a member was shown as drained."""
    times: list[tuple[str, str, float, float]] = []
    since: dict[str, tuple[str, float]] = {}
    for event in events:
        if not event.type.startswith("apps.member.") or "was" not in event.payload:
            continue
        member_id, machine = event.payload["member_id"], event.payload["node_name"]
        at_s = event.occurred_at.timestamp()
        if event.payload["status"] == "drained":
            since.setdefault(member_id, (machine, at_s))
        elif member_id in since:
            machine, from_s = since.pop(member_id)
            times.append((machine, member_id, from_s, at_s))
    return times + [(machine, member_id, from_s, now_s) for member_id, (machine, from_s) in since.items()]


def stale_evidence(operation: Operation, events: Iterable[Event]) -> list[str]:
    """Return each member whose removal began without evidence, or with evidence that was too old."""
    if operation.force:
        return []
    began = {
        event.payload["member_id"]: event.occurred_at
        for event in events
        if event.type.startswith("apps.member.")
        and event.payload.get("status") == "removing"
        and event.payload.get("operation_id") == operation.operation_id
        and event.payload.get("was") in ("ready", "degraded", "draining", "drained")
    }
    wrong = []
    for target in operation.targets:
        if target.member_id not in began:
            continue
        if target.evidence is None:
            wrong.append(f"{operation.operation_id}: {target.member_id} was removed without evidence")
            continue
        age_s = (began[target.member_id] - target.evidence.observed_at).total_seconds()
        if age_s > EVIDENCE_FRESH_FOR_S or target.evidence.state != "idle":
            wrong.append(
                f"{operation.operation_id}: {target.member_id} was removed with evidence {target.evidence.state}, "
                f"{age_s:.1f} s old"
            )
    return wrong


def _is_resumed(done: Iterable[Operation], member_id: str, sample: Sample) -> bool:
    """Return whether an operation that may let jobs run on the member was in progress, or its undo."""
    return any(
        _works_on(item, member_id, sample) and (item.kind in RESUMING or bool(item.exits_taken)) for item in done
    )


def _is_given_up(done: Iterable[Operation], member_id: str, sample: Sample) -> bool:
    """Return whether a person declared the drain as done, without an observation."""
    return any(
        member_id in {target.member_id for target in item.targets}
        and any(taken.name == "force_complete" for taken in item.exits_taken)
        and item.created_at.timestamp() <= sample.from_s
        for item in done
    )


def _works_on(item: Operation, member_id: str, sample: Sample) -> bool:
    from_s = item.created_at.timestamp()
    until_s = item.ended_at.timestamp() + 1 if item.ended_at else time.time()
    return member_id in {target.member_id for target in item.targets} and from_s <= sample.until_s <= until_s + EVERY_S


def _jobs(text: str) -> dict[str, list[str]]:
    jobs: dict[str, list[str]] = {}
    for line in text.splitlines():
        job_id, _, nodes = line.partition("|")
        for machine in hosts(nodes):
            jobs.setdefault(machine, []).append(job_id)
    return jobs


def _clock(at_s: float) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(at_s)) + f".{int(at_s * 10) % 10}"
