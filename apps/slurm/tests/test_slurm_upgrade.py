"""A running cluster is upgraded and rolled back on a fake Slurm: order, held jobs, a failing canary, crashes."""

import contextlib
import dataclasses
import datetime
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest
import structlog
from crashes import ended_despite_crash
from gpuaas_app_slurm import controller, losses, worker_groups
from gpuaas_app_slurm.workload import backup, config, footprint, state, versions
from gpuaas_app_slurm_conformance.fake_slurm import FakeJob, running
from gpuaas_app_slurm_conformance.fresh_machines import QUICK, NewCluster, hangs_or_ends, new_cluster
from gpuaas_sdk.controller import Instance
from gpuaas_sdk.failures import Permanent, Refused
from gpuaas_sdk.installs import bundle, package_changes
from gpuaas_sdk.installs.bundles import command

MEMBERS = {"controller": ["gpu-1"], "worker": ["gpu-2", "gpu-3"], "login": ["gpu-4"]}
OLD, NEW = "24.11.5", "26.05.5"
STRIDE = 7
"""Commands between two kills: every one would take minutes."""
SLURM = ("slurmctld", "slurmd", "slurmdbd", "slurm-client", "slurm-wlm-mysql-plugin")


def add_version(cluster: NewCluster, slurm_version: str, more: Sequence[str] = ()) -> str:
    """Publish an app version with a bundle of this Slurm and more of its packages, and return its name."""
    files = tuple(bundle.File(name, f"{slurm_version}-1", f"{name}.deb", 1, "0" * 64) for name in (*SLURM, *more))
    index = bundle.Index(f"{slurm_version}-1", "forky", "amd64", files)
    artifact = cluster.platform.artifacts.put(footprint.SLURM.bundle_artifact, slurm_version.encode())
    cluster.slurm.bundles[artifact.digest.removeprefix("sha256:")] = bundle.encode(footprint.SLURM, index).decode()
    manifest = command.version_manifest(controller.app.manifest, footprint.SLURM, index, artifact.digest, "")
    cluster.platform.add_version(manifest)
    return manifest.version


@contextlib.asynccontextmanager
async def deployed(**inputs: Any) -> AsyncIterator[NewCluster]:
    async with new_cluster(MEMBERS, **inputs) as cluster:
        cluster.platform.add_version(msgspec.structs.replace(controller.app.manifest, version="1.0.0"))
        ended = await cluster.perform("deploy")
        assert ended.status == "succeeded", ended.error
        yield cluster


async def upgrade(cluster: NewCluster, slurm_version: str = NEW) -> Any:
    return await move(cluster, "upgrade", add_version(cluster, slurm_version))


async def roll_back(cluster: NewCluster) -> Any:
    return await move(cluster, "rollback", now(cluster).previous_version)


async def move(cluster: NewCluster, kind: Any, version: str) -> Any:
    operation = cluster.platform.request(now(cluster), kind, to_version=version)
    return await cluster.platform.ended(operation.operation_id)


def now(cluster: NewCluster) -> Instance:
    """Return the instance as it is now: its version changes."""
    return cluster.platform.instance(cluster.instance.instance_id)


def started(cluster: NewCluster, name: str) -> list[str]:
    """Return the daemons of Slurm that were started on the machine, in order."""
    return [unit for unit in cluster.host(name).started if unit.startswith("slurm")]


def installed(cluster: NewCluster) -> dict[str, str]:
    names = ("gpu-1", "gpu-2", "gpu-3", "gpu-4")
    return {name: cluster.host(name).slurm_version.split("-")[0] for name in names}


def shown(cluster: NewCluster) -> dict[str, str]:
    return {member.node_name: member.observed_version for member in cluster.platform.members(cluster.instance)}


def everywhere(version: str) -> dict[str, str]:
    return dict.fromkeys(("gpu-1", "gpu-2", "gpu-3", "gpu-4"), version)


def is_held(cluster: NewCluster) -> bool:
    return "PartitionName=main Nodes=workers Default=YES" in cluster.slurm.conf and "State=DOWN" in cluster.slurm.conf


async def test_an_upgrade_moves_the_controller_then_a_canary_then_the_others_and_keeps_jobs() -> None:
    async with deployed() as cluster:
        cluster.slurm.jobs = [FakeJob(7, node="gpu-3"), FakeJob(8, node="")]
        ended = await upgrade(cluster)
        assert ended.status == "succeeded", ended.error
        assert (installed(cluster), shown(cluster)) == (everywhere(NEW), everywhere(NEW))
        assert "MpiDefault=pmi2" in cluster.slurm.conf, "the new Slurm was built without PMIx"
        assert [job.job_id for job in cluster.slurm.jobs] == [7, 8]
        names = [(step.name, step.member_id) for step in ended.steps if step.name != "wait"]
        ids = {member.node_name: member.member_id for member in cluster.platform.members(cluster.instance)}
        assert [name for name, _ in names][:6] == [
            "check machines and packages",
            "hold queued jobs",
            "note the queue",
            "back up state and database",
            "install packages",
            "write the configuration",
        ]
        order = [names.index(("a job runs", ids[name])) for name in ("gpu-2", "gpu-3")]
        assert order[0] < names.index(("install packages", ids["gpu-3"])), "the canary runs a job before the others"
        assert started(cluster, "gpu-1")[-2:] == [f"slurmdbd {NEW}", f"slurmctld {NEW}"]
        assert not is_held(cluster)
        assert cluster.slurm.first_jobs_on[-2:] == ["gpu-2", "gpu-3"]


