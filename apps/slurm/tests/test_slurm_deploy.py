"""Deploy without machines: fresh machines in memory, and a Slurm that answers from memory."""

import msgspec
import pytest
from gpuaas_app_slurm.workload import config, footprint, home, keys, people, reporter, slurm, warnings
from gpuaas_app_slurm_conformance.fake_slurm import FakeJob
from gpuaas_app_slurm_conformance.fresh_machines import QUICK, VERSION, FreshHost, NewCluster, new_cluster
from gpuaas_contract.posix import PosixPerson
from gpuaas_sdk.failures import Permanent, Temporary
from gpuaas_sdk.installs import packages, receipts
from gpuaas_sdk.machine import Command, Completed, Machine, Ran, commands
from gpuaas_sdk.testing import FakeHost

SPLIT = {"controller": ["gpu-1"], "worker": ["gpu-2", "gpu-3"]}
WITH_LOGIN = {**SPLIT, "login": ["gpu-4"]}


async def test_a_deploy_starts_the_controller_joins_every_worker_and_runs_a_job_on_each() -> None:
    async with new_cluster(SPLIT) as cluster:
        ended = await cluster.perform("deploy")
        assert ended.status == "succeeded", ended.error
        assert cluster.statuses() == dict.fromkeys(["gpu-1", "gpu-2", "gpu-3"], "ready")
        assert sorted(cluster.slurm.first_jobs_on) == ["gpu-2", "gpu-3"]
        assert {"mariadb-server", "slurmctld"} <= cluster.host("gpu-1").installed
        assert "slurmd" in cluster.host("gpu-2").installed
        assert "slurmctld" not in cluster.host("gpu-2").installed
        for name in ("gpu-2", "gpu-3"):
            assert cluster.host(name).files[keys.SLURM_KEY] == b"key made on gpu-1"
            assert reporter.UNIT in cluster.host(name).active
        assert b"ClusterName=lab" in cluster.host("gpu-1").files["/etc/slurm/slurm.conf"]
        controller = cluster.member_of(cluster.instance, "gpu-1")
        assert controller.adapter_detail["daemon_version"] == VERSION
        assert "srun -N2 hostname" in _published(cluster)


async def test_on_a_single_node_both_roles_are_installed_once_and_the_node_runs_a_job() -> None:
    both = {"controller": ["gpu-1"], "worker": ["gpu-1"]}
    async with new_cluster(both, topology="single_node") as cluster:
        ended = await cluster.perform("deploy")
        assert ended.status == "succeeded", ended.error
        assert cluster.slurm.first_jobs_on == ["gpu-1"]
        installs = [command for command in cluster.host("gpu-1").commands if packages.INSTALL in command.input.decode()]
        assert len(installs) == 1
        assert {"slurmctld", "slurmd"} <= cluster.host("gpu-1").installed


async def test_a_worker_that_does_not_answer_fails_and_the_rest_of_the_cluster_is_ready() -> None:
    async with new_cluster(SPLIT) as cluster:
        cluster.host("gpu-3").reachable = False
        await cluster.perform("deploy")
        assert cluster.statuses() == {"gpu-1": "ready", "gpu-2": "ready", "gpu-3": "failed"}
        assert cluster.slurm.first_jobs_on == ["gpu-2"]


async def test_without_the_machine_of_the_controller_nothing_is_installed() -> None:
    async with new_cluster(SPLIT) as cluster:
        cluster.host("gpu-1").reachable = False
        ended = await cluster.perform("deploy")
        assert ended.status == "failed"
        assert cluster.statuses()["gpu-1"] == "failed"
        assert cluster.host("gpu-2").installed == set()


