"""A deployed Slurm cluster between operations, on real machines: faults are seen with the right member, reason and fix,
and end by the fix; people of the project are users of the cluster."""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.machines

BIN = Path(sys.executable).parent
LAB, PORT = "health", "7192"
SEEN_S, HEALED_S = 120.0, 240.0
"""Limits for a busy host. The times that count are printed; on a quiet host a fault is seen in seconds."""
CONTROLLER, WORKER = ("gpu-1", "controller"), ("gpu-2", "worker")


@dataclass
class Cluster:
    """`gpuaas up` with three machines, and what its person sees."""

    home: Path
    seen: list[tuple[float, tuple[str, str], str, str]] = field(default_factory=list)
    """Every new status of a member: time, member, status, reason."""

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GPUAAS_")}
        return {**kept, "PATH": f"{BIN}:{os.environ['PATH']}", "GPUAAS_HOME": str(self.home), "NO_COLOR": "1"}

    def gpuaas(self, *words: str, check: bool = True, timeout_s: float = 600) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [BIN / "gpuaas", *words], env=self.environment(), capture_output=True, text=True, timeout=timeout_s
        )
        if check:
            assert done.returncode == 0, f"gpuaas {' '.join(words)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done

    def lab(self, command: str, node: str, *words: str) -> str:
        return self.gpuaas("lab", command, node, "--lab", LAB, *(["--", *words] if words else [])).stdout

    def on(self, node: str, script: str) -> str:
        return self.lab("exec", node, "bash", "-c", script)

    def follow(self) -> subprocess.Popen[str]:
        """Note each change of a member from its event, so that one that is repaired at once is not missed."""
        command = [str(BIN / "gpuaas"), "events", "--instance", "slurm", "--after", "0", "-o", "json"]
        events = subprocess.Popen(command, env=self.environment(), stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._note, args=(events,), daemon=True).start()
        return events

    def _note(self, events: subprocess.Popen[str]) -> None:
        assert events.stdout is not None
        for line in events.stdout:
            event = json.loads(line)
            if event["type"].startswith("apps.member."):
                change = event["payload"]
                member = (change["node_name"], change["component_key"])
                self.seen.append((time.monotonic(), member, change["status"], change["status_reason"]))

    def until(self, member: tuple[str, str], status: set[str], text: str, *, since: float, limit_s: float) -> str:
        """Return the reason with which the member had one of these statuses since then."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            for at, key, now, reason in list(self.seen):
                if at >= since and key == member and now in status and text in reason:
                    sys.stdout.write(f"{member[0]}/{member[1]} {now} after {at - since:.1f} s: {reason[:160]}\n")
                    return reason
            time.sleep(0.1)
        raise AssertionError(f"{member} was never {status} with {text!r}: {self.seen[-20:]}")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="gpuaas-health-") as folder:
        cluster = Cluster(Path(folder))
        cluster.gpuaas("lab", "down", "--lab", LAB, "--purge")
        try:
            cluster.gpuaas("up", "--lab", LAB, "--port", PORT, "--nodes", "3")
            with cluster.follow() as events:
                yield cluster
                events.terminate()
        finally:
            cluster.gpuaas("down", "--lab", LAB, "--purge")


BROKEN_SLURMD = r"""
printf '[Service]\nExecStart=\nExecStart=/bin/false\nRestart=on-failure\nRestartSec=1\n' \
  > /etc/systemd/system/slurmd.service.d/gpuaas.conf
systemctl daemon-reload; systemctl restart --no-block slurmd
"""
FULL_DISK = "mount -t tmpfs -o size=1M none /tmp; dd if=/dev/zero of=/tmp/x bs=1k count=1010 || :"


@dataclass(frozen=True)
class Fault:
    member: tuple[str, str]
    code: str
    script: str = ""
    """What goes wrong, as root on the member's machine."""
    fault: str = ""
    """What the lab does to the machine instead: `freeze`."""
    fix: str = ""
    """What a person does, on the machine; empty: the app repairs it, or the fault's end."""
    heal: str = ""
    repair: bool = False
    """The fix is the command that the reason prints."""