async def test_a_canary_that_fails_leaves_the_others_untouched_and_holds_the_queue() -> None:
    async with deployed() as cluster:
        cluster.faults.broken_units = {"gpu-2 slurmd"}
        failed = await upgrade(cluster)
        assert failed.status == "failed"
        assert "the canary failed, so no other worker was changed, and queued jobs wait" in failed.error.message
        assert f"gpuaas op compensate {failed.operation_id}" in failed.error.fix
        assert installed(cluster) == {**everywhere(OLD), "gpu-1": NEW, "gpu-2": NEW}
        assert is_held(cluster)


async def test_an_upgrade_continues_after_its_canary_was_repaired() -> None:
    async with deployed() as cluster:
        cluster.faults.broken_units = {"gpu-2 slurmd"}
        failed = await upgrade(cluster)
        cluster.faults.broken_units = set()
        cluster.platform.retry(failed.operation_id)
        ended = await cluster.platform.ended(failed.operation_id)
        assert ended.status == "succeeded", ended.error
        assert (shown(cluster), is_held(cluster)) == (everywhere(NEW), False)


async def test_an_upgrade_with_a_failed_canary_is_undone_and_keeps_the_queue() -> None:
    async with deployed() as cluster:
        cluster.slurm.jobs, cluster.slurm.next_job_id = [FakeJob(7, node="gpu-3"), FakeJob(8, node="")], 9
        cluster.faults.broken_units = {"gpu-2 slurmd"}
        failed = await upgrade(cluster)
        cluster.faults.broken_units = set()
        cluster.platform.compensate(failed.operation_id)
        undone = await cluster.platform.ended(failed.operation_id)
        assert undone.status == "cancelled", undone.error
        assert (installed(cluster), shown(cluster)) == (everywhere(OLD), everywhere(OLD))
        assert [job.job_id for job in cluster.slurm.jobs] == [7, 8]
        assert (is_held(cluster), set(cluster.statuses().values())) == (False, {"ready"})


async def test_a_second_request_continues_a_failed_upgrade_and_keeps_its_backup() -> None:
    async with deployed() as cluster:
        cluster.faults.broken_units = {"gpu-2 slurmd"}
        failed = await upgrade(cluster)
        cluster.faults.broken_units = set()
        other = await upgrade(cluster, "25.11.1")
        assert (other.error.failure_class, failed.operation_id in other.error.message) == ("refused", True)
        again = await move(cluster, "upgrade", failed.to_version)
        assert (again.status, shown(cluster)) == ("succeeded", everywhere(NEW)), again.error
        back = await roll_back(cluster)
        assert (back.status, shown(cluster)) == ("succeeded", everywhere(OLD)), back.error


async def test_the_retry_of_an_upgrade_does_not_interrupt_a_slurmdbd_that_converts_the_database() -> None:
    async with deployed() as cluster:
        cluster.faults.converting = NEW
        failed = await upgrade(cluster)
        assert "slurmdbd on gpu-1 did not answer" in failed.error.message
        cluster.faults.converting = ""
        cluster.platform.retry(failed.operation_id)
        ended = await cluster.platform.ended(failed.operation_id)
        assert ended.status == "succeeded", ended.error
        assert started(cluster, "gpu-1").count(f"slurmdbd {NEW}") == 1


async def test_the_database_of_a_large_cluster_may_be_saved_and_restored_for_an_hour() -> None:
    async with deployed() as cluster:
        assert (await upgrade(cluster)).status == "succeeded"
        assert (await roll_back(cluster)).status == "succeeded"
        ran = [(command.input.decode(), command.timeout_s) for command in cluster.host("gpu-1").commands]
        for script in (backup.SAVE, backup.RESTORE):
            assert [limit_s for text, limit_s in ran if script in text] == [3600]


async def test_an_upgrade_without_room_for_its_backup_names_the_disk_and_is_finished_by_a_retry() -> None:
    async with deployed() as cluster:
        cluster.faults.failing_script = backup.SAVE
        failed = await upgrade(cluster)
        assert ("nothing was upgraded" in failed.error.message, "df -h" in failed.error.fix) == (True, True)
        cluster.faults.failing_script = ""
        cluster.platform.retry(failed.operation_id)
        ended = await cluster.platform.ended(failed.operation_id)
        assert (ended.status, shown(cluster)) == ("succeeded", everywhere(NEW)), ended.error


async def test_a_rollback_to_a_damaged_backup_is_refused_while_nothing_has_changed() -> None:
    async with deployed() as cluster:
        cluster.slurm.jobs = [FakeJob(7)]
        await upgrade(cluster)
        cluster.slurm.jobs.append(FakeJob(9))
        cluster.faults.backup_damage = "state.tar is missing\n"
        refused = await roll_back(cluster)
        assert (refused.error.failure_class, "state.tar is missing" in refused.error.message) == ("refused", True)
        assert (installed(cluster), is_held(cluster)) == (everywhere(NEW), False)
        assert [job.job_id for job in cluster.slurm.jobs] == [7, 9]


async def test_an_upgrade_whose_backup_is_damaged_is_not_undone_and_can_be_finished() -> None:
    async with deployed() as cluster:
        cluster.faults.broken_units = {"gpu-2 slurmd"}
        failed = await upgrade(cluster)
        cluster.faults.broken_units, cluster.faults.backup_damage = set(), "database.sql is missing\n"
        cluster.platform.compensate(failed.operation_id)
        ended = await cluster.platform.ended(failed.operation_id)
        assert ended.error is not None
        assert (ended.status, "database.sql is missing" in ended.error.message) == ("failed", True)
        assert installed(cluster)["gpu-1"] == NEW
        cluster.platform.retry(failed.operation_id)
        ended = await cluster.platform.ended(failed.operation_id)
        assert (ended.status, shown(cluster)) == ("succeeded", everywhere(NEW)), ended.error


