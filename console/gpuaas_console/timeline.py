"""Pure: the steps of an operation as bars on a scale of time."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuaas_contract.operations import Operation, Step

from gpuaas_console.view import tone_of_work

SCALE = 1000
SHORTEST = 6
"""A step of no length is still visible."""


@dataclass(frozen=True)
class Bar:
    step: Step
    who: str
    x: int
    width: int
    tone: str
    took_s: float


def bars(operation: Operation, steps: Sequence[Step], names: Mapping[str, str], now: datetime.datetime) -> list[Bar]:
    """Return one bar per step, in the order in which the steps began."""
    start, end = operation.created_at, max(operation.ended_at or now, operation.created_at)
    whole_s = max((end - start).total_seconds(), 0.001)
    result = []
    for step in sorted(steps, key=lambda item: item.started_at):
        began_s = (step.started_at - start).total_seconds()
        took_s = max(((step.ended_at or end) - step.started_at).total_seconds(), 0.0)
        x = min(max(round(SCALE * began_s / whole_s), 0), SCALE - SHORTEST)
        width = min(max(round(SCALE * took_s / whole_s), SHORTEST), SCALE - x)
        kind = tone_of_work(step.state)
        result.append(Bar(step, names.get(step.member_id, step.member_id), x, width, kind, took_s))
    return result
