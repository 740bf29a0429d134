"""Usage from accounting: every run of a job is reported once, also if the controller or slurmdbd stops."""

import dataclasses
import datetime
import time
from typing import Any

import pytest
import structlog
from gpuaas_app_slurm import controller, details, usage, usage_records
from gpuaas_app_slurm.usage import Progress
from gpuaas_app_slurm.workload import job_records
from gpuaas_app_slurm.workload.job_records import Reading
from gpuaas_app_slurm_conformance.fake_slurm import CLUSTER_NAME, SETTINGS, Cluster, FakeJob, deployed_cluster, running
from gpuaas_contract.permissions import CONTROLLER_KEYS
from gpuaas_contract.usage import USAGE_REPORT, ReportedUsage
from test_slurm_health import line, node, until
from test_slurm_upgrade import deployed, roll_back, upgrade

OFTEN = dataclasses.replace(SETTINGS, health_every_s=0.05, watch_silent_s=3600)
NOW = int(time.time())
DAY = usage.WINDOW_S


def row(job_id: int, user: str = "ada", *, ago: int = 100, elapsed: int = 10, gpus: int = 0, **changes: Any) -> str:
    """Return a row of accounting, as sacct prints it."""
    start = NOW - ago
    tres = f"billing=4,cpu=4,{f'gres/gpu={gpus},' if gpus else ''}mem=16M,node=2"
    fields = {"submit": start - 5, "start": start, "end": start + elapsed, "state": "COMPLETED"} | changes
    times = f"{fields['submit']}|{fields['start']}|{fields['end']}"
    return f"{job_id}|{user}|default|main|{fields['state']}|{times}|{elapsed}|{4 * elapsed}|{tres}|2"


def reported(cluster: Cluster) -> dict[str, ReportedUsage]:
    return cluster.platform.usage.by_instance.get(cluster.instance.instance_id, {})


def totals(cluster: Cluster) -> dict[str, int]:
    sums = {"cpu-time": 0, "gpu-time": 0}
    for record in reported(cluster).values():
        sums[record.meter] += int(record.quantity)
    return sums


def watch(cluster: Cluster, ended: str, **changes: Any) -> None:
    """Have the watch print a line with this mark of ended jobs."""
    cluster.machines.host("gpu-1").printed.append(line(node("gpu-2", **changes), ended=ended))


def parse(*rows: str, unsent: str = "0") -> Reading:
    return job_records.parse("\n".join([str(NOW), unsent, *rows]) + "\n")


def test_an_ended_job_has_a_record_of_cpu_time_and_one_of_gpu_time_with_who_and_where() -> None:
    [cpu, gpu] = usage_records.of("lab", parse(row(7, gpus=2)).jobs)
    assert (cpu.meter, cpu.quantity, cpu.unit, cpu.subject) == ("cpu-time", "40", "s", "ada")
    assert (gpu.meter, gpu.quantity, gpu.record_id) == ("gpu-time", "20", f"lab/7/{NOW - 105}/gpu-time")
    assert (gpu.ended_at - gpu.started_at).total_seconds() == 10
    assert gpu.attributes | {"state": ""} == {
        "job": "7",
        "account": "default",
        "partition": "main",
        "state": "",
        "elapsed_s": "10",
        "nodes": "2",
        "gpus": "2",
    }


@pytest.mark.parametrize(
    "changes",
    [{"end": "Unknown", "state": "RUNNING"}, {"start": "None", "end": NOW, "state": "CANCELLED by 1000"}],
)
def test_jobs_that_run_or_never_started_have_no_record(changes: dict[str, Any]) -> None:
    assert usage_records.of("lab", parse(row(7, **changes)).jobs) == []


def test_each_run_of_a_job_that_was_queued_again_and_each_use_of_an_id_has_a_record_of_its_own() -> None:
    runs = parse(row(7, ago=300, state="REQUEUED"), row(7, ago=200), row(7, ago=50)).jobs
    assert len({record.record_id for record in usage_records.of("lab", runs)}) == 3