@pytest.mark.parametrize(
    ("unit", "reason"),
    [
        ("gpu-1 slurmdbd", "slurmdbd on gpu-1 did not answer within"),
        ("gpu-1 slurmctld", "fatal: the last line of /var/log/slurm/slurmctld.log"),
    ],
)
async def test_a_daemon_of_the_controller_that_does_not_start_fails_the_deploy_with_its_log(
    unit: str, reason: str
) -> None:
    async with new_cluster(SPLIT) as cluster:
        cluster.faults.broken_units = {unit}
        ended = await cluster.perform("deploy")
        assert (ended.status, reason in ended.error.message) == ("failed", True), ended.error
        assert "journalctl -u slurm" in ended.error.fix
        controller = cluster.member_of(cluster.instance, "gpu-1")
        assert (controller.status, controller.adapter_detail["phase"]) == ("failed", "start the controller")
        assert cluster.slurm.nodes == {}


async def test_a_worker_whose_slurmd_does_not_start_fails_with_its_log_and_a_retry_completes_the_deploy() -> None:
    async with new_cluster(SPLIT) as cluster:
        cluster.faults.broken_units = {"gpu-3 slurmd"}
        ended = await cluster.perform("deploy")
        failed = cluster.member("gpu-3")
        assert (failed.status, failed.adapter_detail["phase"]) == ("failed", "join the cluster")
        assert "/var/log/slurm/slurmd.log" in failed.adapter_detail["error"]
        assert cluster.statuses()["gpu-2"] == "ready"
        cluster.faults.broken_units = set()
        cluster.platform.retry(ended.operation_id)
        again = await cluster.platform.ended(ended.operation_id)
        assert again.status == "succeeded", again.error
        assert cluster.statuses() == dict.fromkeys(["gpu-1", "gpu-2", "gpu-3"], "ready")
        assert sorted(cluster.slurm.first_jobs_on) == ["gpu-2", "gpu-3"]


async def test_package_sources_with_an_old_slurm_are_refused_before_anything_is_installed() -> None:
    async with new_cluster(SPLIT) as cluster:
        cluster.faults.packaged_version = "22.05.8"
        ended = await cluster.perform("deploy")
        assert (ended.status, "needs 23.11 or newer" in ended.error.message) == ("failed", True)
        assert cluster.host("gpu-1").installed == set()


async def test_an_installation_waits_while_another_program_has_the_lock_of_the_package_tools() -> None:
    async with new_cluster({"controller": ["gpu-1"], "worker": ["gpu-2"]}) as cluster:
        cluster.faults.package_locks = 1
        ended = await cluster.perform("deploy")
        assert ended.status == "succeeded", ended.error
        assert cluster.faults.package_locks == 0


async def test_a_munge_cluster_has_the_key_of_munge_on_every_machine_and_no_slurm_key() -> None:
    async with new_cluster(SPLIT, auth="munge") as cluster:
        ended = await cluster.perform("deploy")
        assert ended.status == "succeeded", ended.error
        for name in ("gpu-1", "gpu-2", "gpu-3"):
            host = cluster.host(name)
            assert host.files[keys.MUNGE_KEY] == b"key made on gpu-1"
            assert keys.SLURM_KEY not in host.files
            assert "munge" in host.active


async def test_a_worker_on_the_machine_of_the_controller_leaves_munge_and_the_reports_on_it_as_they_are() -> None:
    async with new_cluster(SPLIT, auth="munge") as cluster:
        assert (await cluster.perform("deploy")).status == "succeeded"
        head, path = cluster.host("gpu-1"), receipts.path_of(footprint.SLURM, cluster.instance.instance_id)
        receipt = msgspec.json.decode(head.files[path], type=receipts.Receipt)
        receipt.packages.append("munge")  # Debian's packages of Slurm depend on it.
        head.files[path] = msgspec.json.encode(receipt)
        before = len(head.ran)
        added = await cluster.perform("add", [cluster.add_worker("gpu-1")])
        assert added.status == "succeeded", added.error
        assert not [argv for argv in head.ran[before:] if "disable" in argv and "munge" in argv]
        unit = head.files[reporter.UNIT_PATH].decode()
        assert "'gpu-1' mariadb slurmctld slurmd slurmdbd\n" in unit


