"""etcd on real machines, by the commands of its pages: clients write while a member is replaced, the controller is
killed, and all members are upgraded; then snapshot, restore, rollback, and machines as before."""

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import machine_state
import pytest
from cloud_in_use import BIN, Cloud
from etcd_writers import FILES, LOG, Client, Writers
from register_history import lost, violations

pytestmark = [pytest.mark.machines, pytest.mark.long]

LAB, PORT, NODES = "etcdlong", "7343", ("gpu-1", "gpu-2", "gpu-3", "gpu-4")
PAGE = Path(__file__).parents[2] / "apps/etcd/docs/upgrade.md"
BUNDLES = Path(os.environ.get("GPUAAS_LAB_STATE", "/var/lib/gpuaas/lab")) / "bundles" / "etcd"
PLACED = re.compile(r"file /var/lib/gpuaas(/artifacts\S*)?: ")
"""The platform keeps a placed bundle until the allocation is released."""
NO_SOURCE = "umount /srv/packages; rm -f /etc/apt/sources.list; rm -rf /var/lib/apt/lists/*"


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    """A cloud whose machines have no package source."""
    with tempfile.TemporaryDirectory(prefix="gpuaas-etcd-") as folder:
        cloud = Cloud(Path(folder), LAB, PORT)
        cloud.gpuaas("lab", "down", "--lab", LAB, "--purge")
        try:
            start(cloud)
            for node in NODES:
                cloud.on(node, NO_SOURCE)
            yield cloud
        finally:
            cloud.gpuaas("down", "--lab", LAB, "--purge")


def start(cloud: Cloud) -> None:
    """Start what is missing: everything, or the controller that was killed."""
    words = ("--app", "etcd", "--lab", LAB, "--port", PORT, "--nodes", str(len(NODES)), "--no-deploy")
    cloud.gpuaas("up", *words, timeout_s=1200)


def test_no_acknowledged_write_is_lost_while_members_are_replaced_and_upgraded(cloud: Cloud, tmp_path: Path) -> None:
    old, new = publish(cloud, "trixie"), publish(cloud, "forky")
    before = {node: machine_state.capture(LAB, node) for node in NODES}
    words = ("--set", "member_allocation_ids=gpu-1,gpu-2,gpu-3", "--set", "packages=bundle")
    cloud.gpuaas("deploy", "etcd", "--version", old, *words)
    addresses = clients_files(cloud, tmp_path)

    with Writers(addresses, tmp_path) as writers:
        until(lambda: len(writers.acknowledged) > 20)
        replace_and_kill_the_controller(cloud)
        count = len(writers.acknowledged)
        until(lambda: len(writers.acknowledged) > count + 20)
        cloud.gpuaas("upgrade", "etcd", "--version", new)
        count = len(writers.acknowledged)
        until(lambda: len(writers.acknowledged) > count + 20)
    client = Client(addresses[1:], tmp_path)
    kept = client.keys(LOG)
    print(f"{len(writers.acknowledged)} writes acknowledged, {writers.unanswered} without an answer")  # noqa: T201
    assert lost(writers.acknowledged, kept) == set()
    assert violations(writers.history, writers.begun) == []
    assert versions(cloud) == dict.fromkeys(("gpu-2", "gpu-3", "gpu-4"), new.partition("+etcd")[2])

    a_snapshot_restores_what_was_written_before_it(cloud, client)
    cloud.gpuaas("rollback", "etcd")
    assert set(versions(cloud).values()) == {old.partition("+etcd")[2]}
    assert kept <= client.keys(LOG)
    secrets_are_nowhere(cloud, tmp_path)
    cloud.gpuaas("decommission", "etcd", "--yes")
    traces = [trace for node in NODES for trace in machine_state.traces(LAB, node, before[node])]
    assert [trace for trace in traces if not PLACED.match(trace)] == []