SHORT = {
    "slurmd is stopped": Fault(WORKER, "SlurmdDown", "systemctl stop slurmd"),
    "a person drains a node": Fault(
        WORKER,
        "ExternallyDrained",
        "scontrol update nodename=gpu-2 state=drain reason='bad fan'",
        fix="scontrol update nodename=gpu-2 state=resume",
    ),
    "a node is deleted": Fault(WORKER, "NodeDeleted", "scontrol delete nodename=gpu-2"),
    "the database is stopped": Fault(CONTROLLER, "DatabaseDown", "systemctl stop mariadb"),
    "a file is edited": Fault(CONTROLLER, "FilesChanged", "echo '# mine' >> /etc/slurm/slurm.conf", repair=True),
}
LONG = {
    "slurmctld is killed": Fault(CONTROLLER, "SchedulerDown", "systemctl stop slurmctld"),
    "another key": Fault(
        WORKER, "KeyMismatch", "head -c 1024 /dev/urandom > /etc/slurm/slurm.key; systemctl restart --no-block slurmd"
    ),
    "slurmd crashes again and again": Fault(WORKER, "Slurmd", BROKEN_SLURMD),
    "a disk is full": Fault(WORKER, "DiskFull", FULL_DISK, fix="umount -l /tmp"),
    "a machine is frozen": Fault(WORKER, "MachineSilent", fault="freeze", heal="thaw"),
    "a machine is cut off": Fault(WORKER, "MachineSilent", fault="cut", heal="heal"),
    "a machine has no power": Fault(WORKER, "MachineSilent", fault="kill", heal="start"),
}


@pytest.mark.parametrize("name", SHORT)
def test_a_fault_is_seen_with_its_reason_and_ends_by_its_fix(cluster: Cluster, name: str) -> None:
    _break_and_heal(cluster, SHORT[name])


@pytest.mark.long
@pytest.mark.parametrize("name", LONG)
def test_a_rare_fault_is_seen_with_its_reason_and_ends_by_its_fix(cluster: Cluster, name: str) -> None:
    _break_and_heal(cluster, LONG[name])


def _break_and_heal(cluster: Cluster, fault: Fault) -> None:
    node = "gpu-1" if fault.script.startswith("scontrol") else fault.member[0]
    began = time.monotonic()
    if fault.fault:
        cluster.lab(fault.fault, node)
    else:
        cluster.on(node, fault.script)
    reason = cluster.until(fault.member, {"degraded", "failed"}, fault.code, since=began, limit_s=SEEN_S)
    seen = time.monotonic()
    if fault.heal:
        cluster.lab(fault.heal, node)
    elif fault.repair:
        printed = reason.split("Fix: gpuaas ", 1)[1].split(" Also:")[0]
        cluster.gpuaas(*printed.rstrip(".").split())
    elif fault.fix:
        cluster.on("gpu-1" if fault.fix.startswith("scontrol") else node, fault.fix)
    cluster.until(fault.member, {"ready"}, "", since=seen, limit_s=HEALED_S)


def test_a_person_who_joins_the_project_submits_a_job_and_one_who_leaves_cannot(cluster: Cluster) -> None:
    cluster.gpuaas("user", "create", "ada")
    cluster.gpuaas("binding", "grant", "ada", "project_member")
    job = "cd; sbatch --wait --wrap 'id -un' >/dev/null && cat slurm-*.out"
    assert _until(lambda: _as_ada(cluster, job), "ada\n") == "ada\n"
    root = cluster.on("gpu-2", "runuser -u ada -- sudo -n true && echo yes || echo no")
    assert root.strip() == "no"
    cluster.gpuaas("binding", "revoke", _binding_of_ada(cluster))
    submit = "cd; sbatch --wrap true >/dev/null 2>&1 && echo accepted || echo refused"
    assert _until(lambda: _as_ada(cluster, submit), "refused\n") == "refused\n"
    assert "slurm-" in cluster.on("gpu-3", "ls /home/people/ada"), "files stay, and every machine sees them"


def _binding_of_ada(cluster: Cluster) -> str:
    listed = json.loads(cluster.gpuaas("binding", "list", "-o", "json").stdout)
    items = listed["items"] if isinstance(listed, dict) else listed
    return str(next(item["binding_id"] for item in items if item["user_name"] == "ada"))


def _as_ada(cluster: Cluster, script: str) -> str:
    command = f"runuser -u ada -- sh -c {json.dumps(script)}"
    return cluster.gpuaas("lab", "exec", "gpu-1", "--lab", LAB, "--", "bash", "-c", command, check=False).stdout


def _until(read: Any, wanted: str, limit_s: float = 120.0) -> str:
    deadline = time.monotonic() + limit_s
    while (answer := read()) != wanted and time.monotonic() < deadline:
        time.sleep(0.5)
    return str(answer)
