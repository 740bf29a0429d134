"""The statement of a remove or decommission: what was taken off each machine, as the machine shows it afterwards."""

from gpuaas_app_slurm import controller
from gpuaas_app_slurm.workload import footprint
from gpuaas_app_slurm.workload.footprint import SLURM
from gpuaas_app_slurm.workload.removal_acts import SlurmActs
from gpuaas_app_slurm_conformance.fake_slurm import running
from gpuaas_app_slurm_conformance.fresh_machines import QUICK, NewCluster, hangs_or_ends, new_cluster
from gpuaas_contract.operations import Operation, Target
from gpuaas_sdk.installs import removals, undo

SPLIT = {"controller": ["gpu-1"], "worker": ["gpu-2", "gpu-3"]}
LAST = undo.Undo(stop_units=("slurmd",), packages=("slurmd",), paths=("/etc/slurm", "/etc/slurm/slurm.conf"), last=True)


def _target(cluster: NewCluster, ended: Operation, node: str, role: str = "worker") -> Target:
    members = cluster.platform.records.members
    return next(
        target
        for target in ended.targets
        if (members[target.member_id].node_name, members[target.member_id].component_key) == (node, role)
    )


def _left(target: Target) -> dict[str, str]:
    return {item.what: item.why for item in target.left}


async def test_a_decommission_states_for_each_machine_what_was_removed_and_nothing_that_is_there() -> None:
    async with new_cluster(SPLIT) as cluster:
        await cluster.perform("deploy")
        ended = await cluster.perform("decommission")
        for node in ("gpu-2", "gpu-3"):
            target = _target(cluster, ended, node)
            assert any(line.startswith("packages") and "slurmd" in line for line in target.removed)
            assert any("/etc/slurm" in line for line in target.removed)
            assert "services that do not run now (2): gpuaas-slurm-health, slurmd" in target.removed
            assert [item.what for item in target.left] == [removals.PACKAGE_RECORDS[0]]
        controller = _target(cluster, ended, "gpu-1", "controller")
        assert any("slurmctld" in line for line in controller.removed)


async def test_on_a_machine_with_two_roles_the_first_to_leave_states_that_the_other_one_stays() -> None:
    both = {"controller": ["gpu-1"], "worker": ["gpu-1"]}
    async with new_cluster(both, topology="single_node") as cluster:
        await cluster.perform("deploy")
        ended = await cluster.perform("decommission")
        worker = _target(cluster, ended, "gpu-1")
        assert "controller" in _left(worker)["packages, users and files of Slurm"]
        assert any("packages" in line for line in _target(cluster, ended, "gpu-1", "controller").removed)


async def test_kept_packages_and_shared_homes_are_stated_as_left_with_the_reason() -> None:
    async with new_cluster(SPLIT, home="shared:/shared/home") as cluster:
        await cluster.perform("deploy")
        cluster.faults.needed_by_others = ("their-portal",)
        left = _left(_target(cluster, await cluster.perform("remove", [cluster.member("gpu-3")]), "gpu-3"))
        kept = next(what for what in left if what.startswith("packages"))
        assert all(name in kept for name in footprint.WORKER_PACKAGES)
        assert left[kept] == "other software on the machine needs them"
        assert "home folders on shared:/shared/home" in left


async def test_a_machine_that_was_given_up_is_stated_as_left() -> None:
    async with new_cluster(SPLIT) as cluster:
        await cluster.perform("deploy")
        cluster.host("gpu-3").reachable = False
        target = _target(cluster, await cluster.perform("decommission", force=True), "gpu-3")
        assert target.removed == []
        assert "did not answer" in _left(target)["Slurm (worker) on gpu-3"]


async def test_a_removal_states_the_same_if_its_controller_dies_before_one_of_the_last_commands() -> None:
    """Those around the look at the machine and the deletion of the receipt."""
    async with new_cluster(SPLIT) as cluster:
        await cluster.perform("deploy")
        host = cluster.host("gpu-3")
        before = len(host.commands)
        whole = _target(cluster, await cluster.perform("remove", [cluster.member("gpu-3")]), "gpu-3")
        total = len(host.commands) - before
    for commands in range(total - 4, total):
        async with running(controller.build(QUICK), cluster):
            member = cluster.add_worker("gpu-3")
            assert (await cluster.perform("add", [member])).status == "succeeded"
            member = cluster.platform.member(member.member_id)
        host.hangs_after = commands
        host.hangs.clear()
        async with running(controller.build(QUICK), cluster):
            operation_id = await cluster.started("remove", [member])
            assert await hangs_or_ends(cluster, "gpu-3", operation_id), f"there are fewer than {commands} commands"
        host.hangs_after = None
        cluster.platform.expire_lease(operation_id)
        async with running(controller.build(QUICK), cluster):
            ended = await cluster.platform.ended(operation_id)
        assert ended.status == "succeeded", (commands, ended.error)
        target = next(target for target in ended.targets if target.member_id == member.member_id)
        assert (target.removed, target.left) == (whole.removed, whole.left), f"after {commands} commands"


def test_what_is_still_there_after_the_removal_is_stated_as_left() -> None:
    present = {("path", "/etc/slurm"), ("unit", "slurmd"), ("content", "/home/people")}
    removal = removals.observed(SLURM, LAST, "worker", present, (), SlurmActs("local"))
    assert dict(removal.left) == {
        "unit slurmd": "it was still there after the removal",
        "path /etc/slurm": "it was still there after the removal",
        "home folders in /home/people": "they belong to accounts of people, which the platform keeps",
        removals.PACKAGE_RECORDS[0]: removals.PACKAGE_RECORDS[1],
    }
    assert removal.removed == (
        "packages (1): slurmd",
        "files and folders that do not exist now, as before (1): /etc/slurm/slurm.conf",
    )