async def test_a_slurmctld_that_cannot_be_enabled_is_an_error() -> None:
    host = FakeHost("gpu-1", lambda argv: Ran(1, "", "unit is masked") if "enable" in argv else Ran(0, "", ""))

    async def say(_: str) -> None:
        return None

    with pytest.raises(Permanent, match="slurmctld would not start with the machine gpu-1: unit is masked"):
        await slurm.start_scheduler(Machine(host), QUICK, say)


async def test_a_unit_of_homes_that_cannot_be_read_is_not_taken_for_local_homes() -> None:
    class Broken(FakeHost):
        async def execute(self, command: Command) -> Completed:
            lines = [commands.as_line(Completed(1, b"", b"Input/output error")) for _ in command.parts]
            return Completed(0, b"".join(lines), b"")

    with pytest.raises(Temporary, match=r"cannot read \S+ on gpu-1: Input/output error"):
        await warnings.of(Machine(Broken("gpu-1")), "slurmd")


async def test_people_of_the_project_get_their_place_in_slurm_before_the_first_worker_is_ready() -> None:
    async with new_cluster(SPLIT) as cluster:
        cluster.platform.records.people.append(_person("ada", 20001))
        ended = await cluster.perform("deploy")
        assert ended.status == "succeeded", ended.error
        head = cluster.host("gpu-1")
        synced = [command.argv for command in head.commands if people.HOMES in command.input.decode()]
        assert [argv[-3:] for argv in synced] == [("ada", "20001", "20001")]
        assert "ada" in cluster.slurm.accounting.users


async def test_a_login_machine_joins_without_jobs_and_is_where_people_log_in() -> None:
    async with new_cluster(WITH_LOGIN) as cluster:
        ended = await cluster.perform("deploy")
        assert ended.status == "succeeded", ended.error
        login = cluster.member_of(cluster.instance, "gpu-4")
        assert (login.status, login.observed_version) == ("ready", VERSION)
        assert "gpu-4" not in cluster.slurm.first_jobs_on
        assert set(_published(cluster).values()) == {login.allocation_id}


async def test_a_login_machine_from_which_users_do_not_reach_slurmctld_fails() -> None:
    async with new_cluster(WITH_LOGIN) as cluster:
        cluster.faults.users_cannot_ping = True
        await cluster.perform("deploy")
        login = cluster.member_of(cluster.instance, "gpu-4")
        assert (login.status, "slurmctld does not answer" in login.status_reason) == ("failed", True)


@pytest.mark.parametrize(("role", "name"), [("login", "gpu-2"), ("login", "gpu-1"), ("worker", "gpu-4")])
async def test_an_added_login_machine_shares_its_machine_with_no_other_role(role: str, name: str) -> None:
    async with new_cluster(WITH_LOGIN) as cluster:
        await cluster.perform("deploy")
        nodes_before, before = dict(cluster.slurm.nodes), len(cluster.host(name).commands)
        added = cluster.platform.records.add_member(cluster.instance, role, name)
        ended = await cluster.perform("add", [added])
        assert (ended.status, ended.error.failure_class) == ("failed", "refused")
        assert f"{name} has another role in this cluster" in ended.error.message
        assert (cluster.slurm.nodes, cluster.host(name).commands[before:]) == (nodes_before, [])


@pytest.mark.parametrize("force", [False, True])
async def test_removing_a_member_whose_add_was_refused_leaves_the_other_role_of_its_machine(force: bool) -> None:
    async with new_cluster(SPLIT) as cluster:
        await cluster.perform("deploy")
        login = cluster.platform.records.add_member(cluster.instance, "login", "gpu-2")
        await cluster.perform("add", [login])
        before = len(cluster.host("gpu-2").commands)
        ended = await cluster.perform("remove", [login], force=force)
        assert ended.status == "succeeded", ended.error
        assert cluster.statuses() == dict.fromkeys(["gpu-1", "gpu-2", "gpu-3"], "ready")
        assert (cluster.slurm.nodes["gpu-2"], cluster.host("gpu-2").commands[before:]) == (["IDLE"], [])


