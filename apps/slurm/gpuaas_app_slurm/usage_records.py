"""Turn jobs that ended into usage records of the platform. Pure; `usage` reports them."""

import datetime
from collections.abc import Iterable, Sequence

from gpuaas_sdk.controller import ReportedUsage

from gpuaas_app_slurm.workload.job_records import JobRecord

TEXT_MAX = 200
EARLIEST = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
AHEAD_MAX = datetime.timedelta(hours=23)
"""The platform accepts no record that ends more than a day ahead."""


def of(cluster_name: str, jobs: Iterable[JobRecord]) -> list[ReportedUsage]:
    """Return the usage of ended jobs: their CPU time, and their GPU time if they had GPUs. Pure.

    The same run of a job always gives the same records, so they can be reported again."""
    return [record for job in jobs if job.ended_at is not None for record in _records(cluster_name, job, job.ended_at)]


def is_plausible(record: ReportedUsage, now: datetime.datetime) -> bool:
    """Return whether the platform accepts the times of the record: the clock of the machine may be wrong."""
    return record.started_at >= EARLIEST and record.ended_at <= now + AHEAD_MAX


def _records(cluster_name: str, job: JobRecord, ended_at: int) -> Sequence[ReportedUsage]:
    if job.started_at is None:
        return ()
    meters = {"cpu-time": job.cpu_s} | ({"gpu-time": job.gpu_s} if job.gpus else {})
    return [_record(cluster_name, job, job.started_at, ended_at, meter, quantity) for meter, quantity in meters.items()]


def _record(
    cluster_name: str, job: JobRecord, started_at: int, ended_at: int, meter: str, quantity: int
) -> ReportedUsage:
    return ReportedUsage(
        record_id=f"{cluster_name}/{job.job_id}/{job.submitted_at}/{meter}",
        meter=meter,
        quantity=str(quantity),
        unit="s",
        started_at=_moment(started_at),
        # The clock of slurmctld can have been set back while the job ran.
        ended_at=_moment(max(started_at, ended_at)),
        subject=job.user[:TEXT_MAX],
        attributes={
            "job": job.job_id,
            "account": job.account[:TEXT_MAX],
            "partition": job.partition[:TEXT_MAX],
            "state": job.state[:TEXT_MAX],
            "elapsed_s": str(job.elapsed_s),
            "nodes": str(job.nodes),
            "gpus": str(job.gpus),
        },
    )


def _moment(seconds: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)