@pytest.mark.parametrize("inputs", [{"partitions": []}, {"extra_settings": {"MaxJobCount": 2}}])
async def test_an_upgrade_is_refused_if_its_inputs_would_end_jobs(inputs: dict[str, Any]) -> None:
    async with deployed(partitions=[{"name": "short"}]) as cluster:
        cluster.slurm.jobs = [FakeJob(7, partition="short"), FakeJob(8)]
        version = add_version(cluster, NEW)
        operation = cluster.platform.request(now(cluster), "upgrade", to_version=version, inputs=inputs)
        ended = await cluster.platform.ended(operation.operation_id)
        assert (ended.status, installed(cluster)) == ("failed", everywhere(OLD))
        assert ended.error is not None
        assert ended.error.failure_class == "refused"
        assert not is_held(cluster)


async def test_a_machine_with_the_old_slurm_does_not_join_while_an_upgrade_has_not_ended() -> None:
    async with deployed() as cluster:
        cluster.faults.broken_units = {"gpu-3 slurmd"}
        assert (await upgrade(cluster)).status == "failed"
        added = await cluster.perform("add", [cluster.add_worker("gpu-5")])
        assert added.status == "failed"
        assert f"{OLD}-4" in added.error.message
        assert f"{NEW}-1" in added.error.message
        assert "finish the upgrade" in added.error.fix
        assert "gpu-5" not in cluster.slurm.nodes


async def test_an_upgrade_is_refused_while_a_member_never_joined() -> None:
    async with deployed() as cluster:
        cluster.faults.broken_units = {"gpu-5 slurmd"}
        assert (await cluster.perform("add", [cluster.add_worker("gpu-5")])).status == "failed"
        cluster.faults.broken_units = set()
        refused = await upgrade(cluster)
        assert (refused.error.failure_class, "gpu-5 never joined" in refused.error.message) == ("refused", True)
        assert installed(cluster) == everywhere(OLD)
        await cluster.perform("remove", [cluster.member("gpu-5")])
        ended = await move(cluster, "upgrade", refused.to_version)
        assert ended.status == "succeeded", ended.error


async def test_an_upgrade_after_an_undone_one_makes_a_backup_of_its_own() -> None:
    async with deployed() as cluster:
        cluster.faults.broken_units = {"gpu-2 slurmd"}
        failed = await upgrade(cluster)
        cluster.faults.broken_units = set()
        cluster.platform.compensate(failed.operation_id)
        assert (await cluster.platform.ended(failed.operation_id)).status == "cancelled"
        cluster.slurm.next_job_id = 50
        again = await move(cluster, "upgrade", failed.to_version)
        noted = msgspec.json.decode(cluster.host("gpu-1").files[f"{backup.FOLDER}/{backup.BEFORE}"], type=backup.Queue)
        assert (noted.operation_id, noted.next_job_id) == (again.operation_id, 50)


@pytest.mark.parametrize(("is_undone", "version"), [(True, NEW), (True, "25.11.1"), (False, NEW), (False, "25.11.1")])
async def test_an_upgrade_of_patched_packages_after_a_return_makes_a_backup_of_its_own(
    is_undone: bool, version: str
) -> None:
    async with deployed() as cluster:
        cluster.faults.broken_units = {"gpu-2 slurmd"} if is_undone else set()
        first = await upgrade(cluster)
        cluster.faults.broken_units = set()
        if is_undone:
            cluster.platform.compensate(first.operation_id)
            assert (await cluster.platform.ended(first.operation_id)).status == "cancelled"
        else:
            assert (await roll_back(cluster)).status == "succeeded"
        for name in everywhere(OLD):
            cluster.host(name).slurm_version = f"{OLD}-4+deb13u1"
        is_same = version == NEW
        again = await (move(cluster, "upgrade", first.to_version) if is_same else upgrade(cluster, version))
        assert (again.status, shown(cluster)) == ("succeeded", everywhere(version)), again.error
        noted = msgspec.json.decode(cluster.host("gpu-1").files[f"{backup.FOLDER}/{backup.BEFORE}"], type=backup.Queue)
        assert (noted.operation_id, noted.package_version) == (again.operation_id, f"{OLD}-4+deb13u1")


async def test_an_upgrade_installs_what_the_repair_of_an_interrupted_one_removed() -> None:
    async with deployed() as cluster:
        machine = cluster.host("gpu-3")
        machine.installed.discard("slurmd")
        machine.slurm_version = f"{NEW}-1"
        ended = await upgrade(cluster)
        assert (ended.status, shown(cluster)) == ("succeeded", everywhere(NEW)), ended.error
        assert "slurmd" in machine.installed


async def test_a_failed_upgrade_is_undone_after_its_canary_was_repaired_by_an_operation() -> None:
    async with deployed() as cluster:
        cluster.faults.broken_units = {"gpu-2 slurmd"}
        failed = await upgrade(cluster)
        cluster.faults.broken_units = set()
        repaired = await cluster.perform("repair", [cluster.member("gpu-2")])
        assert repaired.status == "succeeded", repaired.error
        cluster.platform.compensate(failed.operation_id)
        undone = await cluster.platform.ended(failed.operation_id)
        assert (undone.status, shown(cluster)) == ("cancelled", everywhere(OLD)), undone.error


async def test_a_change_of_settings_that_is_cancelled_during_an_unfinished_upgrade_has_nothing_to_undo() -> None:
    async with deployed() as cluster:
        cluster.faults.broken_units = {"gpu-2 slurmd", "gpu-3 slurmd"}
        assert (await upgrade(cluster)).status == "failed"
        assert is_held(cluster)
        head = cluster.host("gpu-1")
        head.hangs_after = 0
        asked = cluster.platform.reconfigure(now(cluster), {"default_time": "02:00:00"}).operation_id
        assert await hangs_or_ends(cluster, "gpu-1", asked)
        head.hangs_after = None
        cluster.platform.cancel(asked)
        ended = await cluster.platform.ended(asked)
        assert (ended.status, is_held(cluster)) == ("cancelled", True), ended.error