async def test_a_login_machine_is_refused_in_a_cluster_whose_partition_takes_every_node() -> None:
    async with new_cluster(SPLIT) as cluster:
        await cluster.perform("deploy")
        conf = cluster.host("gpu-1").files["/etc/slurm/slurm.conf"]
        cluster.host("gpu-1").files["/etc/slurm/slurm.conf"] = conf.replace(b"NodeSet=", b"#NodeSet#")
        login = cluster.platform.records.add_member(cluster.instance, "login", "gpu-4")
        ended = await cluster.perform("add", [login])
        assert (ended.status, "takes every machine for jobs" in ended.error.message) == ("failed", True)
        assert "gpu-4" not in cluster.slurm.nodes


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"is_shared": False}, "gpu-2 does not have a file that machine gpu-1 wrote"),
        ({"owner_elsewhere": "65534:65534"}, "belongs to 65534:65534 there"),
        ({"cannot_write": "missing"}, "/shared/home does not exist there"),
        ({"cannot_write": "not-writable /shared"}, "root cannot write to /shared there"),
        ({"cannot_write": "no-owner /shared"}, "as on an export with root_squash"),
        ({"people_mounted": "10.0.0.9:/old"}, "already has 10.0.0.9:/old mounted"),
        ({"owners": "6000 alice\n6001 bob\n"}, "/shared/home/alice belongs to 6000, the number of researcher here"),
        ({"owners": "6003 researcher\n"}, "/shared/home/researcher belongs to 6003, and researcher gets 6000"),
    ],
    ids=["not shared", "other owners", "missing", "read-only", "squashed", "busy", "number", "name"],
)
async def test_a_shared_home_that_does_not_work_is_refused_before_anything_is_installed(
    fault: dict[str, str], reason: str
) -> None:
    async with new_cluster(SPLIT, home="shared:/shared/home") as cluster:
        for name, value in fault.items():
            setattr(cluster.faults, name, value)
        ended = await cluster.perform("deploy")
        assert (ended.error.failure_class, reason in ended.error.message) == ("refused", True), ended.error
        assert [cluster.host(name).installed for name in ("gpu-1", "gpu-2", "gpu-3")] == [set(), set(), set()]


async def test_a_shared_home_is_mounted_on_every_machine_and_a_worker_that_is_added_gets_it_too() -> None:
    async with new_cluster(SPLIT, home="shared:/shared/home") as cluster:
        await cluster.perform("deploy")
        added = cluster.add_worker("gpu-4")
        ended = await cluster.perform("add", [added])
        assert ended.status == "succeeded", ended.error
        for name in ("gpu-1", "gpu-2", "gpu-3", "gpu-4"):
            assert b"What=/shared/home\n" in cluster.host(name).files[home.UNIT_PATH]


async def test_the_controller_exports_homes_to_exactly_the_machines_of_the_cluster() -> None:
    async with new_cluster(SPLIT, home="nfs") as cluster:
        ended = await cluster.perform("deploy")
        assert ended.status == "succeeded", ended.error
        assert _clients(cluster.host("gpu-1")) == {"gpu-1", "gpu-2", "gpu-3"}
        assert b"What=gpu-1:/srv/gpuaas-home\n" in cluster.host("gpu-2").files[home.UNIT_PATH]
        assert "nfs-kernel-server" in cluster.host("gpu-1").installed
        assert "nfs-kernel-server" not in cluster.host("gpu-2").installed
        await cluster.perform("add", [cluster.add_worker("gpu-4")])
        assert _clients(cluster.host("gpu-1")) == {"gpu-1", "gpu-2", "gpu-3", "gpu-4"}


@pytest.mark.parametrize(("machine", "module"), [("gpu-1", "nfsd"), ("gpu-2", "nfs4")])
async def test_homes_over_nfs_are_refused_if_a_kernel_cannot_do_it(machine: str, module: str) -> None:
    async with new_cluster(SPLIT, home="nfs") as cluster:
        cluster.faults.kernel_lacks = {machine: module}
        ended = await cluster.perform("deploy")
        assert (ended.error.failure_class, f"its kernel has no {module}" in ended.error.message) == ("refused", True)
        assert cluster.host("gpu-1").installed == set()


