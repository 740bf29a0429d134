"""Two processes of the Slurm app's controller look after one cluster. One of them is paused past its lease and resumed,
again and again: at any time one steward counts, and what the paused one had to report is refused."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import campaigns
import pytest
import walk_cloud
from server_process import ServerProcess

ROUNDS = campaigns.size(short=3, whole=100)
NAMES = ("one", "two")
_CONTROLLER = Path(__file__).with_name("replica_controller.py")
_DEADLINE_S = 120


@dataclass(frozen=True)
class Replicas:
    """The two processes, and what they recorded of their reports."""

    folder: Path
    processes: dict[str, subprocess.Popen[bytes]]

    def records(self) -> list[dict[str, Any]]:
        """Every record of both, each with the name of its process and its number there."""
        read = []
        for name in NAMES:
            file = self.folder / f"{name}.records"
            lines = file.read_text().splitlines() if file.exists() else []
            read += [{"name": name, "number": number, **json.loads(line)} for number, line in enumerate(lines)]
        return read

    def of(self, state: str) -> list[dict[str, Any]]:
        return [record for record in self.records() if record["state"] == state]

    def pause(self) -> dict[str, Any]:
        """Pause the process that reports next, and return its record once it is stopped."""
        before = self.of("paused")
        (self.folder / "hold").touch()
        self.until(lambda: len(self.of("paused")) > len(before), "a replica takes the pause")
        (paused,) = (record for record in self.of("paused") if record not in before)
        pid = self.processes[paused["name"]].pid
        self.until(lambda: _state(pid) == "T", "the replica is stopped")
        return paused

    def answers(self, paused: dict[str, Any]) -> list[str]:
        """The answers to reports that this replica sent after the pause with the epoch from before."""
        return [
            record.get("code", "accepted")
            for record in self.records()
            if (record["name"], record["epoch"]) == (paused["name"], paused["epoch"])
            and record["number"] > paused["number"]
        ]

    def resume(self, paused: dict[str, Any]) -> None:
        self.processes[paused["name"]].send_signal(signal.SIGCONT)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        ends_at = time.monotonic() + _DEADLINE_S
        while not condition():
            logs = [(self.folder / f"{name}.log").read_text()[-2000:] for name in NAMES]
            assert time.monotonic() < ends_at, f"not within {_DEADLINE_S} s: {what}; {self.records()[-10:]} {logs}"
            time.sleep(0.02)


@pytest.mark.timeout(campaigns.size(short=600, whole=3600))
def test_never_do_two_replicas_report_under_one_epoch_and_a_paused_one_is_refused(
    tmp_path: Path, database_url: str
) -> None:
    with ServerProcess(tmp_path / "data", database_url) as server:
        cloud = asyncio.run(walk_cloud.Cloud.make(server.url, server.admin_password()))
        with _running(tmp_path, cloud) as replicas:
            for _ in range(ROUNDS):
                _a_round(replicas)
    accepted = sorted(replicas.of("accepted"), key=lambda record: int(record["revision"]))
    reporters = defaultdict(set)
    for record in accepted:
        reporters[record["epoch"]].add(record["name"])
    assert {len(names) for names in reporters.values()} == {1}, "one steward for each epoch"
    assert 0 not in [record["revision"] for record in accepted], "each accepted report changed the member"
    epochs = [record["epoch"] for record in accepted]
    assert epochs == sorted(epochs), "no report of an earlier steward was accepted after one of a later steward"
    answers = [replicas.answers(record) for record in replicas.of("paused")]
    sys.stdout.write(f"{len(answers)} pauses, {len(accepted)} reports accepted, {len(reporters)} epochs\n")
    assert (len(answers), {code for codes in answers for code in codes}) == (ROUNDS, {"lease_lost"})


def _a_round(replicas: Replicas) -> None:
    """Pause the steward just before it sends a report, until the other one reports as the new steward; resume it."""
    paused = replicas.pause()

    def is_replaced() -> bool:
        return any(r["epoch"] > paused["epoch"] and r["name"] != paused["name"] for r in replicas.of("accepted"))

    try:
        replicas.until(is_replaced, "the other replica reports under a later epoch")
    finally:
        replicas.resume(paused)
    replicas.until(lambda: replicas.answers(paused) != [], "the report of the paused replica is answered")


@contextlib.contextmanager
def _running(folder: Path, cloud: walk_cloud.Cloud) -> Iterator[Replicas]:
    key = folder / "key.json"
    key.write_text(json.dumps({"key_id": cloud.key.key_id, "client_secret": cloud.key.client_secret}))
    where = ["--server", cloud.server, "--project", cloud.project_id, "--credentials", str(key)]
    program = [sys.executable, str(_CONTROLLER), str(folder), "run", *where]
    with contextlib.ExitStack() as stack:
        processes = {}
        for name in NAMES:
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            started = subprocess.Popen([*program, "--name", name], stdout=log, stderr=log)
            stack.callback(_end, started)
            processes[name] = started
        yield Replicas(folder, processes)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(_DEADLINE_S)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
