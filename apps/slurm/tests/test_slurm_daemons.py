"""Daemons of the controller machine that end right after their start are started again, a few times."""

import dataclasses
from collections.abc import Sequence

import pytest
from fake_slurm import SETTINGS
from gpuaas_app_slurm.workload import repairs
from gpuaas_sdk.failures import Permanent
from gpuaas_sdk.machine import Machine, Ran
from gpuaas_sdk.testing import FakeMachines

QUICK = dataclasses.replace(SETTINGS, accounting_start_s=1.0, controller_start_s=1.0)
REFUSED = "sacctmgr: error: Connection refused"


class Daemons:
    """slurmdbd, which ends so many times after its start."""

    def __init__(self, ends: int) -> None:
        self.ends, self.is_up, self.starts = ends, False, 0

    def answer(self, argv: Sequence[str]) -> Ran:
        match argv:
            case ("systemctl", "start", "slurmdbd"):
                self.starts += 1
                self.is_up = self.starts > self.ends
            case ("systemctl", "is-active", "-q", "slurmdbd"):
                return Ran(0 if self.is_up else 3, "", "")
            case ("timeout", _, "sacctmgr", *_):
                return Ran(0, "lab\n", "") if self.is_up else Ran(1, "", REFUSED)
        return Ran(0, "", "")


async def _until_accounting(daemons: Daemons) -> list[str]:
    said: list[str] = []

    async def say(text: str) -> None:
        said.append(text)

    machine = Machine(FakeMachines(daemons.answer).host("gpu-1"))
    await repairs.until_accounting(machine, "lab", QUICK, say)
    return said


async def test_a_slurmdbd_that_ends_after_its_start_is_started_again_and_this_is_shown() -> None:
    daemons = Daemons(ends=1)
    assert "slurmdbd on gpu-1 has ended, starting it again" in await _until_accounting(daemons)
    assert daemons.starts == 2


async def test_a_slurmdbd_that_always_ends_is_started_a_few_times_and_the_failure_has_what_sacctmgr_printed() -> None:
    daemons = Daemons(ends=100)
    with pytest.raises(Permanent, match=REFUSED):
        await _until_accounting(daemons)
    assert daemons.starts == repairs.STARTS_MAX


async def test_a_slurmdbd_that_runs_and_does_not_answer_yet_is_left_alone() -> None:
    daemons = Daemons(ends=0)
    daemons.is_up = True
    assert await _until_accounting(daemons) == []
    assert daemons.starts == 0
