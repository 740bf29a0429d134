"""What a case did and counted: one row of the table that the bad day prints."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HEADER = (
    f"{'case':12}{'store':12}{'done':34}{'ack':>8}{'unknown':>9}{'refused':>9}"
    f"{'lost':>6}{'doubled':>9}{'early':>7}  /readyz truthful"
)


@dataclass(frozen=True)
class Size:
    """How much is done to the server."""

    kills: int = 200
    fills: int = 3
    flood_s: float = 10.0
    jump_s: float = 6.0
    stop_s: float = 60.0
    restarts: int = 10
    failovers: int = 10


@dataclass(frozen=True)
class Place:
    """A folder for one case and an empty database in it."""

    folder: Path
    size: Size
    database_url: str = ""
    """Empty: SQLite."""
    postgres: Path | None = None
    """Folder of the PostgreSQL server, which only this case uses."""

    @property
    def store(self) -> str:
        return "PostgreSQL" if self.database_url else "SQLite"


@dataclass
class Result:
    """`lost`, `doubled` and `early` count acknowledged changes and what depends on them: events, audit rows, leases."""

    done: str = ""
    acknowledged: int = 0
    unknown: int = 0
    """Requests whose connection broke; each was repeated with its idempotency key."""
    refused: int = 0
    """Answers with an error that may be retried."""
    lost: int = 0
    doubled: int = 0
    early: int = 0
    """What was deleted or ended before its time."""
    unready: list[str] = field(default_factory=list)
    """When `/readyz` was not truthful."""
    wrong: list[str] = field(default_factory=list)
    """Anything else that may not happen."""

    @property
    def passed(self) -> bool:
        return not (self.lost or self.doubled or self.early or self.unready or self.wrong)

    def line(self, case: str, store: str) -> str:
        counts = f"{self.acknowledged:8}{self.unknown:9}{self.refused:9}{self.lost:6}{self.doubled:9}{self.early:7}"
        truthful = "yes" if not self.unready else f"no: {self.unready[0]}"
        notes = "".join(f"\n    {note}" for note in self.wrong[:5])
        return f"{case:12}{store:12}{self.done:34}{counts}  {truthful}{notes}"


Case = Callable[[Place], Coroutine[Any, Any, Result]]
