"""Compare measured values with aims, and end a benchmark with exit status 1 if it missed one."""

from collections.abc import Sequence
from typing import NamedTuple

MISSED = 1
"""The exit status of a benchmark that missed an aim."""


class Aim(NamedTuple):
    what: str
    measured: float
    limit: float
    unit: str = ""
    """Printed after both numbers."""

    @property
    def is_met(self) -> bool:
        return self.measured <= self.limit

    @property
    def text(self) -> str:
        result = "aim met" if self.is_met else "aim missed"
        return f"{result}: {self.what}: {round(self.measured, 2):g}{self.unit}, at most {self.limit:g}{self.unit}"


def show(aims: Sequence[Aim]) -> None:
    """Print each aim. End with `MISSED` if one was missed."""
    for aim in aims:
        print(aim.text, flush=True)
    if not all(aim.is_met for aim in aims):
        raise SystemExit(MISSED)
