"""Settings of a running cluster are changed on a fake Slurm: in use at once, taken back, refused, and after crashes."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from crashes import ended_despite_crash
from gpuaas_app_slurm import controller
from gpuaas_app_slurm.workload import config, footprint
from gpuaas_app_slurm_conformance.fake_slurm import FakeJob, running
from gpuaas_app_slurm_conformance.fresh_machines import QUICK, NewCluster, new_cluster

SHORT = {"name": "short", "default_time": "00:10:00", "max_time": "01:00:00", "priority_tier": 10}
MEMBERS = {"controller": ["gpu-1"], "worker": ["gpu-2", "gpu-3"]}


@contextlib.asynccontextmanager
async def deployed(**inputs: Any) -> AsyncIterator[NewCluster]:
    async with new_cluster(MEMBERS, **inputs) as cluster:
        ended = await cluster.perform("deploy")
        assert ended.status == "succeeded", ended.error
        yield cluster


async def change(cluster: NewCluster, **inputs: Any) -> Any:
    operation = cluster.platform.reconfigure(cluster.instance, inputs)
    return await cluster.platform.ended(operation.operation_id)


def conf(cluster: NewCluster) -> str:
    return cluster.host("gpu-1").files[config.SLURM_CONF].decode()


def inputs_of(cluster: NewCluster) -> dict[str, Any]:
    return cluster.platform.records.instances[cluster.instance.instance_id].inputs


async def test_changed_settings_are_in_use_and_in_the_access_bundle() -> None:
    async with deployed() as cluster:
        cluster.slurm.jobs = [FakeJob(7)]
        ended = await change(cluster, default_time="02:00:00", partitions=[SHORT])
        assert ended.status == "succeeded", ended.error
        assert "DefaultTime=02:00:00" in cluster.slurm.conf
        assert "PartitionName=short " in cluster.slurm.conf
        notes = "\n".join(cluster.platform.access_bundle(cluster.instance).notes)
        assert "--partition=short" in notes
        assert "gets 02:00:00" in notes
        assert [job.job_id for job in cluster.slurm.jobs] == [7]
        assert set(cluster.statuses().values()) == {"ready"}


async def test_a_repair_after_a_change_keeps_the_new_settings() -> None:
    async with deployed() as cluster:
        await change(cluster, default_time="02:00:00")
        head = cluster.host("gpu-1")
        new = conf(cluster)
        head.files[config.SLURM_CONF] = b"an edit by hand"
        ended = await cluster.perform("repair", [cluster.member_of(cluster.instance, "gpu-1")])
        assert ended.status == "succeeded", ended.error
        assert conf(cluster) == new
        assert "DefaultTime=02:00:00" in cluster.slurm.conf


async def test_settings_that_slurm_refuses_are_taken_back() -> None:
    async with deployed() as cluster:
        old, cluster.slurm.refuses = conf(cluster), "MessageTimeout=30"
        ended = await change(cluster, extra_settings={"MessageTimeout": 30})
        assert ended.status == "failed"
        assert "the old ones were put back: slurm_reconfigure error: MessageTimeout=30" in ended.error.message
        assert (conf(cluster), cluster.slurm.conf) == (old, "\n".join(old.splitlines()))
        assert "extra_settings" not in inputs_of(cluster)


async def test_a_change_is_made_although_slurmctld_is_killed_while_it_reads_the_settings() -> None:
    async with deployed() as cluster:
        cluster.slurm.ends_at, cluster.slurm.ends_times = "MessageTimeout=30", 1
        ended = await change(cluster, extra_settings={"MessageTimeout": 30})
        assert ended.status == "succeeded", ended.error
        assert "MessageTimeout=30" in cluster.slurm.conf


async def test_settings_that_end_slurmctld_are_tried_twice_and_taken_back() -> None:
    async with deployed() as cluster:
        old, cluster.slurm.ends_at, cluster.slurm.ends_times = conf(cluster), "MessageTimeout=30", 5
        ended = await change(cluster, extra_settings={"MessageTimeout": 30})
        assert (ended.status, "the old ones were put back" in ended.error.message) == ("failed", True), ended.error
        assert (cluster.slurm.ends_times, cluster.slurm.is_up, conf(cluster)) == (3, True, old)


async def test_settings_that_slurm_reads_and_does_not_use_are_taken_back() -> None:
    async with deployed() as cluster:
        old, cluster.slurm.ignores = conf(cluster), "MessageTimeout"
        ended = await change(cluster, extra_settings={"MessageTimeout": 30})
        assert "MessageTimeout is not shown, not 30" in ended.error.message
        assert conf(cluster) == old


@pytest.mark.parametrize(("jobs", "extra", "needed"), [(6, {"MaxJobCount": 11}, 12), (5001, {}, 10002)])
async def test_a_limit_with_which_slurmctld_would_drop_jobs_is_refused(
    jobs: int, extra: dict[str, int], needed: int
) -> None:
    """It reads its state again with each change of its settings, and leaves out the jobs over the limit."""
    async with deployed(extra_settings={"MaxJobCount": 100_000}) as cluster:
        old, cluster.slurm.jobs = conf(cluster), [FakeJob(number) for number in range(1, jobs + 1)]
        ended = await change(cluster, extra_settings=extra)
        assert (ended.error.failure_class, conf(cluster)) == ("refused", old)
        assert f"use {needed} or more for MaxJobCount" in ended.error.fix
        cluster.slurm.jobs.pop()
        ended = await change(cluster, extra_settings=extra)
        assert ended.status == "succeeded", ended.error


async def test_a_change_is_refused_while_slurmctld_does_not_answer() -> None:
    async with deployed() as cluster:
        old, cluster.slurm.is_up = conf(cluster), False
        ended = await change(cluster, default_time="02:00:00")
        assert (ended.error.failure_class, "DOWN" in ended.error.message) == ("refused", True)
        assert conf(cluster) == old


async def test_a_change_that_does_not_fit_is_refused_before_any_step() -> None:
    async with deployed() as cluster:
        ended = await change(cluster, default_time="8-00:00:00")
        assert (ended.error.failure_class, ended.steps) == ("refused", [])
        assert "longer than max_time" in ended.error.message


async def test_a_change_does_not_depend_on_one_unwell_machine_and_leaves_its_member_as_it_is() -> None:
    async with deployed() as cluster:
        member = cluster.member_of(cluster.instance, "gpu-2")
        cluster.platform.records.members[member.member_id] = msgspec.structs.replace(member, status="degraded")
        ended = await change(cluster, default_time="02:00:00")
        assert ended.status == "succeeded", ended.error
        assert (cluster.statuses()["gpu-2"], inputs_of(cluster)["default_time"]) == ("degraded", "02:00:00")


async def test_a_partition_with_jobs_is_not_removed() -> None:
    async with deployed(partitions=[SHORT]) as cluster:
        cluster.slurm.jobs = [FakeJob(7), FakeJob(8, node="", partition="main,short")]
        ended = await change(cluster, partitions=[])
        assert ended.error.failure_class == "refused"
        assert "partition short cannot be removed: 1 job running or queued: 8 (ada, PENDING)" in ended.error.message
        assert "PartitionName=short" in cluster.slurm.conf
        assert cluster.slurm.partition_states == []


async def test_a_job_that_arrives_while_its_partition_is_closed_keeps_it() -> None:
    async with deployed(partitions=[SHORT]) as cluster:
        cluster.slurm.jobs_at_close = [FakeJob(9, partition="short")]
        ended = await change(cluster, partitions=[])
        assert (ended.error.failure_class, "9 (ada, RUNNING)" in ended.error.message) == ("refused", True)
        assert (cluster.slurm.closed, "PartitionName=short" in conf(cluster)) == ({"short": "UP"}, True)


async def test_a_file_that_was_edited_by_hand_stops_a_change() -> None:
    async with deployed() as cluster:
        edited = conf(cluster).replace("ReturnToService=2", "ReturnToService=1")
        cluster.host("gpu-1").files[config.SLURM_CONF] = edited.encode()
        ended = await change(cluster, default_time="02:00:00")
        assert (ended.error.failure_class, config.SLURM_CONF in ended.error.message) == ("refused", True)
        assert conf(cluster) == edited


async def test_a_cluster_of_an_earlier_release_gets_its_files_remembered_first() -> None:
    async with deployed() as cluster:
        head = cluster.host("gpu-1")
        head.saved.clear()
        del head.files[footprint.FILES_LIST]
        old, cluster.slurm.refuses = conf(cluster), "DefaultTime=02:00:00"
        ended = await change(cluster, default_time="02:00:00")
        assert (ended.status, conf(cluster)) == ("failed", old)


async def test_an_undone_change_has_the_settings_of_before() -> None:
    async with deployed() as cluster:
        old, cluster.slurm.refuses = conf(cluster), "DefaultTime=02:00:00"
        failed = await change(cluster, default_time="02:00:00")
        cluster.platform.compensate(failed.operation_id)
        undone = await cluster.platform.ended(failed.operation_id)
        assert undone.status == "cancelled", undone.error
        assert (conf(cluster), cluster.slurm.conf) == (old, "\n".join(old.splitlines()))


async def test_a_decommission_closes_every_partition() -> None:
    async with deployed(partitions=[SHORT]) as cluster:
        ended = await cluster.perform("decommission")
        assert ended.status == "succeeded", ended.error
        assert cluster.slurm.closed == {"main": "down", "short": "down"}


async def test_a_preview_shows_the_changes_and_the_jobs_that_they_concern() -> None:
    async with deployed(partitions=[SHORT]) as cluster:
        cluster.slurm.jobs = [
            FakeJob(7, limit_minutes=600, gpus=8, started_at=1),
            FakeJob(8, node="", limit_minutes=600),
            FakeJob(9, partition="short"),
        ]
        asked = cluster.platform.ask_preview(
            cluster.instance,
            "reconfigure",
            inputs={"max_time": "02:00:00", "default_time": "01:00:00", "partitions": []},
        )
        preview = (await cluster.platform.ended(asked.operation_id)).preview
        assert preview is not None
        assert [change.subject for change in preview.changes] == ["default_time", "max_time", "partition short"]
        assert [work.work_id for work in preview.running_work] == ["9", "7", "8"]
        assert preview.gpu_hours_at_stake == 0
        assert any("Queued jobs do not start" in note and "8 (ada)" in note for note in preview.notes)


async def test_a_controller_that_dies_before_any_command_still_changes_the_settings() -> None:
    """Killed before the first command, then before the second, and so on, each time during another change."""
    async with deployed() as cluster:
        pass
    head, commands, hung = cluster.host("gpu-1"), 0, True
    while hung:
        wanted = {"default_time": f"{commands % 20 + 1:02d}:00:00", "partitions": [SHORT] if commands % 2 else []}
        operation = cluster.platform.reconfigure(cluster.instance, wanted)
        ended, hung = await ended_despite_crash(cluster, operation.operation_id, commands)
        assert ended.status == "succeeded", (commands, ended.error)
        assert f"DefaultTime={wanted['default_time']}" in cluster.slurm.conf
        assert ("PartitionName=short" in cluster.slurm.conf) == bool(wanted["partitions"])
        assert head.saved[config.SLURM_CONF] == head.files[config.SLURM_CONF]
        commands += 1
    assert commands > 10


async def test_a_controller_that_dies_in_every_step_still_changes_the_settings() -> None:
    async with deployed() as cluster:
        pass
    operation = cluster.platform.reconfigure(cluster.instance, {"default_time": "02:00:00", "partitions": [SHORT]})
    crashed: set[str] = set()

    def fresh(seen: Any) -> set[str]:
        return {step.name for step in seen.steps if step.state == "running"} - crashed

    while True:
        async with running(controller.build(QUICK), cluster):
            seen = await cluster.platform.until(
                operation.operation_id, lambda seen: seen.status in ("succeeded", "failed") or bool(fresh(seen))
            )
            if seen.status in ("succeeded", "failed"):
                break
            crashed |= fresh(seen)
        cluster.platform.expire_lease(operation.operation_id)
    assert (seen.status, crashed) == ("succeeded", {"change the settings", "remember the settings"}), seen.error
    assert "PartitionName=short " in cluster.slurm.conf
    assert cluster.host("gpu-1").saved[config.SLURM_CONF] == conf(cluster).encode()
