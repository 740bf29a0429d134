"""The schedules request what is possible when it can begin, count what succeeded, and keep the notes of jobs apart."""

import asyncio
import subprocess
from typing import Any, cast

import pytest
from gpuaas_contract.errors import OperationInProgress
from gpuaas_contract.instances import Instance
from gpuaas_contract.lifecycles import OperationStatus
from gpuaas_contract.operations import Operation, OperationKind
from msgspec.structs import replace

from bench import records
from bench.campaign import acts, instance_acts, schedules
from bench.campaign.acts import Acts, Request
from bench.campaign.cluster import Cluster
from bench.campaign.jobs import Jobs
from bench.campaign.journal import Journal


class Slurm:
    """Accepts each job after the next one was submitted too."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.names: list[str] = []

    async def as_user(self, *argv: str) -> subprocess.CompletedProcess[str]:
        await asyncio.sleep(0)
        self.names.append(next(word for word in argv if word.startswith("--job-name=")))
        return subprocess.CompletedProcess(argv, 0, f"{len(self.names)}\n", "")


async def test_jobs_that_are_submitted_at_the_same_time_have_notes_of_their_own() -> None:
    slurm = Slurm()
    jobs = Jobs(cast(Cluster, slurm))
    await asyncio.gather(*(jobs.submit(5) for _ in range(3)))
    assert len(set(slurm.names)) == 3


async def test_a_request_that_waited_is_chosen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acts, "PAUSE_S", 0.0)
    slurm, versions, sent = Slurm(), ["old", "new"], list[str]()

    async def choose() -> Request:
        version = versions.pop(0)
        return Request(f"upgrade from {version}", lambda: send(version))

    async def send(version: str) -> Operation:
        sent.append(version)
        if version == "old":
            raise OperationInProgress("an upgrade runs here")
        return operation("rollback", "accepted")

    assert await Acts(cast(Cluster, slurm), patience_s=60).request(choose)
    assert sent == ["old", "new"]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [({"max_time": "1-00"}, False), ({"max_time": "2-00"}, True), ({"max_time": None}, True), (None, False)],
    ids=["the same", "another", "taken away", "there were none before"],
)
def test_a_setting_is_drawn_only_if_it_changes_something(setting: dict[str, Any] | None, expected: bool) -> None:
    assert instance_acts.changes(instance({"max_time": "1-00"}), setting) is expected


def test_outcomes_count_what_succeeded_of_what_was_accepted() -> None:
    done = [operation("upgrade", "succeeded"), operation("upgrade", "failed"), operation("preview", "succeeded")]
    assert schedules.outcomes(done) == "upgrade 1 of 2"


def instance(inputs: dict[str, Any]) -> Instance:
    return replace(records.instance("org_1", "proj_1", 1), inputs=inputs)


def operation(kind: OperationKind, status: OperationStatus) -> Operation:
    return replace(next(records.history("org_1", "proj_1", 1)), kind=kind, status=status)
