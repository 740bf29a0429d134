"""Configuration files, compared with golden files, so that a change shows as a diff."""

from pathlib import Path

import msgspec
import pytest
from gpuaas_app_slurm.workload import config, facts
from gpuaas_sdk.failures import Permanent

GOLDEN = Path(__file__).parent / "golden"

CLUSTER = config.Cluster(
    instance_id="inst_1",
    cluster_name="research",
    partition="main",
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
    topology={"CPUs": "64", "Boards": "1", "SocketsPerBoard": "2", "CoresPerSocket": "16", "ThreadsPerCore": "2"},
)


def _by_path(files: tuple[config.File, ...]) -> dict[str, config.File]:
    return {file.path: file for file in files}


def test_slurm_conf_is_the_golden_one() -> None:
    files = _by_path(config.controller_files(CLUSTER))
    assert files["/etc/slurm/slurm.conf"].content == (GOLDEN / "slurm.conf").read_text()


def test_slurm_conf_with_cgroups_is_the_golden_one() -> None:
    files = _by_path(config.controller_files(msgspec.structs.replace(CLUSTER, cgroup="v2")))
    assert files["/etc/slurm/slurm.conf"].content == (GOLDEN / "slurm-cgroup.conf").read_text()
    assert "ConstrainDevices=yes" in files["/etc/slurm/cgroup.conf"].content


def test_slurmdbd_conf_is_the_golden_one_and_readable_by_slurm_only() -> None:
    file = _by_path(config.controller_files(CLUSTER))["/etc/slurm/slurmdbd.conf"]
    assert file.content == (GOLDEN / "slurmdbd.conf").read_text()
    assert (file.mode, file.owner) == (0o600, "slurm:slurm")


def test_the_worker_s_unit_is_the_golden_one() -> None:
    files = _by_path(config.worker_files("10.0.0.11", MACHINE))
    unit = files["/etc/systemd/system/slurmd.service.d/gpuaas.conf"]
    assert unit.content == (GOLDEN / "slurmd.service.conf").read_text()


def test_a_worker_lists_its_own_gpus_and_a_machine_without_gpus_lists_none() -> None:
    files = _by_path(config.worker_files("10.0.0.11", MACHINE))
    assert files[config.GRES_DEVICES_PATH].content.splitlines()[1:] == [
        "Name=gpu File=/dev/nvidia0",
        "Name=gpu File=/dev/nvidia1",
    ]
    assert "Name=" not in config.gres_devices(())


def test_users_get_numbers_in_the_order_of_the_inputs() -> None:
    inputs = config.parse_inputs({"cluster_name": "c", "controller_allocation_id": "a", "users": ["ann", "bob"]})
    assert inputs.user_ids() == {"ann": 6000, "bob": 6001}


def test_an_unknown_input_is_refused() -> None:
    with pytest.raises(Permanent, match="colour"):
        config.parse_inputs({"cluster_name": "c", "controller_allocation_id": "a", "colour": "red"})
