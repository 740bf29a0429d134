"""Pure decisions of the app: facts in, decisions out."""

import msgspec
import pytest
from gpuaas_app_slurm import access, details, roles
from gpuaas_app_slurm.workload import cluster, config, facts, footprint, home, removal_acts, versions, warnings
from gpuaas_app_slurm.workload.footprint import SLURM
from gpuaas_sdk.failures import Permanent, Refused
from gpuaas_sdk.installs import packages, receipts, undo

BARE = "hostname=gpu-2\ncpus=8\nmemory_mb=16000\ngpu=/dev/nvidia10\ngpu=/dev/nvidia2\n"
PURE = BARE + "cgroup_v1=0\ncgroup_controllers=cpuset cpu io memory pids\n"
HYBRID = BARE + "cgroup_v1=9\ncgroup_controllers=\n"
SLURMD = "slurmd=NodeName=gpu-2 CPUs=8 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=15900\n"


SHARED = home.Home("shared", "/shared/home")


class Placed(msgspec.Struct, frozen=True):
    component_key: str
    allocation_id: str
    node_name: str = "gpu-1"


def test_facts_count_gpus_in_the_order_of_their_numbers() -> None:
    assert facts.parse(PURE).gpu_devices == ("/dev/nvidia2", "/dev/nvidia10")


@pytest.mark.parametrize(
    ("shown", "cgroup"),
    [(PURE, "v2"), (HYBRID, "disabled"), (BARE + "cgroup_v1=0\ncgroup_controllers=\n", "disabled")],
    ids=["pure", "hybrid", "without controllers"],
)
def test_only_a_pure_cgroup_v2_tree_with_its_controllers_is_used(shown: str, cgroup: str) -> None:
    assert facts.parse(shown).cgroup == cgroup


def test_node_options_are_slurmd_s_own_counts_with_a_memory_margin() -> None:
    machine = facts.parse(HYBRID + SLURMD)
    assert facts.node_options(machine) == (
        "CPUs=8 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=15388 Feature=worker Gres=gpu:2"
    )


def test_node_options_need_slurmd() -> None:
    with pytest.raises(Permanent, match="slurmd -C"):
        facts.node_options(facts.parse(HYBRID))


def test_one_hybrid_machine_turns_cgroups_off_for_the_cluster() -> None:
    assert cluster.cgroup_for((facts.parse(PURE), facts.parse(HYBRID))) == "disabled"
    assert cluster.cgroup_for((facts.parse(PURE),)) == "v2"


def test_a_hybrid_machine_cannot_join_a_cluster_with_cgroups() -> None:
    with pytest.raises(Permanent, match="pure cgroup v2"):
        cluster.refuse_other_cgroup(facts.parse(HYBRID), "v2")
    cluster.refuse_other_cgroup(facts.parse(PURE), "disabled")


def test_default_memory_lets_a_job_use_every_core_of_the_smallest_node() -> None:
    lean = facts.parse("hostname=a\ncpus=16\nmemory_mb=16000\n")
    rich = facts.parse("hostname=b\ncpus=4\nmemory_mb=16000\n")
    assert cluster.memory_per_cpu_mb((lean, rich)) == (16000 - 512) // 16


def test_two_machines_of_one_name_are_refused() -> None:
    with pytest.raises(Permanent, match="gpu-2"):
        cluster.refuse_same_names((facts.parse(BARE), facts.parse(BARE)))


def test_roles_on_a_shared_machine_come_controller_first() -> None:
    members = (Placed("worker", "a"), Placed("controller", "a"), Placed("worker", "b"))
    assert roles.roles_on(members, "a") == ("controller", "worker")
    assert roles.roles_on(members, "b") == ("worker",)


def test_a_package_that_differs_from_the_running_daemon_gives_a_warning() -> None:
    same = {"package_version": "24.11.5-4", "daemon_version": "24.11.5"}
    other = {"package_version": "26.05.5-1", "daemon_version": "24.11.5"}
    assert details.version_warning(same) == ""
    assert "restart" in details.version_warning(other)
    assert "restart" in details.version_warning({"package_version": "24.11.10-1", "daemon_version": "24.11.1"})


def _receipt(*held: str) -> receipts.Receipt:
    units = [
        receipts.UnitBefore("slurmd.service", "not-found", "inactive"),
        receipts.UnitBefore("mariadb.service", "enabled", "active"),
        receipts.UnitBefore("network-online.target", "static", "inactive"),
    ]
    return receipts.Receipt(
        "inst_1", list(held), ["slurmd"], ["/etc/slurm"], ["/var/log/slurm"], ["slurm"], ["slurm"], units
    )


def test_with_the_last_role_the_health_reporter_stops_first_and_is_removed_even_if_the_receipt_is_older() -> None:
    plan = undo.undo(SLURM, _receipt("worker"), "worker")
    assert plan.stop_units[0] == "gpuaas-slurm-health"
    assert plan.paths == ("/etc/slurm", *footprint.OWN_PATHS)
    listed = msgspec.structs.replace(_receipt("worker"), paths=list(footprint.PATHS))
    assert undo.undo(SLURM, listed, "worker").paths == footprint.PATHS


def test_while_another_role_stays_only_the_roles_own_parts_are_undone() -> None:
    plan = undo.undo(SLURM, _receipt("controller", "worker"), "worker")
    assert not plan.last
    assert plan.stop_units == ("slurmd",)
    assert plan.packages == ()
    assert plan.paths == ("/etc/systemd/system/slurmd.service.d/gpuaas.conf",)


