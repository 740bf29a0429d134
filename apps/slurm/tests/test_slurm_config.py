"""Configuration files, compared with golden files, so that a change shows as a diff."""

from pathlib import Path

import msgspec
import pytest
from gpuaas_app_slurm.workload import choices, config, facts, home, users
from gpuaas_sdk.failures import Permanent
from gpuaas_sdk.machine import File

GOLDEN = Path(__file__).parent / "golden"

CLUSTER = config.Cluster(
    instance_id="inst_1",
    cluster_name="research",
    controller_hostname="gpu-1",
    controller_address="10.0.0.11",
    cgroup="disabled",
    memory_per_cpu_mb=2048,
)
MACHINE = facts.Facts(
    hostname="gpu-2",
    cpus=64,
    memory_mb=515000,
    gpu_devices=("/dev/nvidia0", "/dev/nvidia1"),
    cgroup="v2",
    gpu_types=dict.fromkeys(("/dev/nvidia0", "/dev/nvidia1"), "nvidia_h100_80gb_hbm3"),
    topology={"CPUs": "64", "Boards": "1", "SocketsPerBoard": "2", "CoresPerSocket": "16", "ThreadsPerCore": "2"},
)


SHARED = home.Home("shared", "/shared/home")


def _by_path(files: tuple[File, ...]) -> dict[str, File]:
    return {file.path: file for file in files}


def test_slurm_conf_is_the_golden_one() -> None:
    files = _by_path(config.controller_files(CLUSTER))
    assert files["/etc/slurm/slurm.conf"].content == (GOLDEN / "slurm.conf").read_text()


def test_slurm_conf_with_cgroups_is_the_golden_one() -> None:
    files = _by_path(config.controller_files(msgspec.structs.replace(CLUSTER, cgroup="v2")))
    assert files["/etc/slurm/slurm.conf"].content == (GOLDEN / "slurm-cgroup.conf").read_text()
    assert "ConstrainDevices=yes" in files["/etc/slurm/cgroup.conf"].content


def test_slurm_conf_with_munge_differs_only_in_its_authentication() -> None:
    files = _by_path(config.controller_files(msgspec.structs.replace(CLUSTER, auth="munge")))
    text, golden = files["/etc/slurm/slurm.conf"].content, (GOLDEN / "slurm.conf").read_text()
    own = "AuthType=auth/slurm\nCredType=cred/slurm\nAuthInfo=use_client_ids\n"
    assert text == golden.replace(own, "AuthType=auth/munge\nCredType=cred/munge\n")
    assert "auth/slurm" not in files["/etc/slurm/slurmdbd.conf"].content


@pytest.mark.parametrize("name", ["task-prolog", "health-check"])
def test_programs_that_slurm_runs_are_golden_and_executable_on_every_machine(name: str) -> None:
    for files in (config.controller_files(CLUSTER), config.login_files("10.0.0.11", MACHINE, SHARED)):
        file = _by_path(files)[f"/etc/slurm/gpuaas/{name}"]
        assert (file.content, file.mode) == ((GOLDEN / name).read_text(), 0o755)


@pytest.mark.parametrize(
    ("name", "homes", "on_controller"),
    [
        ("home-shared.mount", SHARED, False),
        ("home-nfs.mount", home.Home("nfs", "10.0.0.9:/export/home"), False),
        ("home-exported.mount", home.resolve("nfs", "10.0.0.11", ()), True),
    ],
)
def test_the_mount_of_homes_is_the_golden_one(name: str, homes: home.Home, on_controller: bool) -> None:
    assert home.unit_text(homes, on_controller=on_controller) == (GOLDEN / name).read_text()


def test_a_node_with_local_homes_waits_for_no_mount() -> None:
    unit = _by_path(config.worker_files("10.0.0.11", MACHINE, home.LOCAL))
    assert "RequiresMountsFor" not in unit["/etc/systemd/system/slurmd.service.d/gpuaas.conf"].content


def test_a_login_machine_offers_no_gpus_and_is_in_no_partition() -> None:
    files = _by_path(config.login_files("10.0.0.11", MACHINE, SHARED))
    unit = files["/etc/systemd/system/slurmd.service.d/gpuaas.conf"].content
    assert ("Feature=login" in unit, "Gres" in unit, "Feature=worker" in unit) == (True, False, False)
    assert "Name=" not in files[config.GRES_DEVICES_PATH].content


@pytest.mark.parametrize(
    ("default", "maximum", "fits"),
    [("1-00:00:00", "7-00:00:00", True), ("UNLIMITED", "7-00:00:00", False), ("25:00:00", "1-00:00:00", False)],
)
def test_a_default_time_over_the_maximum_is_refused(default: str, maximum: str, fits: bool) -> None:
    inputs = config.Inputs("c", "a", default_time=default, max_time=maximum)
    if fits:
        return choices.check(inputs.scheduler)
    with pytest.raises(Permanent, match="longer than max_time"):
        choices.check(inputs.scheduler)


def test_slurmdbd_conf_is_the_golden_one_and_readable_by_slurm_only() -> None:
    file = _by_path(config.controller_files(CLUSTER))["/etc/slurm/slurmdbd.conf"]
    assert file.content == (GOLDEN / "slurmdbd.conf").read_text()
    assert (file.mode, file.owner) == (0o600, "slurm:slurm")


def test_the_worker_s_unit_is_the_golden_one() -> None:
    files = _by_path(config.worker_files("10.0.0.11", MACHINE, SHARED))
    unit = files["/etc/systemd/system/slurmd.service.d/gpuaas.conf"]
    assert unit.content == (GOLDEN / "slurmd.service.conf").read_text()


def test_a_worker_lists_its_own_gpus_and_a_machine_without_gpus_lists_none() -> None:
    files = _by_path(config.worker_files("10.0.0.11", MACHINE, SHARED))
    assert files[config.GRES_DEVICES_PATH].content.splitlines()[1:] == [
        "Name=gpu Type=nvidia_h100_80gb_hbm3 File=/dev/nvidia0",
        "Name=gpu Type=nvidia_h100_80gb_hbm3 File=/dev/nvidia1",
    ]
    assert "Name=" not in config.gres_devices(None)


def test_a_machine_with_a_gpu_of_unknown_type_lists_all_without_a_type() -> None:
    machine = msgspec.structs.replace(MACHINE, gpu_types={"/dev/nvidia0": "t4"})
    assert config.gres_devices(machine).splitlines()[1] == "Name=gpu File=/dev/nvidia0"
    assert facts.node_options(machine).endswith(" Gres=gpu:2")


def test_users_get_numbers_in_the_order_of_the_inputs() -> None:
    inputs = config.parse_inputs({"cluster_name": "c", "controller_allocation_id": "a", "users": ["ann", "bob"]})
    assert [user.uid for user in users.at_deploy(inputs.users)] == [6000, 6001]


def test_an_unknown_input_is_refused() -> None:
    with pytest.raises(Permanent, match="colour"):
        config.parse_inputs({"cluster_name": "c", "controller_allocation_id": "a", "colour": "red"})
