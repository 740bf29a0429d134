"""What must be true at the end of a campaign, each as one row of the table that it prints."""

import asyncio
import subprocess
import time
from collections.abc import Iterable
from typing import NamedTuple

from gpuaas_contract import lifecycles
from gpuaas_contract.events import Event
from gpuaas_contract.operations import Operation

from bench.campaign import instance_acts
from bench.campaign.acts import Acts
from bench.campaign.cluster import Cluster
from bench.campaign.faults import Faults
from bench.campaign.jobs import Ended, Jobs, ended_by_us, unrecorded
from bench.campaign.parts import BIN
from bench.campaign.watch import Watch, stale_evidence

FRESH_JOB_S = 90.0
ACCOUNTING_S = 60.0
"""How long accounting may take to show a job after a fault."""


class Judged(NamedTuple):
    """The jobs of accounting, those that were ended by us, those without a record, and how many a return lost."""

    rows: list[Ended]
    ours: list[tuple[float, str]]
    unrecorded: list[str]
    lost: int


async def check(cluster: Cluster, acts: Acts, jobs: Jobs, watch: Watch, faults: Faults) -> None:
    await same_nodes(cluster)
    await a_job_runs_everywhere(cluster)
    done = await cluster.all_operations()
    await jobs_survived(cluster, acts, jobs, faults)
    drained_is_true(cluster, watch, jobs, faults, done, 0.0)
    evidence_is_fresh(cluster, watch, done)
    stored = await watch.stored()
    events_have_no_gap(cluster, stored, watch.events)
    one_end_each(cluster, done, stored)
    await audit_verifies(cluster)
    await machines_are_clean(cluster)


async def same_nodes(cluster: Cluster) -> None:
    members = {item.node_name: item for item in await cluster.members() if item.component_key != "controller"}
    nodes = await cluster.node_names()
    if nodes is None:
        cluster.journal.violated("members", "Slurm does not show its nodes")
    elif nodes != set(members):
        cluster.journal.violated("members", f"the platform has {sorted(members)}, Slurm has {sorted(nodes)}")
    cluster.journal.note("check", f"members {sorted(members)} = nodes {sorted(nodes or ())}")


async def a_job_runs_everywhere(cluster: Cluster) -> None:
    ready = sorted(
        item.node_name for item in await cluster.members() if item.component_key == "worker" and item.status == "ready"
    )
    if not ready:
        cluster.journal.note("check", "no worker is ready, so no job was tried")
        return
    where = [f"--nodes={len(ready)}", f"--nodelist={','.join(ready)}", "--ntasks-per-node=1", "--mem=16", "--time=2"]
    ran = await cluster.as_user("srun", "--chdir=/tmp", *where, "hostname", timeout_s=FRESH_JOB_S)
    if sorted(ran.stdout.split()) != ready:
        cluster.journal.violated("fresh job", f"on {ready}: printed {ran.stdout.split()}, {ran.stderr.strip()[-300:]}")
    cluster.journal.note("check", f"a fresh job ran on {', '.join(ready)}")


async def jobs_survived(cluster: Cluster, acts: Acts, jobs: Jobs, faults: Faults, since_s: float = 0.0) -> None:
    """Judge every job. Accounting can be late after a fault, so what it does not show yet is read again."""
    deadline = time.monotonic() + ACCOUNTING_S
    while True:
        judged = await _judged(cluster, acts, jobs, faults, since_s)
        if (judged is not None and not judged.unrecorded) or time.monotonic() >= deadline:
            break
        await asyncio.sleep(2.0)
    if judged is None:
        cluster.journal.violated("jobs", "sacct does not answer")
        return
    for at_s, text in (*judged.ours, *((None, text) for text in judged.unrecorded)):
        cluster.journal.violated("jobs", text, at_s)
    states = sorted({row.state.split()[0] for row in judged.rows})
    counts = ", ".join(f"{state} {sum(row.state.startswith(state) for row in judged.rows)}" for state in states)
    lost = f"; {judged.lost} lost by a return to an earlier state" if judged.lost else ""
    cluster.journal.note("check", f"{len(judged.rows)} jobs: {counts}{lost}")