async def test_a_worker_that_fails_later_stops_the_upgrade_and_later_workers_stay_untouched() -> None:
    async with new_cluster({**MEMBERS, "worker": [f"gpu-{number}" for number in (2, 3, 5, 6, 7)]}) as cluster:
        assert (await cluster.perform("deploy")).status == "succeeded"
        cluster.slurm.jobs, cluster.slurm.next_job_id = [FakeJob(7, node="gpu-6"), FakeJob(8, node="")], 9
        cluster.faults.broken_units = {"gpu-3 slurmd"}
        failed = await upgrade(cluster)
        assert (failed.status, is_held(cluster)) == ("failed", True)
        assert (
            "gpu-3 failed, and queued jobs wait; new version: gpu-2, gpu-5; old version, untouched: gpu-6, gpu-7"
            in (failed.error.message)
        )
        assert f"gpuaas op retry {failed.operation_id}" in failed.error.fix
        assert f"gpuaas op compensate {failed.operation_id}" in failed.error.fix
        for name in ("gpu-4", "gpu-6", "gpu-7"):
            assert cluster.host(name).slurm_version.startswith(OLD), name
        assert [job.job_id for job in cluster.slurm.jobs] == [7, 8]


@pytest.mark.parametrize(("exit_of", "status", "version"), [("retry", "succeeded", NEW), ("undo", "cancelled", OLD)])
async def test_an_upgrade_that_a_later_worker_stopped_is_continued_or_undone_without_losses(
    exit_of: str, status: str, version: str
) -> None:
    async with deployed() as cluster:
        cluster.slurm.jobs, cluster.slurm.next_job_id = [FakeJob(7, node="gpu-3"), FakeJob(8, node="")], 9
        cluster.faults.broken_units = {"gpu-3 slurmd"}
        failed = await upgrade(cluster)
        cluster.faults.broken_units = set()
        (cluster.platform.retry if exit_of == "retry" else cluster.platform.compensate)(failed.operation_id)
        ended = await cluster.platform.ended(failed.operation_id)
        assert (ended.status, shown(cluster)) == (status, everywhere(version)), ended.error
        assert ([job.job_id for job in cluster.slurm.jobs], is_held(cluster)) == ([7, 8], False)
        assert cluster.slurm.nodes["gpu-3"] == ["IDLE"]


async def test_the_retry_of_a_rollback_for_one_worker_runs_its_job_where_people_run_theirs() -> None:
    async with deployed() as cluster:
        assert (await upgrade(cluster)).status == "succeeded"
        cluster.faults.broken_units = {"gpu-3 slurmd"}
        failed = await roll_back(cluster)
        assert (failed.status, is_held(cluster)) == ("failed", False)
        cluster.faults.broken_units = set()
        cluster.platform.retry(failed.operation_id)
        ended = await cluster.platform.ended(failed.operation_id)
        assert (ended.status, shown(cluster)) == ("succeeded", everywhere(OLD)), ended.error


def test_workers_are_upgraded_in_groups_that_grow() -> None:
    groups = list(worker_groups.groups(range(50)))
    assert [len(group) for group in groups] == [2, 4, 8, 16, 16, 4]
    assert [worker for group in groups for worker in group] == list(range(50))


def test_a_stopped_upgrade_of_many_workers_names_a_readable_number_of_them() -> None:
    old = [f"gpu-{number:03}" for number in range(100)]
    error = worker_groups.stopped("op_1", "slurm", Permanent("no space left"), ["gpu-x"], [], old)
    assert "new version: none" in str(error)
    assert "gpu-019 and 80 more; no space left" in str(error)


async def test_if_all_workers_are_drained_one_of_them_must_register_before_the_others_are_touched() -> None:
    async with deployed() as cluster:
        for name in ("gpu-2", "gpu-3"):
            assert (await cluster.perform("drain", [cluster.member(name)])).status == "succeeded"
        cluster.faults.broken_units = {"gpu-2 slurmd"}
        failed = await upgrade(cluster)
        assert "the canary failed" in failed.error.message
        assert installed(cluster) == {**everywhere(OLD), "gpu-1": NEW, "gpu-2": NEW}


async def test_an_upgrade_that_let_jobs_start_cannot_be_undone_any_more() -> None:
    async with deployed() as cluster:
        cluster.faults.broken_units = {"gpu-4 slurmd"}
        failed = await upgrade(cluster)
        cluster.platform.compensate(failed.operation_id)
        ended = await cluster.platform.ended(failed.operation_id)
        assert ended.error is not None
        assert "can no longer be undone without losses" in ended.error.message
        assert installed(cluster)["gpu-1"] == NEW


async def test_a_drained_worker_is_upgraded_and_stays_drained() -> None:
    async with deployed() as cluster:
        await cluster.perform("drain", [cluster.member("gpu-3")])
        ended = await upgrade(cluster)
        assert ended.status == "succeeded", ended.error
        assert (shown(cluster)["gpu-3"], cluster.statuses()["gpu-3"]) == (NEW, "drained")
        assert "DRAIN" in cluster.slurm.nodes["gpu-3"]


async def test_an_upgrade_is_refused_before_any_change_if_a_machine_does_not_answer() -> None:
    async with deployed() as cluster:
        cluster.host("gpu-3").reachable = False
        ended = await upgrade(cluster)
        assert (ended.error.failure_class, "gpu-3" in ended.error.message) == ("refused", True)
        assert (installed(cluster), is_held(cluster)) == (everywhere(OLD), False)


