"""After any kind of end, `down` leaves nothing on the host and `up` uses the same disks. Needs root on Linux."""

import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuaas_lab import cgroup, host, plan
from gpuaas_lab.snapshot import host_snapshot
from lab_tool import LabTool

pytestmark = pytest.mark.machines

LAB = LabTool("labends")
MACHINES = ["gpu-1", "gpu-2", "gpu-3"]


@pytest.fixture(scope="module")
def before() -> Iterator[set[str]]:
    with LAB.absent() as snapshot:
        yield snapshot


def left_behind(before: set[str]) -> set[str]:
    return host_snapshot(LAB.name) - before


def seconds_of(*arguments: str) -> float:
    started = time.monotonic()
    LAB.do(*arguments)
    return time.monotonic() - started


def kill_after(moment_s: float, *arguments: str) -> None:
    process = subprocess.Popen(LAB.command(*arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(moment_s)  # the moment of the kill, not a wait for something
    process.kill()
    process.wait()


def reboot() -> None:
    """Do what a reboot of the host does: processes, mounts, links and /run are lost; disks stay."""
    layout = cgroup.host_layout()
    for name in MACHINES:
        group = cgroup.MachineCgroup(layout, LAB.name, name)
        group.kill()
        group.remove()
        unit = plan.unit_name(LAB.name, name)
        host.unmount(host.mounts_from(unit))
        subprocess.run(["ip", "netns", "delete", unit], check=True)
        shutil.rmtree(f"/run/systemd/nspawn/propagate/{unit}", ignore_errors=True)
    cgroup.remove_lab(layout, LAB.name)
    subprocess.run(["ip", "link", "delete", plan.bridge_name(LAB.name)], check=True)
    (host.LOCKS / LAB.name).unlink()


def test_a_snapshot_of_a_running_lab_has_every_kind_of_line(before: set[str]) -> None:
    LAB.do("up", "--nodes", "3")
    kinds = {line.split()[0] for line in left_behind(before)}
    assert kinds == {"mount", "netns", "link", "cgroup", "process", "run"}
    LAB.do("down", "--purge")


def test_sixteen_machines_come_up_in_one_command_and_leave_nothing(before: set[str]) -> None:
    LAB.do("up", "--nodes", "16")
    assert list(LAB.states().values()) == ["running"] * 16
    LAB.do("down", "--purge")
    assert left_behind(before) == set()


def test_down_leaves_nothing_after_up_was_killed_at_ten_random_points(before: set[str]) -> None:
    whole_s = seconds_of("up", "--nodes", "3")
    LAB.do("down", "--purge")
    leftovers = {}
    for moment_s in sorted(random.uniform(0, whole_s) for _ in range(10)):
        kill_after(moment_s, "up", "--nodes", "3")
        LAB.do("down", "--purge")
        leftovers[moment_s] = left_behind(before)
    assert not any(leftovers.values()), f"by the moment of the kill, of {whole_s:.3f} s: {leftovers}"


def test_down_leaves_nothing_after_down_was_killed_at_random_points(before: set[str]) -> None:
    LAB.do("up", "--nodes", "3")
    whole_s = seconds_of("down")
    states, leftovers = set(), {}
    for moment_s in sorted(random.uniform(0, whole_s) for _ in range(5)):
        LAB.do("up", "--nodes", "3")
        states |= set(LAB.states().values())
        kill_after(moment_s, "down")
        LAB.do("down")
        leftovers[moment_s] = left_behind(before)
    assert states == {"running"}
    assert not any(leftovers.values()), f"by the moment of the kill, of {whole_s:.3f} s: {leftovers}"


def test_down_and_up_work_after_a_reboot(before: set[str]) -> None:
    LAB.do("up", "--nodes", "3")
    LAB.on("gpu-1", "sh", "-c", "echo kept > /var/lib/kept && sync")
    reboot()
    assert set(LAB.states().values()) == {"stopped"}
    LAB.do("down")
    assert left_behind(before) == set()
    LAB.do("up", "--nodes", "3")
    assert LAB.on("gpu-1", "cat", "/var/lib/kept") == "kept\n"
    LAB.do("down")


def test_down_finds_machines_whose_record_is_lost(before: set[str], tmp_path: Path) -> None:
    LAB.do("up", "--nodes", "3")
    LAB.do("down", "--state", str(tmp_path))
    assert left_behind(before) == set()


def test_down_succeeds_when_the_kernel_deletes_links_first(before: set[str], tmp_path: Path) -> None:
    """The links and namespaces that `down` has just listed are gone when it deletes them."""
    LAB.do("up", "--nodes", "2")
    program = shutil.which("ip")
    twice = tmp_path / "ip"
    twice.write_text(f'#!/bin/sh\ncase "$2" in delete) {program} "$@" ;; esac\nexec {program} "$@"\n')
    twice.chmod(0o755)
    slow = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    result = subprocess.run(LAB.command("down"), env=slow, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert left_behind(before) == set()