def replace_and_kill_the_controller(cloud: Cloud) -> None:
    """Kill the controller while the new machine enters the cluster, and start another one, which continues."""
    command = [str(BIN / "gpuaas"), "member", "replace", "etcd", "gpu-1", "--with", "gpu-4"]
    with subprocess.Popen(command, env=cloud.environment(), stdout=subprocess.PIPE, text=True) as replacing:
        assert replacing.stdout is not None
        for line in replacing.stdout:
            if "enter the cluster" in line:
                record = json.loads((cloud.home / LAB / "etcd/controller.pid").read_text())
                os.kill(record["pid"], signal.SIGKILL)
                start(cloud)
                break
        shown = replacing.stdout.read()
    assert replacing.returncode == 0, shown


def a_snapshot_restores_what_was_written_before_it(cloud: Cloud, client: Client) -> None:
    client.put("kept", "before")
    saved = action(cloud, "snapshot.save")["rows"][0]
    client.put("kept", "after")
    restored = action(cloud, "snapshot.restore", "--input", f"snapshot={saved['snapshot']}")["rows"][0]
    assert (restored["revision"], restored["keys"]) == (saved["revision"], saved["keys"])
    assert client.get("kept")[0] == "before"


def action(cloud: Cloud, *words: str) -> Any:
    return json.loads(cloud.gpuaas("action", "run", "etcd", *words, "-o", "json").stdout)["result"]


def versions(cloud: Cloud) -> dict[str, str]:
    rows = cloud.listed("members", "etcd")
    return {row["node_name"]: row["observed_version"] for row in rows if row["status"] in ("ready", "degraded")}


def clients_files(cloud: Cloud, folder: Path) -> list[str]:
    """Copy what clients need from a member, as the page describes, and return the addresses of all machines."""
    for name, path in FILES.items():
        (folder / name).write_text(cloud.on("gpu-2", f"cat {path}"))
    rows = json.loads(cloud.gpuaas("lab", "status", "--lab", LAB, "-o", "json").stdout)
    return [row["address"] for row in sorted(rows, key=lambda row: str(row["name"]))]


def secrets_are_nowhere(cloud: Cloud, folder: Path) -> None:
    """No line of the private key is in a log or in what the platform shows of operations."""
    [line] = (folder / "key").read_text().splitlines()[1:-1]
    logs = [*cloud.home.rglob("*.log")]
    assert logs
    assert [log for log in logs if line in log.read_text(errors="replace")] == []
    assert line not in cloud.gpuaas("get", "operations", "-o", "json").stdout


def publish(cloud: Cloud, release: str) -> str:
    """Make the bundle of a release if there is none, publish it by the commands of the page; return the version."""
    BUNDLES.mkdir(parents=True, exist_ok=True)
    shown = re.findall(r"(?:^    .+\n)+", PAGE.read_text(), re.MULTILINE)
    key, per_version = ([line.strip() for line in block.splitlines()] for block in shown[:2])
    made = [line for line in key if "genpkey" not in line or not (BUNDLES / "signing.pem").exists()]
    lines = [line.replace("etcd-3.5.30.tar", f"{release}.tar").replace("forky", release) for line in per_version]
    if (BUNDLES / f"{release}.tar.dsse").exists():
        lines = [line for line in lines if "bundle make" not in line]
    known = cloud.gpuaas("artifact", "trust", "list", "-o", "json", check=False).stdout
    script = "\n".join(["set -e", *([] if "etcd-bundles" in known else made), *lines])
    done = subprocess.run(
        ["bash", "-c", script], cwd=BUNDLES, env=cloud.environment(), capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, f"{script}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return str(json.loads((BUNDLES / "version.json").read_text())["version"])


def until(is_true: Callable[[], bool], within_s: float = 120.0) -> None:
    ends_at = time.monotonic() + within_s
    while not is_true():
        assert time.monotonic() < ends_at
        time.sleep(0.2)
