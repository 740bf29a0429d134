"""The result of each check, and the class of gap behind a failure."""

from typing import Literal

import msgspec
from gpuaas_contract import conformance

Gap = Literal[
    "missing platform primitive",
    "read-model surface",
    "identity or permission",
    "missing event",
    "missing billing hook",
    "leaky coupling",
    "app problem",
    "environment problem",
]
GAPS: tuple[Gap, ...] = Gap.__args__  # type: ignore[attr-defined]
"""The classes of gaps, as the report lists them.

gaps = {gap: [verdict for verdict in card.verdicts if verdict.gap == gap] for gap in GAPS}"""
Result = Literal["passed", "failed", "not applicable"]


class Failed(Exception):
    """The app does not do what the check asks for."""

    def __init__(self, reason: str, fix: str, gap: Gap = "app problem") -> None:
        super().__init__(reason)
        self.reason, self.fix, self.gap = reason, fix, gap


class NotApplicable(Exception):
    """The check has nothing to try with this app."""


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one check.

    failed = [verdict.reason for verdict in card.verdicts if verdict.result == "failed"]"""

    check: str
    claim: str
    """What the check tries to disprove, as a sentence."""
    result: Result
    took_s: float
    reason: str = ""
    """Why it failed or is not applicable, or what it left out."""
    fix: str = ""
    """What the app team can do."""
    gap: Gap | None = None
    """The class of the gap behind a failure."""


class ScoreCard(msgspec.Struct, frozen=True):
    """The verdicts of one run.

    assert card.failures == []
    assert card.count("passed") == len(conformance.ALL)"""

    app: str
    version: str
    verdicts: list[Verdict]

    def count(self, result: Result) -> int:
        """Return how many checks had this result."""
        return sum(verdict.result == result for verdict in self.verdicts)

    @property
    def conforms(self) -> bool:
        """Whether no check failed and at least one passed, as the platform decides it about a signed card."""
        checks = [conformance.ConformanceCheck(name=entry.check, result=entry.result) for entry in self.verdicts]
        return conformance.conforms(checks)

    @property
    def failures(self) -> list[str]:
        """Each check that failed, with the reason."""
        return [f"{verdict.check}: {verdict.reason}" for verdict in self.verdicts if verdict.result == "failed"]