async def test_an_upgrade_is_refused_if_a_file_was_edited() -> None:
    async with deployed() as cluster:
        cluster.host("gpu-1").files[config.SLURM_CONF] += b"# edited\n"
        ended = await upgrade(cluster)
        assert (ended.error.failure_class, "were changed after the app wrote them" in ended.error.message) == (
            "refused",
            True,
        )


async def test_an_upgrade_to_an_older_slurm_is_refused() -> None:
    async with deployed() as cluster:
        ended = await upgrade(cluster, "23.11.1")
        assert (ended.error.failure_class, "is older than" in ended.error.message) == ("refused", True)


async def test_packages_that_are_present_are_used_and_not_upgraded() -> None:
    async with new_cluster(MEMBERS, packages="present") as cluster:
        for name in ("gpu-1", "gpu-2", "gpu-3", "gpu-4"):
            cluster.host(name).installed = set(footprint.SLURM.packages)
        deployed = await cluster.perform("deploy")
        assert deployed.status == "succeeded", deployed.error
        assert not any("install" in word for command in cluster.host("gpu-2").ran for word in command if "apt" in word)
        ended = await upgrade(cluster)
        assert (ended.error.failure_class, "packages=present" in ended.error.message) == ("refused", True)


async def test_packages_that_should_be_present_and_are_not_fail_the_deploy() -> None:
    async with new_cluster(MEMBERS, packages="present") as cluster:
        ended = await cluster.perform("deploy")
        assert "gpu-2 lacks packages that `packages: present` expects: slurmd" in ended.error.message
        assert cluster.host("gpu-2").installed == set()


async def test_a_bundle_is_the_only_package_source_and_its_version_is_shown() -> None:
    async with new_cluster(MEMBERS, packages="bundle") as cluster:
        manifest = cluster.platform.artifacts.version(add_version(cluster, NEW)).manifest
        digests = {name: reference.digest for name, reference in manifest.artifacts.items()}
        instance = msgspec.structs.replace(now(cluster), app_version=manifest.version, artifacts=digests)
        cluster.platform.records.instances[instance.instance_id] = instance
        ended = await cluster.perform("deploy")
        assert ended.status == "succeeded", ended.error
        assert shown(cluster) == everywhere(NEW)
        placed = {placement.node_name for placement in cluster.platform.placements}
        assert placed == {"gpu-1", "gpu-2", "gpu-3", "gpu-4"}


@pytest.mark.parametrize("way", ["rollback", "undo"])
async def test_no_machine_keeps_the_bundle_of_a_version_that_the_cluster_has_left(way: str) -> None:
    async with deployed() as cluster:
        cluster.faults.broken_units = {"gpu-2 slurmd"} if way == "undo" else set()
        first = await upgrade(cluster)
        assert {item.node_name for item in cluster.platform.placements if item.state == "placed"} == set(
            everywhere(NEW)
        )
        cluster.faults.broken_units = set()
        if way == "undo":
            cluster.platform.compensate(first.operation_id)
            assert (await cluster.platform.ended(first.operation_id)).status == "cancelled"
        else:
            assert (await roll_back(cluster)).status == "succeeded"
        assert {item.state for item in cluster.platform.placements} == {"removed"}


async def test_an_app_version_with_the_same_slurm_restarts_nothing() -> None:
    async with deployed() as cluster:
        before = started(cluster, "gpu-1")
        cluster.platform.add_version(msgspec.structs.replace(controller.app.manifest, version="1.0.1"))
        ended = await move(cluster, "upgrade", "1.0.1")
        assert ended.status == "succeeded", ended.error
        assert (started(cluster, "gpu-1"), now(cluster).app_version) == (before, "1.0.1")


async def test_a_cancelled_upgrade_returns_to_the_old_version() -> None:
    async with new_cluster(MEMBERS, settings=dataclasses.replace(QUICK, join_s=60)) as cluster:
        assert (await cluster.perform("deploy")).status == "succeeded"
        cluster.faults.silent_nodes = {"gpu-2"}
        operation_id = await cluster.started("upgrade", to_version=add_version(cluster, NEW))
        waits = f"node gpu-2 runs Slurm {OLD}, not {NEW}-1 yet"
        await cluster.platform.until(operation_id, lambda seen: any(step.message == waits for step in seen.steps))
        cluster.faults.silent_nodes = set()
        cluster.platform.cancel(operation_id)
        ended = await cluster.platform.ended(operation_id)
        assert ended.status == "cancelled", ended.error
        assert (installed(cluster), is_held(cluster)) == (everywhere(OLD), False)


async def test_a_canary_on_which_a_job_cannot_start_stops_the_upgrade_even_if_people_use_it() -> None:
    async with deployed() as cluster:
        cluster.slurm.jobs = [FakeJob(7, node="gpu-2"), FakeJob(8, node="gpu-3")]
        cluster.slurm.first_job_answers = False
        failed = await upgrade(cluster)
        assert (failed.status, "the canary failed" in failed.error.message) == ("failed", True)


async def test_jobs_that_fill_a_node_are_enough_of_a_test() -> None:
    async with deployed() as cluster:
        cluster.slurm.jobs = [FakeJob(7, node="gpu-2"), FakeJob(8, node="gpu-3")]
        cluster.slurm.first_job_waits = True
        ended = await upgrade(cluster)
        assert ended.status == "succeeded", ended.error


