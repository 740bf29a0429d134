"""The controller moves to another machine, without machines: batch jobs and the queue stay, and until the old machine
is cleaned all can return."""

import dataclasses
from collections.abc import AsyncIterator

import pytest
from crashes import ended_despite_crashes
from gpuaas_app_slurm import controller
from gpuaas_app_slurm.workload import config, footprint, key_rotation, moves
from gpuaas_app_slurm_conformance.fake_slurm import FakeJob, running
from gpuaas_app_slurm_conformance.fresh_machines import QUICK, NewCluster, hangs_or_ends, new_cluster
from gpuaas_sdk.controller import Member
from gpuaas_sdk.machine import Machine

MEMBERS = {"controller": ["gpu-1"], "worker": ["gpu-2", "gpu-3"], "login": ["gpu-4"]}
NODES = ("gpu-2", "gpu-3", "gpu-4")


@pytest.fixture
async def cluster() -> AsyncIterator[NewCluster]:
    async with new_cluster(MEMBERS) as deployed:
        ended = await deployed.perform("deploy")
        assert ended.status == "succeeded", ended.error
        deployed.slurm.first_jobs_on.clear()
        deployed.slurm.jobs = [FakeJob(7, node="gpu-3"), FakeJob(8, node="")]
        yield deployed


async def test_the_controller_moves_with_its_queue_and_its_nodes(cluster: NewCluster) -> None:
    head = at(cluster, "gpu-1")
    cluster.platform.records.change_member(head, adapter_detail={"usage_until": "2026-11-17T00:00:00Z"})
    ended = await cluster.perform("replace", [head], replacements=["gpu-5"])
    assert ended.status == "succeeded", ended.error
    _assert_at(cluster, "gpu-5", old="gpu-1")
    moved = at(cluster, "gpu-5")
    assert (moved.member_id, moved.adapter_detail["usage_until"]) == (head.member_id, "2026-11-17T00:00:00Z")
    assert moved.adapter_detail["replaced"] == {"node_name": "gpu-1"}
    assert "SlurmctldHost=gpu-5(gpu-5)" in cluster.slurm.conf
    assert cluster.slurm.first_jobs_on == ["gpu-2"]
    keys = {cluster.host(name).files["/etc/slurm/slurm.key"] for name in ("gpu-5", *NODES)}
    assert keys == {b"key made on gpu-1"}
    assert "tcp://gpu-5:6817" in [link.url for link in cluster.platform.access_bundle(cluster.instance).endpoints]


async def test_a_cluster_that_was_moved_can_be_moved_again_and_changed(cluster: NewCluster) -> None:
    for old, new in (("gpu-1", "gpu-5"), ("gpu-5", "gpu-1")):
        ended = await cluster.perform("replace", [at(cluster, old)], replacements=[new])
        assert ended.status == "succeeded", ended.error
        _assert_at(cluster, new, old=old)
    added = await cluster.perform("add", [cluster.add_worker("gpu-6")])
    assert (added.status, cluster.host("gpu-6").conf_server) == ("succeeded", "gpu-1:6817"), added.error


@pytest.mark.parametrize("fault", ["slurmctld", "first job", "version", "machine"])
async def test_if_the_new_machine_does_not_work_the_old_one_continues(cluster: NewCluster, fault: str) -> None:
    cluster.faults.broken_units = {"slurmctld": {"gpu-5 slurmctld"}}.get(fault, set())
    cluster.slurm.first_job_answers = fault != "first job"
    cluster.faults.packaged_version = "25.05.1" if fault == "version" else cluster.faults.packaged_version
    cluster.host("gpu-5").reachable = fault != "machine"
    ended = await cluster.perform("replace", [at(cluster, "gpu-1")], replacements=["gpu-5"])
    assert ended.error.failure_class == "refused", ended.error
    _assert_at(cluster, "gpu-1", old="gpu-5")
    assert cluster.statuses()["gpu-1"] == "ready"


async def test_a_worker_that_does_not_register_at_the_new_machine_returns_all(cluster: NewCluster) -> None:
    cluster.faults.lost_after_restart = {"gpu-3"}
    ended = await cluster.perform("replace", [at(cluster, "gpu-1")], replacements=["gpu-5"])
    assert (ended.error.failure_class, "gpu-3" in ended.error.message) == ("refused", True)
    _assert_at(cluster, "gpu-1", old="gpu-5")


async def test_a_return_keeps_what_happened_on_the_new_machine(cluster: NewCluster) -> None:
    cluster.slurm.first_job_waits = True
    host = cluster.host("gpu-5")
    operation_id = await cluster.started("replace", [at(cluster, "gpu-1")], replacements=["gpu-5"])
    await cluster.platform.until(operation_id, lambda now: any("srun on" in step.message for step in now.steps))
    assert "slurmctld" in host.active
    cluster.slurm.jobs.append(FakeJob(9, node="", user="bob"))
    cluster.platform.cancel(operation_id)
    ended = await cluster.platform.ended(operation_id)
    assert ended.status == "cancelled", ended.error
    _assert_at(cluster, "gpu-1", old="gpu-5", jobs=[7, 8, 9])


