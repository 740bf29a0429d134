"""A step after a report on it."""

import datetime

import pytest
from gpuaas_contract.lifecycles import StepState
from gpuaas_contract.operations import Step
from gpuaas_contract.protocol import steps
from gpuaas_contract.runtime import ReportStep

BEGUN = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
NOW = BEGUN + datetime.timedelta(minutes=1)


def _after(*states: StepState) -> Step:
    step: Step | None = None
    for state in states:
        report = ReportStep(epoch=1, name="install", state=state)
        step = steps.reported(step, report, NOW if step else BEGUN)
    assert step is not None
    return step


@pytest.mark.parametrize(
    ("states", "attempt"),
    [
        (("running",), 1),
        (("running", "running"), 1),
        (("running", "failed"), 1),
        (("running", "failed", "running"), 2),
        (("running", "failed", "running", "failed", "running", "succeeded"), 3),
    ],
)
def test_only_the_start_of_a_failed_step_counts_as_another_attempt(states: tuple[StepState, ...], attempt: int) -> None:
    assert _after(*states).attempt == attempt


def test_a_step_keeps_its_start_and_ends_when_it_no_longer_runs() -> None:
    assert (_after("running", "running").started_at, _after("running", "running").ended_at) == (BEGUN, None)
    assert _after("running", "succeeded").ended_at == NOW