def test_a_database_server_from_before_keeps_running_without_the_apps_database() -> None:
    plan = undo.undo(SLURM, _receipt("controller"), "controller")
    assert removal_acts.drops_database(plan, "controller")
    assert "mariadb" not in plan.stop_units


def test_a_machine_with_another_slurm_is_refused() -> None:
    with pytest.raises(Refused, match=r"slurm\.conf"):
        receipts.first_receipt(SLURM, "inst_1", "gpu-2", "present /etc/slurm/slurm.conf\n")


def test_a_slurm_without_its_own_authentication_is_refused() -> None:
    with pytest.raises(Permanent, match=r"22\.05"):
        versions.refuse_old_slurm("gpu-2", packages.Simulation(("slurmd",), {"slurmd": "22.05.8-4"}))
    versions.refuse_old_slurm("gpu-2", packages.Simulation(("slurmd",), {"slurmd": "24.11.5-4"}))


@pytest.mark.parametrize(("workers", "first"), [(3, "srun -N3 hostname"), (0, "sinfo -N -l")])
def test_the_first_command_of_the_bundle_works_with_the_present_workers(workers: int, first: str) -> None:
    inputs = config.parse_inputs({"cluster_name": "c", "controller_allocation_id": "a"})
    login = access.Login("alloc_1", "gpu-1", "10.0.0.11")
    bundle = access.bundle(inputs, "slurm", login, "10.0.0.11", workers, home.LOCAL)
    assert bundle.commands[0].line == first


def test_the_bundle_points_to_the_login_machine() -> None:
    inputs = config.parse_inputs({"cluster_name": "c", "controller_allocation_id": "a"})
    bundle = access.bundle(inputs, "slurm", access.Login("alloc_9", "gpu-9", "10.0.0.19"), "10.0.0.11", 2, SHARED)
    assert {endpoint.name: endpoint.url for endpoint in bundle.endpoints} == {
        "login": "ssh://10.0.0.19",
        "slurmctld": "tcp://10.0.0.11:6817",
        "slurmdbd": "tcp://10.0.0.11:6819",
    }
    assert {command.allocation_id for command in bundle.commands} == {"alloc_9"}


@pytest.mark.parametrize(("homes", "warned"), [(home.LOCAL, True), (SHARED, False)], ids=["local", "shared"])
def test_local_homes_are_named_beside_the_command_that_would_surprise(homes: home.Home, warned: bool) -> None:
    inputs = config.parse_inputs({"cluster_name": "c", "controller_allocation_id": "a"})
    bundle = access.bundle(inputs, "slurm", access.Login("a", "gpu-1", "10.0.0.11"), "10.0.0.11", 2, homes)
    (title,) = [command.title for command in bundle.commands if command.line.startswith("sbatch")]
    assert ("its output is on the machine that ran it" in title) is warned
    assert any("Warning: home folders are local" in note for note in bundle.notes) is warned
    assert (home.LOCAL_WARNING in warnings.listed("chrony", homes)) is warned


def test_a_machine_without_a_time_service_gives_a_warning_and_a_container_does_not() -> None:
    assert "install chrony" in " ".join(warnings.listed("", SHARED))
    assert warnings.listed("host", SHARED) == ()


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        ("auto", "shared:/data/home"),
        ("local", "local"),
        ("shared:/data/people/", "shared:/data/people"),
        ("nfs:filer:/export", "nfs:filer:/export"),
        ("nfs", "nfs:10.0.0.11:/srv/gpuaas-home"),
    ],
)
def test_the_input_home_decides_where_homes_are(wanted: str, shown: str) -> None:
    machines = [facts.parse(f"{BARE}shared=/{name}\nshared=/data\n") for name in ("a", "b")]
    assert home.resolve(wanted, "10.0.0.11", machines).shown == shown


def test_without_a_folder_that_all_machines_declare_homes_are_local() -> None:
    assert home.resolve("auto", "10.0.0.11", [facts.parse(f"{BARE}shared=/data\n"), facts.parse(BARE)]) == home.LOCAL


@pytest.mark.parametrize("homes", [SHARED, home.Home("nfs", "filer:/export")])
def test_the_homes_of_a_cluster_are_read_back_from_its_mount(homes: home.Home) -> None:
    assert home.parse_unit(home.unit_text(homes, on_controller=False)) == homes


def test_homes_that_are_mounted_at_their_place_already_need_no_mount() -> None:
    assert not home.resolve("shared:/home/people", "10.0.0.11", ()).is_mounted


@pytest.mark.parametrize(
    ("model", "name"),
    [("NVIDIA H100 80GB HBM3", "nvidia_h100_80gb_hbm3"), ("lab-gpu", "lab-gpu"), ("4090 (x)", "gpu_4090_x")],
)
def test_gpu_types_are_named_as_slurm_names_them(model: str, name: str) -> None:
    assert facts.sanitised(model) == name


def test_gpus_of_two_types_are_counted_by_type() -> None:
    machine = facts.parse(HYBRID + SLURMD + "gpu_type=/dev/nvidia2 T4\ngpu_type=/dev/nvidia10 A100\n")
    assert facts.node_options(machine).endswith("Gres=gpu:t4:1,gpu:a100:1")


def test_a_login_machine_with_another_role_is_refused() -> None:
    roles.refuse_shared_logins((Placed("controller", "a"), Placed("login", "b")))
    with pytest.raises(Permanent, match="login machine"):
        roles.refuse_shared_logins((Placed("worker", "a"), Placed("login", "a")))