def test_a_clock_that_was_set_back_gives_no_record_that_ends_before_it_starts() -> None:
    [record] = usage_records.of("lab", parse(row(7, end=NOW - 5000)).jobs)
    assert record.ended_at == record.started_at


def test_an_answer_that_was_cut_off_is_no_reading() -> None:
    for text in ("", f"{NOW}\n", f"{NOW}\n0\n7|ada|def"):
        with pytest.raises(ValueError):
            job_records.parse(text)


@pytest.mark.parametrize(
    ("before", "end", "unsent", "wanted"),
    [
        (NOW - 60, NOW + DAY - 60, "0", Progress(NOW, "5:1")),
        (NOW - 60, NOW + DAY - 60, "3", Progress(NOW - 60)),
        (NOW - 60, NOW + DAY - 60, "unknown", Progress(NOW - 60)),
        (NOW - 3 * DAY, NOW - 2 * DAY, "0", Progress(NOW - 2 * DAY)),
        (NOW + 500, NOW + DAY + 500, "0", Progress(NOW)),
    ],
    ids=["all read", "slurmctld has more", "slurmctld does not answer", "a day of many", "the clock was set back"],
)
def test_the_time_until_which_all_is_reported_moves_only_if_accounting_had_everything(
    before: int, end: int, unsent: str, wanted: Progress
) -> None:
    assert usage.after_window(Progress(before), end, parse(unsent=unsent), "5:1") == wanted


async def test_ended_jobs_are_reported_when_the_watch_shows_them_and_nothing_is_read_while_it_does_not() -> None:
    async with deployed_cluster(settings=OFTEN) as cluster:
        cluster.slurm.ended = [row(1, gpus=1)]
        watch(cluster, "1:1")
        await until(lambda: totals(cluster) == {"cpu-time": 40, "gpu-time": 10})
        reads = len(cluster.slurm.accounting_reads)
        cluster.slurm.ended.append(row(2, "bob"))
        watch(cluster, "1:1", flags=["IDLE", "DRAIN"], reason="fan")
        await until(lambda: cluster.statuses()["gpu-2"] == "degraded")
        watch(cluster, "1:2")
        await until(lambda: totals(cluster) == {"cpu-time": 80, "gpu-time": 10})
        assert len(cluster.slurm.accounting_reads) == reads + 1


async def test_another_process_reads_again_from_the_saved_time_and_counts_nothing_twice() -> None:
    async with deployed_cluster(settings=OFTEN) as cluster:
        cluster.slurm.ended = [row(number, gpus=1) for number in range(1, 700)]
        watch(cluster, "1:1")
        await until(lambda: len(reported(cluster)) == 1398)
        before = totals(cluster)
    cluster.platform.stewards.by_instance.clear()  # as if the lease of the first process had ended
    sent = _reports(cluster)
    async with running(controller.build(OFTEN), cluster):
        await until(lambda: _reports(cluster) == sent + 2)
    assert (len(reported(cluster)), totals(cluster)) == (1398, before)


async def test_the_time_until_which_all_is_reported_is_saved_where_people_and_the_next_process_see_it() -> None:
    async with deployed_cluster(settings=OFTEN, age_s=3 * DAY + 60) as cluster:
        cluster.slurm.ended = [row(1, ago=2 * DAY)]
        watch(cluster, "1:1")
        await until(lambda: _saved(cluster) != "")
        assert totals(cluster)["cpu-time"] == 40
        assert len(cluster.slurm.accounting_reads) == 4, "a day at a time"
        assert NOW - 5 <= datetime.datetime.fromisoformat(_saved(cluster)).timestamp() <= time.time()


async def test_jobs_that_slurmctld_sends_late_are_reported_although_they_ended_before() -> None:
    async with deployed_cluster(settings=OFTEN) as cluster:
        cluster.slurm.unsent = "40"
        watch(cluster, "1:0")
        await until(lambda: len(cluster.slurm.accounting_reads) > 2)
        cluster.slurm.ended, cluster.slurm.unsent = [row(1)], "0"
        await until(lambda: totals(cluster)["cpu-time"] == 40)


