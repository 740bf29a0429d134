"""A deployed Slurm cluster between operations, on real machines: faults are seen with the right member, reason and fix,
and end by the fix as it is printed; people of the project are users of the cluster.

`make test-faults` runs all of it, and asserts how soon a fault is seen and a person who left is refused."""

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import campaigns
import observer_commands
import pytest
import slurm_people
from health_faults import LONG, SHORT, Fault
from watched_cluster import Change, Cluster

pytestmark = pytest.mark.machines

LAB, PORT = "health", "7192"
SEEN_S = campaigns.size(short=120.0, whole=15.0)
"""A fault is seen within 15 seconds. `make test` gives a busy host more time, and prints the time that it took."""
HEALED_S = 420.0
"""Longer than the five minutes after which Slurm's own health check resumes a node."""
QUIET_S = 10.0
"""Before a fault is caused, no member has changed for so long: two looks of the app."""
REPAIRS = "The app repairs it by itself."
LATE = frozenset({"MachineSilent", "ClusterUnreachable", "SchedulerDown", "AccountingDown"})
"""What a busy host may cause: an answer comes too late. `make test` prints it."""


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
    assert _until(lambda: _unsettled(cluster), "", HEALED_S) == ""
    began = time.monotonic()
    if fault.lab:
        cluster.lab(fault.lab, node)
    else:
        cluster.on(fault.on or node, fault.script)
    try:
        seen = cluster.until(fault.member, {"degraded", "failed"}, fault.code, since=began, limit_s=SEEN_S)
        assert seen.reason.startswith(fault.code), "the cause comes first"
        assert (REPAIRS in seen.reason) == (fault.by == "app"), "the reason states who repairs it"
        assert _blamed(cluster, fault, began, seen.at) == [], "no other member is blamed"
        if fault.later:
            _end_after(cluster, fault)
        _heal(cluster, fault, seen)
    finally:
        if fault.lab:
            cluster.lab(fault.hands, node)  # again, or for the first time if the fault was not seen
        if fault.clean:
            cluster.on(node, fault.clean)


def _unsettled(cluster: Cluster) -> str:
    """Return which members are not ready, or have just changed; empty if there are none."""
    newest, now = cluster.newest(), time.monotonic()
    if not newest:
        return "no event has arrived"
    unsettled = [change for change in newest.values() if change.status != "ready" or now - change.at < QUIET_S]
    return "; ".join(f"{'/'.join(change.member)} is {change.status}: {change.reason}" for change in unsettled)


def _blamed(cluster: Cluster, fault: Fault, began: float, seen_at: float) -> list[Change]:
    """Return the changes of other members to a bad status before the fault was seen, without those that it may
    cause."""
    others = [
        change
        for member in sorted(cluster.newest().keys() - {fault.member} - fault.may_suffer)
        for change in cluster.since(member, began)
        if change.at <= seen_at and change.status in ("degraded", "failed")
    ]
    for change in others:
        sys.stdout.write(f"{'/'.join(change.member)} {change.status} too: {change.reason}\n")
    return [change for change in others if campaigns.WHOLE or change.reason.split(":")[0] not in LATE]


def _end_after(cluster: Cluster, fault: Fault) -> None:
    """Wait until the fault has the code of one that lasts, and end it at the machine."""
    later = _until(lambda: cluster.reason(fault.member).partition(":")[0], fault.later, HEALED_S)
    assert later == fault.later
    cluster.on(fault.member[0], fault.hands)


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
    binding = _binding_of_ada(cluster)
    began = time.monotonic()
    cluster.gpuaas("binding", "revoke", binding)
    submit = "cd; sbatch --wrap true >/dev/null 2>&1 && echo accepted || echo refused"
    assert _until(lambda: _as_ada(cluster, submit), "refused\n") == "refused\n"
    slurm_people.show_left("ada is refused", time.monotonic() - began)
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
