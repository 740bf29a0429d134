"""The interface of the store. Two drivers implement it: `sqlite` (embedded) and `postgres`.

A write use case is a coroutine function that gets a transaction and may await only that transaction. Writers wait in a
queue. Those that arrive while a group runs become the next group: each runs under its own savepoint, all are committed
together, and they get their results after the commit. Only one group runs at a time, across all processes, so write
use cases never run concurrently and each sees the changes of all earlier ones.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from gpuaas_contract import errors

Result = TypeVar("Result")
Item = TypeVar("Item")
OnGroup = Callable[[int, float], None]
"""Called after each group with the number of its writers and the seconds that it took."""


Reason = Literal["disk_full", "disk_failed", "read_only", ""]
"""Why the store is unavailable, in public words; empty if that is unknown."""


class Unavailable(Exception):
    """The store does not answer, or cannot store more data. The message is for the log; `reason` may be shown."""

    def __init__(self, message: str, reason: Reason = "") -> None:
        super().__init__(message)
        self.reason = reason


class Duplicate(errors.Conflict):
    """A unique index refused a row. Use cases check for duplicates first and name them; this error is the fallback.

    Do not catch it in a use case: PostgreSQL then refuses all further statements of the transaction."""

    def __init__(self, reason: str) -> None:
        super().__init__("An object with the same name or key exists already.")
        self.reason = reason


class Row(Protocol):
    def __getitem__(self, key: str | int, /) -> Any: ...


class Reader(Protocol):
    """Runs queries. Parameters in SQL are written $1, $2 … for both engines."""

    async def one(self, sql: str, *values: object) -> Row | None: ...

    async def all(self, sql: str, *values: object) -> Sequence[Row]: ...


class Tx(Reader, Protocol):
    async def run(self, sql: str, *values: object) -> int:
        """Execute a statement and return how many rows it changed."""

    def wake(self, topic: str) -> None:
        """Wake the listeners of `topic` after the commit."""


UseCase = Callable[[Tx], Awaitable[Result]]


def marks(count: int, first: int = 1) -> str:
    """Return the placeholders `$1, $2, …` for `count` values, starting with the number `first`."""
    return ", ".join(f"${position}" for position in range(first, first + count))


def chunks(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """Yield the items in parts of this size. A statement for each item would need many trips to the store; one
    statement for all of them would be slow to prepare."""
    return (items[first : first + size] for first in range(0, len(items), size))


def equal(wanted: Mapping[str, str | None]) -> tuple[str, list[str]]:
    """Return the SQL condition that these columns have these values, and the values. Empty values are ignored."""
    asked = {column: value for column, value in wanted.items() if value}
    return " AND ".join(f"{column} = ${at}" for at, column in enumerate(asked, 1)) or "1 = 1", list(asked.values())


class Database(Protocol):
    is_remote: bool
    """Whether a statement is a trip to another process, so that many small ones are better sent together."""
    reader: Reader
    on_group: OnGroup

    def version(self) -> int | None:
        """Return a number that changes with every commit of any process; None if it is not faster than a read."""

    async def write(self, use_case: UseCase[Result], *, keep: bool = True) -> Result:
        """Run the use case, commit, and return its result. With keep=False roll it back instead (dry run)."""

    async def close(self) -> None: ...


@dataclass
class Job:
    """One writer in the queue, shared by both drivers."""

    use_case: UseCase[object]
    keep: bool
    answer: asyncio.Future[object]
    topics: list[str] = field(default_factory=list)
    result: object = None
    error: BaseException | None = None


def finish(jobs: Sequence[Job], notify: Callable[[str], None], commit_error: BaseException | None) -> None:
    """Wake the listeners of a group and give each writer its result. Runs on the event loop, after the commit."""
    # Also after a failed commit: it may have succeeded, with only its answer lost. A needless wake-up costs one read.
    for topic in topics_of(jobs):
        notify(topic)
    for job in jobs:
        if job.answer.done():
            continue
        error = commit_error or job.error
        if error is not None:
            job.answer.set_exception(error)
        else:
            job.answer.set_result(job.result)


def topics_of(jobs: Sequence[Job]) -> list[str]:
    """Return the topics that a group wakes, each once: those of its writers that succeed and are no dry run."""
    return list(dict.fromkeys(topic for job in jobs if job.keep and job.error is None for topic in job.topics))