async def test_a_rollback_closes_jobs_that_ended_and_uses_no_number_again() -> None:
    async with deployed() as cluster:
        cluster.slurm.jobs, cluster.slurm.next_job_id = [FakeJob(7), FakeJob(8, node=""), FakeJob(9, node="")], 10
        assert (await upgrade(cluster)).status == "succeeded"
        # 7 has ended, 8 runs, 9 has run and ended, 10 and 11 are new.
        cluster.slurm.jobs, cluster.slurm.next_job_id = [FakeJob(8), FakeJob(10), FakeJob(11, node="")], 12
        back = await roll_back(cluster)
        assert back.status == "succeeded", back.error
        assert (installed(cluster), shown(cluster)) == (everywhere(OLD), everywhere(OLD))
        assert [job.job_id for job in cluster.slurm.jobs] == [8]
        assert ("FirstJobId=12" in cluster.slurm.conf, is_held(cluster)) == (True, False)
        assert "MpiDefault=pmix" in cluster.slurm.conf
        changed = cluster.platform.reconfigure(cluster.instance, {"max_time": "9-00:00:00"})
        assert (await cluster.platform.ended(changed.operation_id)).status == "succeeded"
        assert "FirstJobId=12" in cluster.slurm.conf


async def test_a_rollback_ends_the_jobs_that_started_since_before_it_stops_slurmctld() -> None:
    """Slurm starts a job again that was queued at the backup. A node on which it still runs would be drained."""
    async with deployed() as cluster:
        cluster.slurm.jobs, cluster.slurm.next_job_id = [FakeJob(7), FakeJob(8, node="")], 9
        assert (await upgrade(cluster)).status == "succeeded"
        cluster.slurm.jobs, cluster.slurm.next_job_id = [FakeJob(7), FakeJob(8), FakeJob(9), FakeJob(10, node="")], 11
        since = len(cluster.host("gpu-1").commands)
        assert (await roll_back(cluster)).status == "succeeded"
        ran = [command.argv for command in cluster.host("gpu-1").commands[since:]]
        assert ran.index(("scancel", "8", "9")) < ran.index(("systemctl", "stop", "slurmctld"))
        assert [argv for argv in ran if argv[0] == "scancel"] == [("scancel", "8", "9")], "7 ran at the backup"


async def test_a_rollback_names_jobs_that_a_dead_node_cannot_end_and_continues() -> None:
    async with deployed() as cluster:
        assert (await upgrade(cluster)).status == "succeeded"
        cluster.slurm.jobs, cluster.slurm.nodes["gpu-3"] = [FakeJob(8, "gpu-3")], ["DOWN", "NOT_RESPONDING"]
        with structlog.testing.capture_logs() as lines:
            back = await roll_back(cluster)
        [left] = [entry["error"] for entry in lines if entry["event"] == "rollback.jobs_left"]
        assert "did not end: 1 job running: 8" in left
        assert "stop slurmctld and slurmdbd" in [step.name for step in back.steps]


async def test_a_rollback_keeps_the_drains_of_now_and_not_those_of_the_backup() -> None:
    async with deployed() as cluster:
        assert (await cluster.perform("drain", [cluster.member("gpu-2")], reason="fan")).status == "succeeded"
        assert (await upgrade(cluster)).status == "succeeded"
        assert (await cluster.perform("resume", [cluster.member("gpu-2")])).status == "succeeded"
        drained = await cluster.perform("drain", [cluster.member("gpu-3")], reason="disk")
        assert drained.status == "succeeded"
        back = await roll_back(cluster)
        assert back.status == "succeeded", back.error
        assert cluster.slurm.nodes["gpu-2"] == ["IDLE"]
        assert "DRAIN" in cluster.slurm.nodes["gpu-3"]
        assert cluster.slurm.reasons["gpu-3"] == f"gpuaas:{drained.operation_id}: disk"
        assert (cluster.statuses()["gpu-2"], cluster.statuses()["gpu-3"]) == ("ready", "drained")


async def test_a_rollback_brings_no_node_back_that_was_removed_since() -> None:
    async with deployed() as cluster:
        assert (await upgrade(cluster)).status == "succeeded"
        assert (await cluster.perform("remove", [cluster.member("gpu-3")])).status == "succeeded"
        back = await roll_back(cluster)
        assert back.status == "succeeded", back.error
        assert sorted(cluster.slurm.nodes) == ["gpu-2", "gpu-4"]


async def test_a_rollback_keeps_jobs_off_a_machine_that_was_given_up_since() -> None:
    async with deployed() as cluster:
        assert (await upgrade(cluster)).status == "succeeded"
        cluster.host("gpu-3").reachable = False
        gone = await cluster.perform("remove", [cluster.member("gpu-3")], force=True)
        assert gone.status == "succeeded", gone.error
        back = await roll_back(cluster)
        assert back.status == "succeeded", back.error
        assert "DRAIN" in cluster.slurm.nodes["gpu-3"]
        assert cluster.slurm.reasons["gpu-3"] == f"gpuaas:{gone.operation_id}: machine given up"


async def test_a_rollback_that_has_begun_is_finished_after_the_end_of_its_window() -> None:
    async with deployed() as cluster:
        assert (await upgrade(cluster)).status == "succeeded"
        cluster.faults.broken_units = {"gpu-1 slurmctld"}
        failed = await roll_back(cluster)
        assert failed.status == "failed"
        cluster.faults.broken_units = set()
        path = f"{backup.FOLDER}/{backup.BEFORE}"
        noted = msgspec.json.decode(cluster.host("gpu-1").files[path], type=backup.Queue)
        earlier = msgspec.structs.replace(noted, noted_at=noted.noted_at - datetime.timedelta(days=8))
        cluster.host("gpu-1").files[path] = msgspec.json.encode(earlier)
        cluster.platform.retry(failed.operation_id)
        ended = await cluster.platform.ended(failed.operation_id)
        assert (ended.status, installed(cluster)) == ("succeeded", everywhere(OLD)), ended.error


