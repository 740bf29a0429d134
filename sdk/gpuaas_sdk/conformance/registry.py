"""The list of checks, in the order of the score card."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from gpuaas_sdk.conformance.trial import Trial

Run = Callable[[Trial], Awaitable[str | None]]
"""Returns what it left out, if anything."""


class CheckSpec(NamedTuple):
    """One check of the kit."""

    name: str
    claim: str
    """What it tries to disprove."""
    run: Run


CHECKS: dict[str, CheckSpec] = {}


def check(name: str, claim: str) -> Callable[[Run], Run]:
    """Register a check. It raises `Failed` or `NotApplicable`; otherwise it has passed."""

    def register(run: Run) -> Run:
        CHECKS[name] = CheckSpec(name, claim, run)
        return run

    return register
