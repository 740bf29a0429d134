"""Replace without machines: the new machine proves itself before the old one leaves, and until then all can return."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from crashes import ended_despite_crashes
from gpuaas_app_slurm import roles
from gpuaas_app_slurm.workload import home
from gpuaas_app_slurm.workload.footprint import SLURM
from gpuaas_app_slurm_conformance.fake_slurm import FakeJob
from gpuaas_app_slurm_conformance.fresh_machines import NewCluster, new_cluster
from gpuaas_sdk.controller import Member

MEMBERS = {"controller": ["gpu-1"], "worker": ["gpu-2", "gpu-3"]}


@pytest.fixture
async def cluster() -> AsyncIterator[NewCluster]:
    async with new_cluster(MEMBERS) as deployed:
        ended = await deployed.perform("deploy")
        assert ended.status == "succeeded", ended.error
        deployed.slurm.changes.clear()
        deployed.slurm.first_jobs_on.clear()
        yield deployed


async def test_the_new_machine_runs_a_job_before_the_old_one_is_drained(cluster: NewCluster) -> None:
    cluster.slurm.jobs = [FakeJob(7, node="gpu-2")]
    operation_id = await cluster.started("replace", [at(cluster, "gpu-2")], replacements=["gpu-5"])
    await cluster.platform.until(operation_id, lambda now: any("7 (ada)" in step.message for step in now.steps))
    assert (cluster.slurm.first_jobs_on, cluster.slurm.changes) == (["gpu-5"], ["drain gpu-2"])
    assert at(cluster, "gpu-2").status == "draining"
    cluster.slurm.jobs = []
    ended = await cluster.platform.ended(operation_id)
    assert ended.status == "succeeded", ended.error
    assert cluster.slurm.changes == ["drain gpu-2", "stop slurmd on gpu-2", "delete gpu-2"]
    assert cluster.statuses() == dict.fromkeys(["gpu-1", "gpu-3", "gpu-5"], "ready")
    evidence = ended.targets[0].evidence
    assert evidence is not None
    assert (evidence.state, evidence.running_work) == ("idle", 0)


async def test_a_worker_whose_machine_is_dead_is_replaced_only_by_force(cluster: NewCluster) -> None:
    _cut(cluster, "gpu-2")
    ended = await cluster.perform("replace", [at(cluster, "gpu-2")], replacements=["gpu-5"])
    assert (ended.error.failure_class, "does not answer" in ended.error.message) == ("refused", True)
    assert ended.error.fix.endswith("replace the member with force")
    _assert_untouched(cluster, "gpu-5")
    assert cluster.statuses()["gpu-2"] == "ready"


async def test_jobs_of_a_dead_machine_are_left_to_slurm_and_named(cluster: NewCluster) -> None:
    _cut(cluster, "gpu-2")
    cluster.slurm.jobs = [FakeJob(7, node="gpu-2"), FakeJob(8, node="gpu-2", user="bob")]
    cluster.slurm.requeues = {7}
    member = at(cluster, "gpu-2")
    ended = await cluster.perform("replace", [member], replacements=["gpu-5"], force=True)
    assert ended.status == "succeeded", ended.error
    assert ended.targets[0].evidence.state == "unreachable"
    assert not [argv for argv in cluster.host("gpu-1").ran if argv[0] == "scancel"]
    replaced = at(cluster, "gpu-5").adapter_detail["replaced"]
    assert replaced["interrupted_jobs"] == (
        "2 jobs ran on its node: 7 (ada): requeued by Slurm, 8 (bob): ended by Slurm"
    )
    assert "Slurm (worker) was not removed" in replaced["left_behind"]
    assert (at(cluster, "gpu-5").member_id, cluster.slurm.nodes) == (
        member.member_id,
        {"gpu-2": ["DOWN", "DRAIN"], "gpu-3": ["IDLE"], "gpu-5": ["IDLE"]},
    )


async def test_a_machine_that_was_given_up_can_take_the_place_of_another_one(cluster: NewCluster) -> None:
    _cut(cluster, "gpu-2")
    ended = await cluster.perform("replace", [at(cluster, "gpu-2")], replacements=["gpu-5"], force=True)
    assert ended.status == "succeeded", ended.error
    cluster.host("gpu-2").reachable = True
    cluster.slurm.register("gpu-2")
    assert cluster.slurm.nodes["gpu-2"] == ["DRAIN", "IDLE"]
    again = await cluster.perform("replace", [at(cluster, "gpu-3")], replacements=["gpu-2"])
    assert again.status == "succeeded", again.error
    assert cluster.slurm.nodes == {"gpu-2": ["IDLE"], "gpu-5": ["IDLE"]}


async def test_a_forced_replace_of_a_living_worker_cancels_its_jobs_after_the_new_one_ran_a_job(
    cluster: NewCluster,
) -> None:
    cluster.slurm.jobs = [FakeJob(7, node="gpu-2")]
    ended = await cluster.perform("replace", [at(cluster, "gpu-2")], replacements=["gpu-5"], force=True)
    assert ended.status == "succeeded", ended.error
    assert (cluster.slurm.jobs, cluster.slurm.first_jobs_on) == ([], ["gpu-5"])
    assert cluster.host("gpu-2").installed == set()


@pytest.mark.parametrize("fault", ["slurmd", "first job", "machine"])
async def test_a_new_machine_that_does_not_prove_itself_is_cleaned_and_the_old_one_stays(
    cluster: NewCluster, fault: str
) -> None:
    cluster.faults.broken_units = {"gpu-5 slurmd"} if fault == "slurmd" else set()
    cluster.slurm.first_job_answers = fault != "first job"
    cluster.host("gpu-5").reachable = fault != "machine"
    ended = await cluster.perform("replace", [at(cluster, "gpu-2")], replacements=["gpu-5"])
    assert ended.error.failure_class == "refused"
    assert "gpu-5" in ended.error.message
    assert (cluster.statuses()["gpu-2"], cluster.slurm.nodes["gpu-2"]) == ("ready", ["IDLE"])
    _assert_untouched(cluster, "gpu-5")
    cluster.faults.broken_units, cluster.slurm.first_job_answers = set(), True
    cluster.host("gpu-5").reachable = True
    cluster.platform.retry(ended.operation_id)
    again = await cluster.platform.ended(ended.operation_id)
    assert (again.status, cluster.statuses()["gpu-5"]) == ("succeeded", "ready"), again.error


async def test_a_replace_is_refused_while_queued_jobs_name_the_node(cluster: NewCluster) -> None:
    cluster.slurm.jobs = [FakeJob(11, node="", required="gpu-2")]
    ended = await cluster.perform("replace", [at(cluster, "gpu-2")], replacements=["gpu-5"])
    assert (ended.error.failure_class, "11 (ada)" in ended.error.message) == ("refused", True)
    _assert_untouched(cluster, "gpu-5")


async def test_a_new_machine_with_the_host_name_of_a_member_is_refused(cluster: NewCluster) -> None:
    cluster.host("gpu-5").hostname = "gpu-3"
    ended = await cluster.perform("replace", [at(cluster, "gpu-2")], replacements=["gpu-5"])
    assert (ended.error.failure_class, "have the host name gpu-3" in ended.error.message) == ("refused", True)
    assert cluster.slurm.nodes["gpu-3"] == ["IDLE"]


async def test_an_undo_waits_for_jobs_that_started_on_the_new_machine(cluster: NewCluster) -> None:
    cluster.slurm.jobs = [FakeJob(7, node="gpu-2")]
    operation_id = await cluster.started("replace", [at(cluster, "gpu-2")], replacements=["gpu-5"])
    await cluster.platform.until(operation_id, lambda now: any("7 (ada)" in step.message for step in now.steps))
    cluster.slurm.jobs.append(FakeJob(9, node="gpu-5", user="bob"))
    cluster.platform.cancel(operation_id)
    await cluster.platform.until(operation_id, lambda now: any("9 (bob)" in step.message for step in now.steps))
    assert cluster.slurm.nodes["gpu-2"] == ["IDLE"], "the old machine takes jobs again before the new one is empty"
    cluster.slurm.jobs = [FakeJob(7, node="gpu-2")]
    ended = await cluster.platform.ended(operation_id)
    assert (ended.status, cluster.statuses()["gpu-2"]) == ("cancelled", "ready"), ended.error
    assert "new_machine" not in at(cluster, "gpu-2").adapter_detail
    _assert_untouched(cluster, "gpu-5")


async def test_a_member_that_failed_before_stays_failed_if_its_replace_is_cancelled(cluster: NewCluster) -> None:
    _cut(cluster, "gpu-2")
    member = cluster.platform.records.change_member(at(cluster, "gpu-2"), status="failed")
    cluster.slurm.first_job_answers = False
    cluster.slurm.nodes["gpu-5"] = ["MIXED"]
    operation_id = await cluster.started("replace", [member], replacements=["gpu-5"], force=True)
    await cluster.platform.until(operation_id, lambda now: any("srun on gpu-5" in step.message for step in now.steps))
    cluster.platform.cancel(operation_id)
    ended = await cluster.platform.ended(operation_id)
    assert (ended.status, cluster.statuses()["gpu-2"]) == ("cancelled", "failed"), ended.error


async def test_a_replace_whose_removal_has_begun_is_finished_and_not_undone(cluster: NewCluster) -> None:
    host = cluster.host("gpu-2")
    cluster.slurm.on_delete = lambda: setattr(host, "reachable", False)
    ended = await cluster.perform("replace", [at(cluster, "gpu-2")], replacements=["gpu-5"])
    assert (ended.status, cluster.statuses()["gpu-2"]) == ("failed", "failed")
    cluster.platform.compensate(ended.operation_id)
    undone = await cluster.platform.ended(ended.operation_id)
    assert (undone.status, "cannot be undone" in str(undone.error)) == ("failed", True)
    host.reachable = True
    cluster.platform.retry(ended.operation_id)
    again = await cluster.platform.ended(ended.operation_id)
    assert (again.status, cluster.statuses()["gpu-5"]) == ("succeeded", "ready"), again.error
    assert cluster.host("gpu-2").installed == set()


async def test_a_replace_that_is_cancelled_after_its_point_of_no_return_is_finished(cluster: NewCluster) -> None:
    deleted = asyncio.Event()
    cluster.slurm.on_delete = deleted.set
    operation_id = await cluster.started("replace", [at(cluster, "gpu-2")], replacements=["gpu-5"])
    await deleted.wait()
    cluster.platform.cancel(operation_id)
    ended = await cluster.platform.ended(operation_id)
    assert (ended.status, cluster.statuses()["gpu-5"]) == ("succeeded", "ready"), ended.error
    assert [taken.too_late for taken in ended.exits_taken] == [True]
    assert cluster.host("gpu-2").installed == set()


async def test_homes_of_the_controller_are_exported_to_the_new_machine_before_it_mounts_them() -> None:
    async with new_cluster(MEMBERS, home="nfs") as cluster:
        await cluster.perform("deploy")
        ended = await cluster.perform("replace", [at(cluster, "gpu-2")], replacements=["gpu-5"])
        assert ended.status == "succeeded", ended.error
        exports = cluster.host("gpu-1").files[home.EXPORTS_PATH].decode()
        assert "gpu-5(" in exports


async def test_a_worker_moves_off_the_machine_of_the_controller_and_back() -> None:
    async with new_cluster({"controller": ["gpu-1"], "worker": ["gpu-1"]}, topology="single_node") as cluster:
        await cluster.perform("deploy")
        for old, new in (("gpu-1", "gpu-5"), ("gpu-5", "gpu-1")):
            worker = next(member for member in roles.workers_of(cluster.platform.members(cluster.instance)))
            assert worker.node_name == old
            ended = await cluster.perform("replace", [worker], replacements=[new])
            assert ended.status == "succeeded", ended.error
            assert set(cluster.slurm.nodes) == {new}
            assert "slurmctld" in cluster.host("gpu-1").active
            assert ("slurmd" in cluster.host("gpu-1").active) is (new == "gpu-1")
        assert cluster.host("gpu-5").installed == set()


@pytest.mark.parametrize("old", ["ready", "dead", "dead and failed"])
async def test_a_controller_that_dies_at_every_boundary_still_replaces_the_worker(old: str) -> None:
    async with new_cluster(MEMBERS) as cluster:
        await cluster.perform("deploy")
    member, is_dead = at(cluster, "gpu-2"), old != "ready"
    if is_dead:
        _cut(cluster, "gpu-2")
    if old == "dead and failed":
        member = cluster.platform.records.change_member(member, status="failed")
    operation = cluster.platform.request(
        cluster.instance, "replace", [member], component_key="worker", replacements=["gpu-5"], force=is_dead
    )
    ended, crashed = await ended_despite_crashes(cluster, operation.operation_id)
    assert ended.status == "succeeded", ended.error
    assert cluster.statuses() == dict.fromkeys(["gpu-1", "gpu-3", "gpu-5"], "ready")
    assert {"bring up the new machine running", "gpu-2 removing", "gpu-5 joining"} <= crashed
    assert cluster.slurm.nodes.get("gpu-2") == (["DOWN", "DRAIN"] if is_dead else None)
    assert set(cluster.slurm.nodes) - {"gpu-2"} == {"gpu-3", "gpu-5"}
    assert (cluster.host("gpu-2").installed == set()) is not is_dead


async def test_a_controller_that_dies_at_every_boundary_still_undoes_a_replace() -> None:
    async with new_cluster(MEMBERS) as cluster:
        await cluster.perform("deploy")
        cluster.slurm.jobs = [FakeJob(7, node="gpu-2")]
        operation_id = await cluster.started("replace", [at(cluster, "gpu-2")], replacements=["gpu-5"])
        await cluster.platform.until(operation_id, lambda now: any("7 (ada)" in step.message for step in now.steps))
    cluster.platform.cancel(operation_id)
    cluster.platform.expire_lease(operation_id)
    ended, crashed = await ended_despite_crashes(cluster, operation_id)
    assert (ended.status, "take Slurm off the new machine running" in crashed) == ("cancelled", True), ended.error
    assert (cluster.statuses()["gpu-2"], cluster.slurm.nodes["gpu-2"]) == ("ready", ["IDLE"])
    _assert_untouched(cluster, "gpu-5")


async def test_the_preview_of_a_forced_replace_of_a_silent_machine_does_not_state_that_jobs_are_waited_for(
    cluster: NewCluster,
) -> None:
    cluster.slurm.jobs = [FakeJob(7, node="gpu-2")]
    _cut(cluster, "gpu-2")
    notes = {}
    for force in (False, True):
        asked = cluster.platform.ask_preview(
            cluster.instance, "replace", [at(cluster, "gpu-2")], component_key="worker", force=force
        )
        preview = (await cluster.platform.ended(asked.operation_id)).preview
        assert preview is not None
        notes[force] = " ".join(preview.notes)
    assert "needs force" in notes[False]
    assert "needs force" not in notes[True]
    assert "waits for these jobs" not in notes[False] + notes[True]
    assert "nothing is deleted on the machine" in notes[True]


def at(cluster: NewCluster, name: str) -> Member:
    return cluster.member_of(cluster.instance, name)


def _cut(cluster: NewCluster, name: str) -> None:
    """Cut the power of a machine. Slurm has noticed it."""
    cluster.host(name).reachable = False
    cluster.slurm.nodes[name] = ["DOWN", "NOT_RESPONDING"]


def _assert_untouched(cluster: NewCluster, name: str) -> None:
    host = cluster.host(name)
    left = [path for path in host.files if path.startswith(SLURM.folder)]
    assert (left, host.installed, host.active) == ([], set(), set())
    assert name not in cluster.slurm.nodes