async def test_a_second_rollback_uses_what_the_first_one_noted_before_it_restored_the_state() -> None:
    async with deployed() as cluster:
        cluster.slurm.jobs, cluster.slurm.next_job_id = [FakeJob(7), FakeJob(8, node="")], 9
        assert (await upgrade(cluster)).status == "succeeded"
        assert (await cluster.perform("remove", [cluster.member("gpu-3")])).status == "succeeded"
        cluster.slurm.jobs, cluster.slurm.next_job_id = [FakeJob(8, node="")], 9  # 7 has ended.
        assert (await cluster.perform("drain", [cluster.member("gpu-2")], reason="fan")).status == "succeeded"
        cluster.faults.broken_units = {"gpu-1 slurmctld"}
        assert (await roll_back(cluster)).status == "failed"
        cluster.faults.broken_units = set()
        back = await roll_back(cluster)
        assert back.status == "succeeded", back.error
        assert [job.job_id for job in cluster.slurm.jobs] == [8]
        assert sorted(cluster.slurm.nodes) == ["gpu-2", "gpu-4"]
        assert "DRAIN" in cluster.slurm.nodes["gpu-2"]


async def test_a_rollback_without_a_backup_is_refused() -> None:
    async with deployed() as cluster:
        assert (await upgrade(cluster)).status == "succeeded"
        cluster.host("gpu-1").files.pop(f"{backup.FOLDER}/{backup.BEFORE}")
        ended = await roll_back(cluster)
        assert (ended.error.failure_class, "has no backup" in ended.error.message) == ("refused", True)
        assert installed(cluster) == everywhere(NEW)


async def test_a_rollback_is_refused_if_the_old_packages_cannot_be_had() -> None:
    async with deployed() as cluster:
        assert (await upgrade(cluster)).status == "succeeded"
        cluster.host("gpu-3").reachable = False
        ended = await roll_back(cluster)
        assert (ended.error.failure_class, "gpu-3" in ended.error.message) == ("refused", True)


async def test_the_preview_of_a_rollback_names_what_is_lost() -> None:
    async with deployed() as cluster:
        cluster.slurm.jobs, cluster.slurm.next_job_id = [FakeJob(7)], 8
        assert (await upgrade(cluster)).status == "succeeded"
        cluster.slurm.jobs, cluster.slurm.next_job_id = [FakeJob(8), FakeJob(9, node="")], 10
        asked = cluster.platform.ask_preview(now(cluster), "rollback")
        preview = (await cluster.platform.ended(asked.operation_id)).preview
        assert preview is not None
        assert [work.work_id for work in preview.running_work] == ["8"]
        text = "\n".join(preview.irreversible)
        assert "killed: 8." in text
        assert "deleted: 9." in text
        assert "cancelled at the time of the rollback: 7." in text
        assert "records of jobs 8 to 9" in text


async def test_a_rollback_reports_what_is_lost_before_its_first_change() -> None:
    async with deployed() as cluster:
        cluster.slurm.jobs, cluster.slurm.next_job_id = [FakeJob(7)], 8
        assert (await upgrade(cluster)).status == "succeeded"
        cluster.slurm.jobs, cluster.slurm.next_job_id = [FakeJob(8), FakeJob(9, node="")], 10
        version = now(cluster).previous_version
        with structlog.testing.capture_logs() as lines:
            asked = cluster.platform.request(now(cluster), "rollback", to_version=version).operation_id
            shown = await cluster.platform.until(
                asked, lambda op: any("killed: 8." in step.message for step in op.steps)
            )
            ended = await cluster.platform.ended(asked)
        assert ended.status == "succeeded", ended.error
        assert [step.name for step in shown.steps] == ["check machines and packages"]
        [kept] = [line["sentences"] for line in lines if line["event"] == "rollback.losses"]
        assert any("deleted: 9." in sentence for sentence in kept)


@pytest.mark.parametrize("kind", ["upgrade", "rollback"])
async def test_a_controller_that_dies_in_every_step_still_finishes(kind: Any) -> None:
    async with deployed() as cluster:
        cluster.slurm.jobs, cluster.slurm.next_job_id = [FakeJob(7), FakeJob(8, node="")], 9
        version = add_version(cluster, NEW)
        if kind == "rollback":
            assert (await move(cluster, "upgrade", version)).status == "succeeded"
            version = now(cluster).previous_version
    operation_id = cluster.platform.request(now(cluster), kind, to_version=version).operation_id
    crashed = await _crash_in_every_step(cluster, operation_id)
    ended = cluster.platform.operation(operation_id)
    assert ended.status == "succeeded", ended.error
    assert len(crashed) > 8
    wanted = NEW if kind == "upgrade" else OLD
    assert (installed(cluster), shown(cluster)) == (everywhere(wanted), everywhere(wanted))
    assert ([job.job_id for job in cluster.slurm.jobs], is_held(cluster)) == ([7, 8], False)


async def _crash_in_every_step(cluster: NewCluster, operation_id: str) -> set[str]:
    """Run the controller, and kill it as soon as a step runs in which it was not killed before."""
    crashed: set[str] = set()

    def fresh(seen: Any) -> set[str]:
        return {step.name for step in seen.steps if step.state == "running"} - crashed

    while True:
        async with running(controller.build(QUICK), cluster):
            seen = await cluster.platform.until(
                operation_id, lambda seen: seen.status in ("succeeded", "failed") or bool(fresh(seen))
            )
            if seen.status in ("succeeded", "failed"):
                return crashed
            crashed |= fresh(seen)
        cluster.platform.expire_lease(operation_id)


