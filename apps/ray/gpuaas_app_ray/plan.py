"""Decisions of the app. Pure: facts in, facts out, so tests need no machines."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

HEAD, WORKER = "head", "worker"
WORKERS_MAX = 64
OBJECT_STORE_MIB_MIN = 80
"""Ray does not start with less."""


def start_options(role: str, address: str, head: str, inputs: Mapping[str, Any], facts: Sequence[int]) -> str:
    """Return the options of `ray start` on a machine with these CPUs, memory and shared memory in MiB."""
    cpus, memory_mib, shared_mib = facts
    store_mib = max(inputs.get("object_store_mib") or min(memory_mib // 10, shared_mib // 2), OBJECT_STORE_MIB_MIN)
    offered = inputs.get("head_cpus", 0) if role == HEAD else inputs.get("cpus_per_worker") or cpus
    joins = f"--address={head}:6379" if role == WORKER else "--head --port=6379 --dashboard-host=127.0.0.1"
    return f"{joins} --node-ip-address={address} --num-cpus={offered} --object-store-memory={store_mib << 20}"


def demand(report: Mapping[str, Any], workers: int) -> dict[str, Any]:
    """Return what waits for resources, from the load report of Ray, and how many more workers would run it."""
    waiting = {"CPU": 0.0, "GPU": 0.0}
    for shape, count in report["resourceDemand"]:
        for name, amount in shape.items():
            waiting[name] = waiting.get(name, 0.0) + amount * count
    usage = {name: report["usage"].get(name, (0.0, 0.0)) for name in waiting}
    per_worker = usage["CPU"][1] / workers if workers else 0.0
    more = math.ceil(waiting["CPU"] / per_worker) if per_worker else int(any(waiting.values()))
    wanted = min(more, WORKERS_MAX - workers)
    note = f"{wanted} more workers would run what waits. {workers} of {WORKERS_MAX} are ready."
    rows = [{"resource": name, "used": used, "total": total} for name, (used, total) in usage.items()]
    return {"rows": [row | {"waiting": waiting[row["resource"]]} for row in rows], "note": note}


def job_row(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job of Ray as a row of `job.list`."""
    times = {"started_at": job["start_time"], "ended_at": job["end_time"]}
    shown = {name: datetime.fromtimestamp(ms / 1000, UTC).isoformat() for name, ms in times.items() if ms}
    texts = {name: str(job[name] or "")[:500] for name in ("status", "entrypoint", "message")}
    return {"job": job["submission_id"] or job["job_id"], "started_at": None, "ended_at": None} | shown | texts
