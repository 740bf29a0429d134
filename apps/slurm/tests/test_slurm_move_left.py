"""A move of the controller that did not end: no operation starts a second slurmctld on the old machine, a later move
continues where the state is, and files of an earlier attempt are not used."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from gpuaas_app_slurm import checks
from gpuaas_app_slurm.workload import config, footprint, key_rotation, keys, moves, reporter_program
from gpuaas_app_slurm.workload.observed import Observed, Report, Reported
from gpuaas_app_slurm_conformance.fake_slurm import FakeJob
from gpuaas_app_slurm_conformance.fresh_machines import NewCluster, new_cluster
from gpuaas_sdk.checks import Check
from gpuaas_sdk.controller import Member, Refused
from gpuaas_sdk.machine import Machine

MEMBERS = {"controller": ["gpu-1"], "worker": ["gpu-2", "gpu-3"]}
BEGUN = {"allocation_id": "alloc_gpu-5", "operation_id": "op_1", "node_name": "gpu-5"}


@pytest.fixture
async def cluster() -> AsyncIterator[NewCluster]:
    async with new_cluster(MEMBERS) as deployed:
        ended = await deployed.perform("deploy")
        assert ended.status == "succeeded", ended.error
        deployed.slurm.jobs = [FakeJob(7, node="gpu-3"), FakeJob(8, node="")]
        yield deployed


async def test_a_return_that_fails_names_the_machine_that_must_be_kept(cluster: NewCluster) -> None:
    failed = await _left(cluster)
    assert "The return to gpu-1 failed too" in failed.error.message
    assert "do not release alloc_gpu-5" in failed.error.message
    assert f"gpuaas op retry {failed.operation_id}" in failed.error.fix


async def test_an_old_machine_that_dies_in_a_move_names_the_machine_that_must_be_kept(cluster: NewCluster) -> None:
    failed = await _left(cluster)
    cluster.host("gpu-1").reachable = False
    cluster.platform.retry(failed.operation_id)
    again: Any = await cluster.platform.ended(failed.operation_id)
    assert (again.status, "do not release alloc_gpu-5" in again.error.message) == ("failed", True), again.error


@pytest.mark.parametrize("kind", ["repair", "restart", "start"])
async def test_no_operation_starts_a_second_slurmctld_after_a_move_that_did_not_end(
    cluster: NewCluster, kind: str
) -> None:
    failed = await _left(cluster)
    ended = await cluster.perform(kind, [at(cluster, "gpu-1")] if kind == "repair" else None)
    _assert_refused(cluster, ended, failed.operation_id)


async def test_a_decommission_waits_for_the_end_of_a_move(cluster: NewCluster) -> None:
    failed = await _left(cluster)
    ended = await cluster.perform("decommission")
    _assert_refused(cluster, ended, failed.operation_id)


async def test_a_decommission_by_force_names_what_a_move_left_on_the_new_machine(cluster: NewCluster) -> None:
    await _left(cluster)
    ended = await cluster.perform("decommission", force=True)
    assert ended.status == "succeeded", ended.error
    left = [line for target in ended.targets for line in target.left]
    assert [line.what for line in left if "gpu-5" in line.what] == ["Slurm (controller) on gpu-5"], left
    assert any("did not end" in line.why for line in left)


async def test_no_restore_of_accounting_starts_a_second_slurmctld(cluster: NewCluster) -> None:
    failed = await _left(cluster)
    ended = await cluster.act("accounting.restore", name="a.sql.gz", confirm=cluster.instance.inputs["cluster_name"])
    _assert_refused(cluster, ended, failed.operation_id)


async def test_no_replacement_of_the_key_starts_a_second_slurmctld(cluster: NewCluster) -> None:
    await _left(cluster)
    with pytest.raises(Refused, match="gpu-5"):
        await key_rotation.restart_head(Machine(cluster.host("gpu-1")), "demo", None, None)  # type: ignore[arg-type]
    assert cluster.slurm.controllers == {"gpu-5"}


@pytest.mark.parametrize("way", ["retry", "compensate"])
async def test_a_failed_move_is_finished_or_undone_after_a_repair_was_refused(cluster: NewCluster, way: str) -> None:
    failed = await _left(cluster)
    await cluster.perform("repair", [at(cluster, "gpu-1")])
    cluster.slurm.jobs.append(FakeJob(9, node="", user="bob"))
    cluster.slurm.first_job_answers = True
    getattr(cluster.platform, way)(failed.operation_id)
    await cluster.platform.ended(failed.operation_id)
    name = "gpu-5" if way == "retry" else "gpu-1"
    assert cluster.statuses() == {name: "ready", "gpu-2": "ready", "gpu-3": "ready"}
    assert (cluster.slurm.controllers, [job.job_id for job in cluster.slurm.jobs]) == ({name}, [7, 8, 9])
    repaired = await cluster.perform("repair", [at(cluster, name)])
    assert repaired.status == "succeeded", repaired.error


async def test_a_move_that_has_begun_is_refused_with_another_machine(cluster: NewCluster) -> None:
    await _left(cluster)
    ended = await cluster.perform("replace", [at(cluster, "gpu-1")], replacements=["gpu-6"])
    assert (ended.error.failure_class, "--with alloc_gpu-5" in ended.error.fix) == ("refused", True), ended.error
    assert (cluster.slurm.controllers, cluster.host("gpu-6").installed) == ({"gpu-5"}, set())
    returned = await cluster.perform("replace", [at(cluster, "gpu-1")], replacements=["gpu-5"])
    assert "the controller stays on gpu-1" in returned.error.message
    assert (cluster.slurm.controllers, [job.job_id for job in cluster.slurm.jobs]) == ({"gpu-1"}, [7, 8])


async def test_a_second_move_to_the_same_machine_uses_no_files_of_the_first(cluster: NewCluster) -> None:
    """The clean-up of the first attempt failed, so its copies are still on the new machine."""
    old = json.dumps([])
    for folder in (moves.IN, moves.OUT):
        cluster.host("gpu-5").files |= {f"{folder}/done": b"", f"{folder}/parts/aa": old.encode()}
        cluster.host("gpu-1").files |= {f"{folder}/done": b"", f"{folder}/parts/aa": old.encode()}
    ended = await cluster.perform("replace", [at(cluster, "gpu-1")], replacements=["gpu-5"])
    assert ended.status == "succeeded", ended.error
    assert (cluster.slurm.controllers, [job.job_id for job in cluster.slurm.jobs]) == ({"gpu-5"}, [7, 8])


async def test_parts_of_an_interrupted_copy_are_deleted_before_the_first_part(cluster: NewCluster) -> None:
    host = cluster.host("gpu-5")
    host.files[f"{moves.IN}/parts/zz"] = b"of a larger copy"
    await moves.drop_parts(Machine(host))
    assert [path for path in host.files if path.startswith(moves.IN)] == []


async def test_the_new_machine_keeps_no_key_set_of_an_earlier_attempt(cluster: NewCluster) -> None:
    cluster.host("gpu-5").files[keys.KEY_SET] = b"old"
    original = moves.Original(config.Present("gpu-5", "gpu-5", "v2", 100), b"key", "24.11.5")
    wanted = config.Cluster("ins_1", "demo", "gpu-5", "gpu-5", "v2", 100)
    await moves.prepare(Machine(cluster.host("gpu-5")), original, wanted)
    assert keys.KEY_SET not in cluster.host("gpu-5").files


async def test_a_machine_whose_files_were_never_remembered_is_pointed_without_that(cluster: NewCluster) -> None:
    host = cluster.host("gpu-2")
    del host.files[footprint.FILES_LIST]
    assert await moves.point(Machine(host), "gpu-5")
    assert footprint.FILES_LIST not in host.files


def test_the_reporter_shows_a_move_that_has_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "begun"
    monkeypatch.setattr(reporter_program, "MOVE", str(path))
    assert reporter_program.move() == {}
    path.write_text(json.dumps(BEGUN))
    assert reporter_program.move() == {"node_name": "gpu-5", "operation_id": "op_1"}
    path.write_text("")
    assert reporter_program.move() == {"node_name": "another machine", "operation_id": "ID"}


def test_a_move_that_was_left_is_a_finding_that_the_app_does_not_repair() -> None:
    move = {"node_name": "gpu-5"}
    report = Report(units={"mariadb": ("active", 0), "slurmdbd": ("inactive", 0)}, move=move)
    own = Reported(report=report, is_stale=False)
    down = Observed(Check(False, "slurmctld is down"), Check(False, "refused"), None, own, move=move)
    machine = checks.Machine("slurm", "gpu-1", "10.0.0.1")
    (finding,) = checks.of_controller(machine, down)
    assert (finding.code, finding.status, finding.repairs) == ("MoveLeft", "failed", False)
    assert "gpu-5" in finding.reason
    up = Observed(Check(True), Check(True), {}, own, move=move)
    assert checks.of_controller(machine, up) == []


async def _left(cluster: NewCluster) -> Any:
    """Have a move fail after slurmctld has run on the new machine, while the old one does not answer. It is back."""
    old = cluster.host("gpu-1")
    cluster.slurm.first_job_answers = False
    cluster.slurm.on_first_job = lambda: setattr(old, "reachable", False)
    failed = await cluster.perform("replace", [at(cluster, "gpu-1")], replacements=["gpu-5"])
    old.reachable, cluster.slurm.on_first_job = True, None
    assert (failed.status, cluster.slurm.controllers) == ("failed", {"gpu-5"}), failed.error
    assert cluster.statuses()["gpu-1"] == "failed"
    return failed


def _assert_refused(cluster: NewCluster, ended: Any, move_id: str) -> None:
    assert (ended.error.failure_class, "gpu-5" in ended.error.message) == ("refused", True), ended.error
    assert f"gpuaas op retry {move_id}" in ended.error.fix
    assert cluster.slurm.controllers == {"gpu-5"}


def at(cluster: NewCluster, name: str) -> Member:
    return cluster.member_of(cluster.instance, name)
