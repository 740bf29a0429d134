"""etcd on real machines, by the commands of its pages: clients write while a member is replaced, the controller is
killed, and all members are upgraded; then snapshot, restore, rollback, and machines as before."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from app_on_machines import AppCloud, app_cloud, until
from cloud_in_use import BIN
from etcd_writers import FILES, LOG, Client, Writers
from register_history import lost, violations

pytestmark = [pytest.mark.machines, pytest.mark.long]

LAB, PORT, NODES = "etcdlong", "7343", ("gpu-1", "gpu-2", "gpu-3", "gpu-4")
PAGE = Path(__file__).parents[2] / "apps/etcd/docs/upgrade.md"

Result = TypeVar("Result")
Ask = Callable[[Client], Result]


@pytest.fixture
def cloud() -> Iterator[AppCloud]:
    with app_cloud("etcd", LAB, PORT, NODES) as cloud:
        yield cloud


def test_no_acknowledged_write_is_lost_while_members_are_replaced_and_upgraded(cloud: AppCloud, tmp_path: Path) -> None:
    old, new = publish(cloud, "trixie"), publish(cloud, "forky")
    before = cloud.captured()
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
    kept = asked(addresses, tmp_path, lambda client: client.keys(LOG))
    print(f"{len(writers.acknowledged)} writes acknowledged, {writers.unanswered} without an answer")  # noqa: T201
    assert lost(writers.acknowledged, kept) == set()
    assert violations(writers.history, writers.begun) == []
    assert versions(cloud) == dict.fromkeys(("gpu-2", "gpu-3", "gpu-4"), new.partition("+etcd")[2])

    a_snapshot_restores_what_was_written_before_it(cloud, lambda ask: asked(addresses, tmp_path, ask))
    cloud.gpuaas("rollback", "etcd")
    assert set(versions(cloud).values()) == {old.partition("+etcd")[2]}
    assert kept <= asked(addresses, tmp_path, lambda client: client.keys(LOG))
    secrets_are_nowhere(cloud, tmp_path)
    cloud.gpuaas("decommission", "etcd", "--yes")
    assert cloud.traces(before) == []


def replace_and_kill_the_controller(cloud: AppCloud) -> None:
    """Kill the controller while the new machine enters the cluster, and start another one, which continues."""
    command = [str(BIN / "gpuaas"), "member", "replace", "etcd", "gpu-1", "--with", "gpu-4"]
    with subprocess.Popen(command, env=cloud.environment(), stdout=subprocess.PIPE, text=True) as replacing:
        assert replacing.stdout is not None
        for line in replacing.stdout:
            if "enter the cluster" in line:
                record = json.loads((cloud.home / LAB / "etcd/controller.pid").read_text())
                os.kill(record["pid"], signal.SIGKILL)
                cloud.start()
                break
        shown = replacing.stdout.read()
    assert replacing.returncode == 0, shown


def a_snapshot_restores_what_was_written_before_it(cloud: AppCloud, ask: Callable[[Ask[Any]], Any]) -> None:
    ask(lambda client: client.put("kept", "before"))
    saved = cloud.act("snapshot.save")["rows"][0]
    ask(lambda client: client.put("kept", "after"))
    restored = cloud.act("snapshot.restore", "--input", f"snapshot={saved['snapshot']}")["rows"][0]
    assert (restored["revision"], restored["keys"]) == (saved["revision"], saved["keys"])
    assert ask(lambda client: client.get("kept"))[0] == "before"


def asked(addresses: Sequence[str], folder: Path, ask: Ask[Result], within_s: float = 60.0) -> Result:
    """Return what a new client gets, from the first member that answers. gpu-1 is no member after its replacement."""
    ends_at = time.monotonic() + within_s
    with contextlib.closing(Client(addresses[1:], folder)) as client:
        while True:
            try:
                return ask(client)
            except OSError:
                if time.monotonic() > ends_at:
                    raise
                time.sleep(0.2)


def versions(cloud: AppCloud) -> dict[str, str]:
    rows = cloud.listed("members", "etcd")
    return {row["node_name"]: row["observed_version"] for row in rows if row["status"] in ("ready", "degraded")}


def clients_files(cloud: AppCloud, folder: Path) -> list[str]:
    """Copy what clients need from a member, as the page describes, and return the addresses of all machines."""
    for name, path in FILES.items():
        (folder / name).write_text(cloud.on("gpu-2", f"cat {path}"))
    rows = json.loads(cloud.gpuaas("lab", "status", "--lab", LAB, "-o", "json").stdout)
    return [row["address"] for row in sorted(rows, key=lambda row: str(row["name"]))]


def secrets_are_nowhere(cloud: AppCloud, folder: Path) -> None:
    """No line of the private key is in a log or in what the platform shows of operations."""
    [line] = (folder / "key").read_text().splitlines()[1:-1]
    logs = [*cloud.home.rglob("*.log")]
    assert logs
    assert [log for log in logs if line in log.read_text(errors="replace")] == []
    assert line not in cloud.gpuaas("get", "operations", "-o", "json").stdout


def publish(cloud: AppCloud, release: str) -> str:
    return cloud.publish(PAGE, {"etcd-3.5.30.tar": f"{release}.tar", "forky": release})
