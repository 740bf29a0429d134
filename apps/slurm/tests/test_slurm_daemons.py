"""Daemons of the controller machine that end right after their start are started again, a few times."""

import dataclasses
import itertools
from collections.abc import Sequence

import pytest
from gpuaas_app_slurm.workload import accounting, repairs
from gpuaas_app_slurm_conformance.fake_slurm import SETTINGS
from gpuaas_sdk.failures import Permanent
from gpuaas_sdk.machine import Machine, Ran
from gpuaas_sdk.testing import FakeMachines

REFUSED = "sacctmgr: error: Connection refused"


class Daemons:
    """slurmdbd, which ends so many times after its start, and then answers at one of the first questions."""

    def __init__(self, ends: int, *, is_up: bool = False, answers_at: int = 1) -> None:
        self.ends, self.is_up, self.starts = ends, is_up, 0
        self._questions, self._answers_at = itertools.count(1), answers_at

    def answer(self, argv: Sequence[str]) -> Ran:
        match argv:
            case ("systemctl", "start", "slurmdbd"):
                self.starts += 1
                self.is_up = self.starts > self.ends
            case ("systemctl", "is-active", "slurmdbd"):
                return Ran(0, "active\n", "") if self.is_up else Ran(3, "failed\n", "")
            case ("timeout", _, "sacctmgr", *_) if self.is_up and next(self._questions) >= self._answers_at:
                return Ran(0, "lab\n", "")
            case ("timeout", _, "sacctmgr", *_):
                return Ran(1, "", REFUSED)
        return Ran(0, "", "")


@pytest.fixture(autouse=True)
def quick_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repairs, "POLL_S", 0.01)
    monkeypatch.setattr(accounting, "CONVERSION_POLL_S", 0.01)


async def _until_accounting(daemons: Daemons, within_s: float = 60.0) -> list[str]:
    shown: list[str] = []

    async def say(text: str) -> None:
        shown.append(text)

    machine = Machine(FakeMachines(daemons.answer).host("gpu-1"))
    settings = dataclasses.replace(SETTINGS, accounting_start_s=within_s)
    await repairs.until_accounting(machine, "lab", settings, say)
    return shown


async def test_a_slurmdbd_that_ends_after_its_start_is_started_again_and_this_is_shown() -> None:
    daemons = Daemons(ends=1)
    assert "slurmdbd on gpu-1 has ended, starting it again" in await _until_accounting(daemons)
    assert daemons.starts == 2


async def test_a_slurmdbd_that_always_ends_is_started_a_few_times_and_the_failure_has_what_sacctmgr_printed() -> None:
    daemons = Daemons(ends=100)
    with pytest.raises(Permanent, match=REFUSED):
        await _until_accounting(daemons, within_s=1.0)
    assert daemons.starts == repairs.STARTS_MAX


async def test_a_slurmdbd_that_runs_and_does_not_answer_yet_is_left_alone() -> None:
    daemons = Daemons(ends=0, is_up=True, answers_at=3)
    assert not any("starting it again" in text for text in await _until_accounting(daemons))
    assert daemons.starts == 0


class Conversion:
    """A slurmdbd that answers at one of the first questions, and whose process is one after the other of these."""

    def __init__(self, answers_at: int, processes: Sequence[str]) -> None:
        self._questions, self._answers_at, self._processes = itertools.count(1), answers_at, iter(processes)

    def answer(self, argv: Sequence[str]) -> Ran:
        if argv[0] == "timeout":
            return Ran(0 if next(self._questions) >= self._answers_at else 1, "lab\n", "")
        return Ran(0, next(self._processes), "")


async def _start_converted(conversion: Conversion) -> list[str]:
    shown: list[str] = []

    async def say(text: str) -> None:
        shown.append(text)

    settings = dataclasses.replace(SETTINGS, accounting_start_s=0, conversion_s=3600)
    await accounting.start_converted(Machine(FakeMachines(conversion.answer).host("gpu-1")), settings, say)
    return shown


async def test_a_slurmdbd_that_converts_a_large_database_is_waited_for_longer_than_its_start() -> None:
    shown = await _start_converted(Conversion(answers_at=4, processes=["", "17", "17", "17"]))
    assert shown == ["slurmdbd on gpu-1 converts the database"]


async def test_a_slurmdbd_whose_process_ends_while_it_converts_fails_at_once() -> None:
    with pytest.raises(Permanent, match="did not answer"):
        await _start_converted(Conversion(answers_at=100, processes=["", "17", "17", "18"]))
