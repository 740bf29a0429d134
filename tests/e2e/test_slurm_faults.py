"""A deployed Slurm cluster between operations, on real machines: faults are seen with the right member, reason and fix,
and end by the fix as it is printed; people of the project are users of the cluster."""

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import campaigns
import observer_commands
import pytest
from health_faults import LONG, SHORT, Fault
from watched_cluster import Change, Cluster

pytestmark = pytest.mark.machines

LAB, PORT = "health", "7192"
SEEN_S = campaigns.size(short=120.0, whole=15.0)
"""A fault is seen within 15 seconds. `make test` gives a busy host more time, and prints the time that it took."""
HEALED_S = 420.0
"""Longer than the five minutes after which Slurm's own health check resumes a node."""
REPAIRS = "The app repairs it by itself."


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="gpuaas-health-") as folder:
        cluster = Cluster(Path(folder), LAB)
        cluster.gpuaas("lab", "down", "--lab", LAB, "--purge")
        try:
            cluster.gpuaas("up", "--lab", LAB, "--port", PORT, "--nodes", "3")
            with cluster.follow() as events:
                yield cluster
                events.terminate()
        finally:
            cluster.gpuaas("down", "--lab", LAB, "--purge")


@pytest.mark.parametrize("name", SHORT)
def test_a_fault_is_seen_with_its_reason_and_ends_by_its_fix(cluster: Cluster, name: str) -> None:
    _break_and_heal(cluster, SHORT[name])


@pytest.mark.long
@pytest.mark.parametrize("name", LONG)
def test_a_rare_fault_is_seen_with_its_reason_and_ends_by_its_fix(cluster: Cluster, name: str) -> None:
    _break_and_heal(cluster, LONG[name])


def _break_and_heal(cluster: Cluster, fault: Fault) -> None:
    node = fault.member[0]
    # What the fault before has left may end later than its test.
    at_start = _until(lambda: _status(cluster, fault), "ready", HEALED_S)
    assert at_start == "ready", f"{cluster.since(fault.member, 0.0)[-3:]}"
    began = time.monotonic()
    if fault.lab:
        cluster.lab(fault.lab, node)
    else:
        cluster.on(fault.on or node, fault.script)
    try:
        seen = cluster.until(fault.member, {"degraded", "failed"}, fault.code, since=began, limit_s=SEEN_S)
        assert seen.reason.startswith(fault.code), "the cause comes first"
        assert (REPAIRS in seen.reason) == (fault.by == "app"), "the reason states who repairs it"
        _heal(cluster, fault, seen)
    finally:
        if fault.lab:
            cluster.lab(fault.hands, node)  # again, or for the first time if the fault was not seen
        if fault.clean:
            cluster.on(node, fault.clean)


def _status(cluster: Cluster, fault: Fault) -> str:
    return next((change.status for change in reversed(cluster.since(fault.member, 0.0))), "")


def _heal(cluster: Cluster, fault: Fault, seen: Change) -> None:
    """Do what the fix names, and type its command. Then the member must return by itself."""
    after = seen.at if fault.by == "app" else time.monotonic()
    if fault.by == "hands" and fault.lab:
        assert cluster.typed(seen.fix).returncode != 0, "the command shows that the machine does not answer"
        cluster.lab(fault.hands, fault.member[0])
    elif fault.by == "hands":
        cluster.on(fault.member[0], fault.hands)
        _follow(cluster, seen)
    else:
        _follow(cluster, seen)
    _until_ready(cluster, fault, followed={seen.fix}, since=after)
    if fault.lab:
        assert cluster.typed(seen.fix).returncode == 0, "and then that it does"


def _follow(cluster: Cluster, seen: Change) -> None:
    typed = cluster.typed(seen.fix)
    if REPAIRS in seen.reason:
        assert typed.returncode == 0 or "operation_in_progress" in typed.stderr, "the app repairs it at the same time"
    else:
        assert typed.returncode == 0
    if seen.reason.startswith("DiskFull"):
        listed = [line.split()[1] for line in typed.stdout.splitlines()]
        largest = next(path for path in reversed(listed) if path != "/tmp")
        assert largest == "/tmp/forgotten"
        assert cluster.typed(f"gpuaas ssh {seen.member[0]} --root -- sudo rm {largest}").returncode == 0


def _until_ready(cluster: Cluster, fault: Fault, *, followed: set[str], since: float) -> None:
    """Wait for `ready`. Slurm's own health check may have found the same fault; its fix is followed too."""
    deadline = time.monotonic() + HEALED_S
    while (now := cluster.since(fault.member, since)[-1:]) == [] or now[0].status != "ready":
        assert time.monotonic() < deadline, f"not ready within {HEALED_S} s: {cluster.changes[-20:]}"
        if now and now[0].reason.startswith("HealthCheckFailed") and now[0].fix not in followed:
            followed.add(now[0].fix)
            cluster.typed(now[0].fix)
        time.sleep(0.1)
    cluster.until(fault.member, {"ready"}, "", since=since, limit_s=0.1)


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


@pytest.mark.long
@pytest.mark.parametrize("node", ["gpu-1", "gpu-2"])
def test_the_observer_of_a_machine_changes_nothing_in_the_cluster(cluster: Cluster, node: str) -> None:
    """The controller of the app looks at the cluster as this user between operations."""
    submit = "sbatch --parsable --mem=16 -w gpu-3 --wrap 'sleep 900'"
    job = cluster.on("gpu-1", f'runuser -l researcher -c "{submit}"').strip()
    _until(lambda: cluster.on("gpu-1", f"squeue -h -j {job} -o %T"), "RUNNING\n")
    observer = cluster.on(node, "getent passwd | cut -d: -f1 | grep -e -ro$").strip()
    try:
        before = cluster.on(node, observer_commands.state(observer))
        assert f"{job} RUNNING" in before
        assert cluster.on(node, observer_commands.tried(observer, job)) == ""
        assert cluster.on(node, observer_commands.state(observer)) == before
    finally:
        cluster.on("gpu-1", f"scancel {job}")


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
