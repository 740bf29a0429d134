"""Two labs on one host share an image and nothing else, and no traffic leaves either. Needs root on Linux."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuaas_lab import plan
from gpuaas_lab.snapshot import host_snapshot
from lab_tool import LabTool

pytestmark = pytest.mark.machines

LEFT, RIGHT = LabTool("lableft"), LabTool("labright")


@pytest.fixture
def both() -> Iterator[None]:
    with LEFT.absent(), RIGHT.absent():
        for lab in (LEFT, RIGHT):
            lab.do("up", "--nodes", "2")
        yield


def network(lab: LabTool) -> dict[str, str]:
    shown: dict[str, str] = json.loads(lab.do("network"))
    return shown


def holdings(lab: LabTool) -> set[str]:
    """Return what a lab keeps on the host as long as it runs; its processes change by themselves."""
    return {line for line in host_snapshot(lab.name) if line.startswith(("mount ", "netns ", "link "))}


def started_at(lab: LabTool) -> str:
    return lab.on("gpu-1", "cat", "/proc/1/stat").split()[21]


def reaches(lab: LabTool, address: str, within_s: int = 60) -> bool:
    return lab.run("exec", "gpu-1", "--", "ping", "-c1", f"-w{within_s}", address).returncode == 0


@pytest.mark.usefixtures("both")
def test_machines_of_the_same_name_have_their_own_network_and_address() -> None:
    left, right = network(LEFT), network(RIGHT)
    assert all(left[key] != right[key] for key in ("bridge", "gateway", "subnet"))
    assert LEFT.do("address", "gpu-1") != RIGHT.do("address", "gpu-1")


@pytest.mark.usefixtures("both")
def test_the_shared_folder_of_one_lab_is_not_that_of_another() -> None:
    LEFT.on("gpu-1", "touch", "/shared/left")
    assert LEFT.on("gpu-2", "ls", "/shared") == "left\n"
    assert RIGHT.on("gpu-1", "ls", "/shared") == ""


@pytest.mark.usefixtures("both")
def test_faults_and_the_end_of_one_lab_do_not_affect_another() -> None:
    held, boot = holdings(RIGHT), started_at(RIGHT)
    LEFT.do("freeze", "gpu-1")
    LEFT.do("cut", "gpu-2")
    assert (set(RIGHT.status("state").values()), set(RIGHT.status("network").values())) == ({"running"}, {"connected"})
    LEFT.do("down", "--purge")
    assert held - holdings(RIGHT) == set(), "everything of the other lab is still there"
    assert started_at(RIGHT) == boot
    RIGHT.on("gpu-1", "ping", "-c1", "-w60", "gpu-2")


@pytest.mark.usefixtures("both")
def test_no_traffic_crosses_from_a_lab_even_if_the_host_forwards() -> None:
    neighbour = RIGHT.do("address", "gpu-1").strip()
    for lab in (LEFT, RIGHT):
        Path(f"/proc/sys/net/ipv4/conf/{plan.bridge_name(lab.name)}/forwarding").write_text("1")
    assert reaches(LEFT, neighbour), "a host that forwards would let it through"
    LEFT.do("network")
    assert not reaches(LEFT, neighbour, within_s=5)
    assert reaches(LEFT, network(LEFT)["gateway"])


def test_a_subnet_that_another_bridge_uses_is_refused_with_the_next_command() -> None:
    with LEFT.absent():
        taken = network(LEFT)["gateway"]
        LEFT.do("down")
        # Named like the bridge of a lab: labs that run beside this test do not count it as a link of the host.
        bridge = plan.bridge_name("clash")
        subprocess.run(["ip", "link", "add", bridge, "type", "bridge"], check=True)
        try:
            subprocess.run(["ip", "address", "add", f"{taken}/24", "dev", bridge], check=True)
            refused = LEFT.run("up", "--nodes", "1")
        finally:
            subprocess.run(["ip", "link", "delete", bridge], check=True)
        assert refused.returncode == 1
        assert "in use on this host" in refused.stderr
        assert "gpuaas-lab down --purge --lab lableft" in refused.stderr
        LEFT.do("up", "--nodes", "1")