async def test_a_controller_that_dies_before_any_command_on_its_machine_still_finishes() -> None:
    """Killed before the first command on the controller machine, then before a later one, and so on, up and down."""
    async with deployed() as cluster:
        cluster.slurm.jobs, cluster.slurm.next_job_id = [FakeJob(7), FakeJob(8, node="")], 9
        versions = {"upgrade": add_version(cluster, NEW), "rollback": now(cluster).app_version}
    commands, hung = 0, {"upgrade"}
    while hung:
        hung = {
            kind for kind in ("upgrade", "rollback") if await _killed_after(cluster, kind, versions[kind], commands)
        }
        commands += STRIDE
    assert commands > 5 * STRIDE


async def _killed_after(cluster: NewCluster, kind: Any, version: str, commands: int) -> bool:
    """Kill the controller after this many commands, and let another one finish. Return whether it came so far."""
    operation_id = cluster.platform.request(now(cluster), kind, to_version=version).operation_id
    ended, is_hung = await ended_despite_crash(cluster, operation_id, commands)
    assert ended.status == "succeeded", (kind, commands, ended.error)
    wanted = NEW if kind == "upgrade" else OLD
    assert (installed(cluster), is_held(cluster)) == (everywhere(wanted), False), (kind, commands)
    assert [job.job_id for job in cluster.slurm.jobs] == [7, 8]
    return is_hung


@pytest.mark.parametrize(
    ("app_version", "installed_now", "expected"),
    [("1", "24.11", False), ("1", "26.05", True), ("2", "26.05", False), ("2", "24.11", True)],
)
def test_a_cluster_whose_packages_are_not_those_of_its_app_version_is_between_two_versions(
    app_version: str, installed_now: str, expected: bool
) -> None:
    noted_at = datetime.datetime.now(datetime.UTC)
    before = backup.Queue("op_1", noted_at, 1, package_version="24.11", from_version="1", to_version="2")
    rollback = backup.Queue("op_2", noted_at + datetime.timedelta(hours=1), 1)
    assert backup.is_between(before, app_version, installed_now, rollback) is expected
    assert not backup.is_between(None, app_version, installed_now, rollback)


async def test_an_upgrade_that_changed_workers_alone_has_ended_and_is_not_named_later() -> None:
    async with deployed() as cluster:
        cluster.faults.packaged_version = "24.11.6"
        cluster.host("gpu-1").slurm_version = "24.11.6-4"
        cluster.platform.add_version(msgspec.structs.replace(controller.app.manifest, version="1.0.1"))
        ended = await move(cluster, "upgrade", "1.0.1")
        assert (ended.status, installed(cluster)) == ("succeeded", everywhere("24.11.6")), ended.error
        cluster.faults.packaged_version = NEW
        added = await cluster.perform("add", [cluster.add_worker("gpu-5")])
        assert f"has Slurm {NEW}" in added.error.message
        assert "give the machine a package source with Slurm 24.11.6" in added.error.fix


@pytest.mark.parametrize(
    ("is_between", "fix"), [(True, "finish the upgrade"), (False, "package source with Slurm 24.11")]
)
def test_a_machine_with_another_release_learns_whether_an_upgrade_or_its_package_source_is_the_reason(
    is_between: bool, fix: str
) -> None:
    assert fix in versions.other_release("gpu-5", "26.05.5-1", "24.11.5-1", is_between=is_between).fix
    assert not versions.is_same_release("26.05.5-1", "24.11.5-1")
    assert versions.is_same_release("24.11.9-1", "24.11.5-1")


async def test_a_package_source_that_moved_is_named_as_the_reason_if_no_upgrade_is_unfinished() -> None:
    async with deployed() as cluster:
        cluster.faults.packaged_version = NEW
        ended = await cluster.perform("add", [cluster.add_worker("gpu-5")])
        assert f"has Slurm {NEW}" in ended.error.message
        assert f"give the machine a package source with Slurm {OLD}" in ended.error.fix


def test_a_rollback_is_possible_inside_its_window_only() -> None:
    noted = datetime.datetime(2026, 11, 1, tzinfo=datetime.UTC)
    queue = backup.Queue("op_1", noted, 1)
    assert losses.is_in_window(queue, noted + datetime.timedelta(days=7), 7 * 86400)
    assert not losses.is_in_window(queue, noted + datetime.timedelta(days=8), 7 * 86400)


def test_nodes_and_drains_of_now_are_kept_over_those_of_the_restored_state() -> None:
    noted = backup.Queue("op_1", datetime.datetime.now(datetime.UTC), 1, drains={"a": "", "b": "fan", "c": "disk"})
    drained = frozenset({"IDLE", "DRAIN"})
    restored = [
        state.Node("a", drained, reason="old"),
        state.Node("b", frozenset({"IDLE"})),
        state.Node("c", drained, reason="disk"),
        state.Node("d", frozenset({"IDLE"})),
    ]
    wanted = losses.NodeChanges(gone=("d",), drained=(("b", "fan"),), resumed=("a",))
    assert losses.node_changes(noted, restored) == wanted
    other = state.Node("c", drained, reason="another reason")
    assert losses.node_changes(noted, [other]) == losses.NodeChanges(drained=(("c", "disk"),))
    assert losses.node_changes(msgspec.structs.replace(noted, drains=None), restored) == losses.NodeChanges()


def test_slurm_reads_the_state_of_three_releases_before() -> None:
    versions.refuse_jump(package_changes.Change("24.11.5-4", "26.05.5-1"))
    with pytest.raises(Refused, match="more than 3 releases"):
        versions.refuse_jump(package_changes.Change("24.05.1-1", "26.05.5-1"))


def test_machines_that_would_get_different_versions_are_refused() -> None:
    changes = {"gpu-1": package_changes.Change(OLD, NEW), "gpu-2": package_changes.Change(OLD, OLD)}
    with pytest.raises(Refused, match=r"gpu-1 26\.05\.5, gpu-2 24\.11\.5"):
        package_changes.refuse_mixed(footprint.SLURM, changes)