async def test_commands_that_wait_for_jobs_refuse_the_move_and_force_ends_them(cluster: NewCluster) -> None:
    cluster.slurm.jobs.append(FakeJob(9, node="gpu-3", user="bob", is_batch=False))
    ended = await cluster.perform("replace", [at(cluster, "gpu-1")], replacements=["gpu-5"])
    assert (ended.error.failure_class, "9 (bob)" in ended.error.message) == ("refused", True)
    _assert_at(cluster, "gpu-1", old="gpu-5", jobs=[7, 8, 9])
    forced = await cluster.perform("replace", [at(cluster, "gpu-1")], replacements=["gpu-5"], force=True)
    assert forced.status == "succeeded", forced.error
    _assert_at(cluster, "gpu-5", old="gpu-1")


async def test_a_command_that_begins_to_wait_during_the_preparation_refuses_the_move(cluster: NewCluster) -> None:
    cluster.slurm.jobs_at_close = [FakeJob(9, node="gpu-3", user="bob", is_batch=False)]
    ended = await cluster.perform("replace", [at(cluster, "gpu-1")], replacements=["gpu-5"])
    assert (ended.error.failure_class, "9 (bob)" in ended.error.message) == ("refused", True)
    _assert_at(cluster, "gpu-1", old="gpu-5", jobs=[7, 8, 9])
    assert "State=UP" in cluster.slurm.conf
    assert cluster.slurm.closed == {}


async def test_a_dead_controller_machine_is_refused_with_the_next_command(cluster: NewCluster) -> None:
    cluster.host("gpu-1").reachable = False
    for force in (False, True):
        ended = await cluster.perform("replace", [at(cluster, "gpu-1")], replacements=["gpu-5"], force=force)
        assert (ended.error.failure_class, "does not answer" in ended.error.message) == ("refused", True)
        assert "gpuaas decommission" in ended.error.fix
    assert cluster.host("gpu-5").installed == set()


async def test_a_worker_that_does_not_answer_refuses_the_move_and_is_pointed_by_its_repair(cluster: NewCluster) -> None:
    host = cluster.host("gpu-3")
    host.reachable = False
    ended = await cluster.perform("replace", [at(cluster, "gpu-1")], replacements=["gpu-5"])
    assert (ended.error.failure_class, "gpu-3" in ended.error.message) == ("refused", True)
    forced = await cluster.perform("replace", [at(cluster, "gpu-1")], replacements=["gpu-5"], force=True)
    assert forced.status == "succeeded", forced.error
    host.reachable = True
    assert host.conf_server == "gpu-1:6817"
    repaired = await cluster.perform("repair", [at(cluster, "gpu-3")])
    assert (repaired.status, host.conf_server) == ("succeeded", "gpu-5:6817"), repaired.error


async def test_an_old_machine_that_dies_after_the_move_is_left_behind(cluster: NewCluster) -> None:
    old = cluster.host("gpu-1")
    cluster.slurm.on_first_job = lambda: setattr(old, "reachable", False)
    operation_id = await cluster.started("replace", [at(cluster, "gpu-1")], replacements=["gpu-5"])
    ended = await cluster.platform.ended(operation_id)
    assert ended.status == "succeeded", ended.error
    assert "was not removed" in at(cluster, "gpu-5").adapter_detail["replaced"]["left_behind"]


@pytest.mark.parametrize(
    ("members", "topology", "new", "words"),
    [
        ({"controller": ["gpu-1"], "worker": ["gpu-1"]}, "single_node", "gpu-5", "also a worker"),
        ({"controller": ["gpu-1"], "worker": ["gpu-2"]}, "split", "gpu-2", "also a worker"),
    ],
)
async def test_machines_with_a_second_role_are_refused(
    members: dict[str, list[str]], topology: str, new: str, words: str
) -> None:
    async with new_cluster(members, topology=topology) as cluster:
        await cluster.perform("deploy")
        head = next(member for member in cluster.platform.members(cluster.instance) if member.component_key != "worker")
        ended = await cluster.perform("replace", [head], replacements=[new])
        assert (ended.error.failure_class, words in ended.error.message) == ("refused", True)


async def test_homes_that_the_controller_exports_refuse_the_move() -> None:
    async with new_cluster(MEMBERS, home="nfs") as cluster:
        await cluster.perform("deploy")
        ended = await cluster.perform("replace", [at(cluster, "gpu-1")], replacements=["gpu-5"])
        assert (ended.error.failure_class, "exports the home folders" in ended.error.message) == ("refused", True)