async def test_a_cancelled_deploy_leaves_nothing_on_any_machine() -> None:
    async with new_cluster(WITH_LOGIN) as cluster:
        cluster.slurm.first_job_answers = False
        operation_id = await cluster.started("deploy")
        await cluster.platform.until(operation_id, lambda now: any("first job" in step.name for step in now.steps))
        cluster.platform.cancel(operation_id)
        ended = await cluster.platform.ended(operation_id)
        assert ended.status == "cancelled", ended.error
        _assert_clean(cluster, "gpu-1", "gpu-2", "gpu-3", "gpu-4")


async def test_a_failed_deploy_is_undone_only_after_the_jobs_on_its_ready_workers_have_ended() -> None:
    async with new_cluster(SPLIT) as cluster:
        cluster.faults.broken_units = {"gpu-3 slurmd"}
        ended = await cluster.perform("deploy")
        cluster.slurm.jobs = [FakeJob(7, node="gpu-2")]
        operation_id = cluster.platform.compensate(ended.operation_id).operation_id
        await cluster.platform.until(operation_id, lambda now: any("7 (ada)" in step.message for step in now.steps))
        assert "slurmd" in cluster.host("gpu-2").active
        cluster.slurm.jobs = []
        undone = await cluster.platform.ended(operation_id)
        assert undone.status == "cancelled", undone.error
        _assert_clean(cluster, "gpu-1", "gpu-2", "gpu-3")


async def test_a_decommission_takes_everything_off_the_machines_that_the_deploy_put_there() -> None:
    async with new_cluster(WITH_LOGIN) as cluster:
        await cluster.perform("deploy")
        ended = await cluster.perform("decommission")
        assert ended.status == "succeeded", ended.error
        _assert_clean(cluster, "gpu-1", "gpu-2", "gpu-3", "gpu-4")


async def test_packages_that_other_software_needs_stay_and_are_named() -> None:
    async with new_cluster(SPLIT) as cluster:
        await cluster.perform("deploy")
        cluster.faults.needed_by_others = ("their-portal",)
        ended = await cluster.perform("remove", [cluster.member("gpu-3")])
        assert ended.status == "succeeded", ended.error
        assert set(cluster.member("gpu-3").adapter_detail["packages_kept"]) == set(footprint.WORKER_PACKAGES)
        assert set(footprint.WORKER_PACKAGES) <= cluster.host("gpu-3").installed


async def test_two_machines_with_the_same_host_name_are_refused() -> None:
    async with new_cluster(SPLIT) as cluster:
        cluster.host("gpu-3").hostname = "gpu-2"
        ended = await cluster.perform("deploy")
        assert (ended.status, "two machines have the host name gpu-2" in ended.error.message) == ("failed", True)


def _assert_clean(cluster: NewCluster, *names: str) -> None:
    assert cluster.statuses() == {}
    for name in names:
        host = cluster.host(name)
        left = [path for path in host.files if path.startswith((footprint.SLURM.folder, config.SLURM_FOLDER))]
        assert (left, host.installed, host.active - {"munge"}) == ([], set(), set()), name


def _published(cluster: NewCluster) -> dict[str, str]:
    """Return command line -> the allocation on whose machine people run it."""
    return {each.line: each.allocation_id for each in cluster.platform.access_bundle(cluster.instance).commands}


def _clients(host: FreshHost) -> set[str]:
    line = host.files[home.EXPORTS_PATH].decode().splitlines()[-1]
    return {word.split("(")[0] for word in line.split()[1:]}


def _person(login: str, uid: int) -> PosixPerson:
    return PosixPerson(
        user_id=f"user_{login}",
        name=login,
        login=login,
        uid=uid,
        gid=uid,
        state="active",
        is_admin=False,
        public_keys=[],
    )