async def _judged(cluster: Cluster, acts: Acts, jobs: Jobs, faults: Faults, since_s: float) -> Judged | None:
    rows = await jobs.ended()
    if rows is None:
        return None
    made = instance_acts.returns(await cluster.all_operations(), time.time())
    recent = [row for row in rows if row.end_s >= since_s]
    ours = [
        (row.end_s, reason)
        for row in recent
        if (reason := ended_by_us(row, jobs.cancelled, faults.harms, acts.forced, made))
    ]
    missing = {
        job_id: submit_s
        for job_id, submit_s in jobs.submitted_s.items()
        if submit_s >= since_s
        and job_id not in {row.job_id for row in rows} | jobs.cancelled
        and not jobs.is_noted(jobs.submitted[job_id])
    }
    texts = [unrecorded(job_id, submit_s, faults.harms, made) for job_id, submit_s in missing.items()]
    lost = sum(any(each.loses(submit_s) for each in made) for submit_s in missing.values())
    return Judged(recent, ours, [text for text in texts if text], lost)


def drained_is_true(
    cluster: Cluster, watch: Watch, jobs: Jobs, faults: Faults, done: list[Operation], since_s: float
) -> None:
    made = instance_acts.returns(done, time.time())
    for at_s, text in watch.drained_while_work_ran(done, faults, since_s, made, jobs.noted_s()):
        cluster.journal.violated("drained", text, at_s)


def evidence_is_fresh(cluster: Cluster, watch: Watch, done: Iterable[Operation]) -> None:
    for item in done:
        for text in stale_evidence(item, watch.events):
            cluster.journal.violated("evidence", text)


def events_have_no_gap(cluster: Cluster, stored: list[Event], seen: list[Event]) -> None:
    cursors, followed = [event.cursor for event in stored], [event.cursor for event in seen]
    if cursors != sorted(set(cursors)):
        cluster.journal.violated("events", "the stored events are not in one order")
    if followed != cursors[: len(followed)]:
        cluster.journal.violated("events", f"a watcher received {len(followed)} events, and others are stored")
    status: dict[str, str] = {}
    for event in stored:
        if event.type == "apps.member.changed":
            change = event.payload
            before = status.get(change["member_id"], change["was"])
            if before != change["was"]:
                text = f"{change['node_name']} was {before}, and the next event is from {change['was']}"
                cluster.journal.violated("events", text, event.occurred_at.timestamp())
            status[change["member_id"]] = change["status"]
    cluster.journal.note("check", f"{len(cursors)} events, {len(followed)} of them followed live")


def one_end_each(cluster: Cluster, done: Iterable[Operation], stored: Iterable[Event]) -> None:
    """An operation ends once, and again only after an exit that opened it again."""
    ended: dict[str, str] = {}
    for event in stored:
        operation_id = event.payload.get("operation_id", "")
        if event.type == "apps.operation.ended":
            if ended.get(operation_id):
                text = f"{operation_id} ended {ended[operation_id]} and then {event.payload['status']}"
                cluster.journal.violated("one end", text, event.occurred_at.timestamp())
            ended[operation_id] = event.payload["status"]
        elif event.type == "apps.operation.exit" and event.payload["exit"] != "cancel":
            ended.pop(operation_id, None)
    for item in done:
        if item.status not in lifecycles.ENDED_OPERATION:
            cluster.journal.violated("one end", f"{item.kind} {item.operation_id} is still {item.status}")
        elif ended.get(item.operation_id, item.status) != item.status:
            cluster.journal.violated(
                "one end", f"{item.operation_id} is {item.status}, its event shows {ended[item.operation_id]}"
            )


async def audit_verifies(cluster: Cluster) -> None:
    command = [str(BIN / "gpuaas-platform"), "audit", "verify", "--data", str(cluster.folder / "data")]
    ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        cluster.journal.violated("audit", ran.stdout[-300:] + ran.stderr[-300:])
    cluster.journal.note("check", f"audit: {' '.join(ran.stdout.split())[-120:]}")


async def machines_are_clean(cluster: Cluster) -> None:
    """Nothing is left on machines of removed members, and after a decommission nothing on the others."""
    used = {member.node_name for member in await cluster.members()}
    error = await cluster.decommission()
    if error:
        cluster.journal.violated("healthy", f"the decommission of a healed cluster failed: {error}")
    for machine in cluster.machines:
        if error and machine in used:
            continue
        left = await cluster.state_of(machine)
        how = "decommissioned" if machine in used else "removed before"
        cluster.journal.note("check", f"{machine} ({how}): {len(left)} differences from its state before Slurm")
        if left:
            cluster.journal.violated("clean", f"{machine} ({how}): {'; '.join(left[:12])}")