async def test_a_move_is_refused_while_the_key_is_being_replaced(cluster: NewCluster) -> None:
    await key_rotation.begin(Machine(cluster.host("gpu-1")))
    ended = await cluster.perform("replace", [at(cluster, "gpu-1")], replacements=["gpu-5"])
    assert (ended.error.failure_class, "auth.rotate" in ended.error.fix) == ("refused", True)
    _assert_at(cluster, "gpu-1", old="gpu-5")


async def test_the_preview_of_a_move_names_jobs_and_what_waits(cluster: NewCluster) -> None:
    cluster.slurm.jobs.append(FakeJob(9, node="gpu-3", user="bob", is_batch=False))
    head = at(cluster, "gpu-1")
    asked = cluster.platform.ask_preview(cluster.instance, "replace", [head], component_key="controller")
    preview = (await cluster.platform.ended(asked.operation_id)).preview
    assert preview is not None
    assert [work.work_id for work in preview.running_work] == ["7", "9"]
    assert preview.gpu_hours_at_stake == 0
    assert "no job starts" in preview.changes[0].effect
    assert any("9 (bob)" in note for note in preview.notes)


async def test_the_preview_of_a_move_names_a_second_role_that_refuses_it() -> None:
    async with new_cluster({"controller": ["gpu-1"], "worker": ["gpu-1"]}, topology="single_node") as cluster:
        await cluster.perform("deploy")
        head = next(member for member in cluster.platform.members(cluster.instance) if member.component_key != "worker")
        asked = cluster.platform.ask_preview(cluster.instance, "replace", [head], component_key="controller")
        preview = (await cluster.platform.ended(asked.operation_id)).preview
    assert preview is not None
    assert preview.refusal.startswith("gpu-1 is also a worker")


async def test_a_controller_that_dies_at_every_boundary_still_moves() -> None:
    cluster = await _deployed()
    operation_id = _requested(cluster)
    ended, crashed = await ended_despite_crashes(cluster, operation_id)
    assert ended.status == "succeeded", ended.error
    assert {"move to the new machine running", "gpu-1 removing", "gpu-5 joining"} <= crashed
    _assert_at(cluster, "gpu-5", old="gpu-1")


@pytest.mark.parametrize("machine", ["gpu-1", "gpu-5"])
@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_controller_that_dies_before_any_command_still_moves_or_returns(
    machine: str, is_cancelled: bool
) -> None:
    """Another controller continues, or undoes the move. A cancel that comes too late is no failure: the move is
    finished. The queue is the same on the machine that has it then."""
    commands, is_hung = 1, True
    while is_hung:
        cluster = await _deployed()
        operation_id = _requested(cluster)
        host = cluster.host(machine)
        host.hangs_after, host.hangs = commands, type(host.hangs)()
        async with running(controller.build(QUICK), cluster):
            is_hung = await hangs_or_ends(cluster, machine, operation_id)
            if is_hung and is_cancelled:
                cluster.platform.cancel(operation_id)
        host.hangs_after = None
        if is_hung:
            cluster.platform.expire_lease(operation_id)
        async with running(controller.build(QUICK), cluster):
            ended = await cluster.platform.ended(operation_id)
        if is_hung and is_cancelled and ended.status == "cancelled":
            _assert_at(cluster, "gpu-1", old="gpu-5")
        else:
            assert ended.status == "succeeded", (commands, ended.error)
            _assert_at(cluster, "gpu-5", old="gpu-1")
        commands += 9


async def _deployed() -> NewCluster:
    async with new_cluster(MEMBERS) as cluster:
        await cluster.perform("deploy")
    cluster.slurm.jobs = [FakeJob(7, node="gpu-3"), FakeJob(8, node="")]
    return cluster


def _requested(cluster: NewCluster) -> str:
    head = at(cluster, "gpu-1")
    request = dataclasses.asdict(_Request())
    return cluster.platform.request(cluster.instance, "replace", [head], **request).operation_id


@dataclasses.dataclass
class _Request:
    component_key: str = "controller"
    replacements: tuple[str, ...] = ("gpu-5",)


def at(cluster: NewCluster, name: str) -> Member:
    return cluster.member_of(cluster.instance, name)


def _assert_at(cluster: NewCluster, name: str, *, old: str, jobs: list[int] | None = None) -> None:
    """Check that the cluster runs with its queue on one machine, and that the other one is as before the app."""
    host, other = cluster.host(name), cluster.host(old)
    assert cluster.slurm.controllers == {name}
    assert {"mariadb", "slurmdbd", "slurmctld"} <= host.active
    assert [job.job_id for job in cluster.slurm.jobs] == (jobs or [7, 8])
    assert {cluster.host(node).conf_server for node in NODES} == {f"{name}:6817"}
    assert not [path for path in host.files if path.startswith(moves.FOLDER)]
    assert (other.installed, other.active, other.files.get(config.SLURM_CONF)) == (set(), set(), None)
    assert not [path for path in other.files if path.startswith(footprint.SLURM.folder)]
    for node in NODES:
        assert cluster.host(node)._changed() == []