async def test_a_record_that_the_platform_would_refuse_for_its_time_does_not_stop_the_others() -> None:
    async with deployed_cluster(settings=OFTEN) as cluster:
        cluster.slurm.ended = [row(1, end=NOW + 30 * DAY), row(2)]
        watch(cluster, "1:2")
        await until(lambda: [record.attributes["job"] for record in reported(cluster).values()] == ["2"])


async def test_without_the_permission_the_cluster_is_looked_at_and_no_usage_reported() -> None:
    keys = CONTROLLER_KEYS - {"usage.record.report"}
    async with deployed_cluster(settings=OFTEN, permissions=keys) as cluster:
        cluster.slurm.ended = [row(1)]
        watch(cluster, "1:1")
        await until(lambda: len(cluster.slurm.accounting_reads) == 1)
        cluster.machines.host("gpu-1").printed.append(line(node("gpu-2", flags=["IDLE", "DRAIN"], reason="fan")))
        await until(lambda: cluster.statuses()["gpu-2"] == "degraded")
        assert reported(cluster) == {}


async def test_a_decommission_reports_the_last_usage_before_accounting_is_deleted() -> None:
    async with deployed_cluster() as cluster:
        cluster.slurm.ended = [row(1), row(2, "bob")]
        assert (await cluster.perform("decommission")).status == "succeeded"
    assert totals(cluster)["cpu-time"] == 80


async def test_a_decommission_that_may_lose_usage_is_refused_and_the_cluster_continues() -> None:
    async with deployed_cluster() as cluster:
        cluster.slurm.ended, cluster.slurm.unsent = [row(1)], "3"
        refused = await cluster.perform("decommission")
        assert (refused.status, "the usage of jobs may be missing" in refused.error.message) == ("failed", True)
        assert cluster.slurm.partition_states[-1] == "up"
        forced = await cluster.perform("decommission", force=True)
        assert forced.status == "succeeded", forced.error


async def test_a_rollback_reports_the_last_usage_before_accounting_returns_to_the_backup() -> None:
    async with deployed() as cluster:
        assert (await upgrade(cluster)).status == "succeeded"
        cluster.slurm.jobs, cluster.slurm.ended = [FakeJob(7)], [row(1)]
        back = await roll_back(cluster)
        assert back.status == "succeeded", back.error
        assert totals(cluster)["cpu-time"] == 40
        names = [step.name for step in back.steps]
        ends, reports, stops = (
            names.index(name)
            for name in ("end jobs that started since", "report the last usage", "stop slurmctld and slurmdbd")
        )
        assert ends < reports < stops, "the jobs that the rollback ends count too"


async def test_a_rollback_does_not_fail_because_accounting_is_broken_and_names_the_usage_that_may_be_lost() -> None:
    async with deployed() as cluster:
        assert (await upgrade(cluster)).status == "succeeded"
        cluster.slurm.ended, cluster.slurm.unsent = [row(1)], "3"
        with structlog.testing.capture_logs() as lines:
            back = await roll_back(cluster)
        assert back.status == "succeeded", back.error
        [missing] = [entry["error"] for entry in lines if entry["event"] == "usage.not_whole"]
        assert missing == "slurmctld has not sent all ended jobs to slurmdbd yet"


async def test_a_restore_of_accounting_reports_the_last_usage_before_it_exchanges_the_database() -> None:
    async with deployed() as cluster:
        name = (await cluster.act("accounting.backup")).result["rows"][0]["name"]
        cluster.slurm.ended = [row(1)]
        ended = await cluster.act("accounting.restore", name=name, confirm=CLUSTER_NAME)
        assert ended.status == "succeeded", ended.error
        assert totals(cluster)["cpu-time"] == 40


def _reports(cluster: Cluster) -> int:
    return sum(name == USAGE_REPORT.name for name, _ in cluster.platform.calls)


def _saved(cluster: Cluster) -> str:
    member = cluster.member_of(cluster.instance, "gpu-1")
    return str(member.adapter_detail.get(details.USAGE_UNTIL, ""))
