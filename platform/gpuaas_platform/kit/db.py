"""The store port. Two drivers implement it: `sqlite` (embedded) and `postgres`.

A write use case is one coroutine function of a transaction and may await nothing but that transaction. Writers wait in
a queue. Those that queue while a commit runs become the next group: each runs under its own savepoint, all are
committed together, and only then do they get their results. One group runs at a time, also across processes, so each
write use case sees all earlier ones and runs alone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from gpuaas_contract import errors

Result = TypeVar("Result")
OnGroup = Callable[[int, float], None]
"""Called after each commit with the number of writers and the seconds it took."""


class Unavailable(Exception):
    """The store does not answer, or cannot take more."""


class Duplicate(errors.Conflict):
    """A unique index refused a row. Use cases look first and name what is taken; this is the second line of defence.

    Let it pass: PostgreSQL runs no other statement of the transaction after it."""

    def __init__(self, reason: str) -> None:
        super().__init__("An object with the same name or key exists already.")
        self.reason = reason


class Row(Protocol):
    def __getitem__(self, key: str | int, /) -> Any: ...


class Reader(Protocol):
    """SQL uses $1, $2 … for parameters, on both engines."""

    async def one(self, sql: str, *values: object) -> Row | None: ...

    async def all(self, sql: str, *values: object) -> Sequence[Row]: ...


class Tx(Reader, Protocol):
    async def run(self, sql: str, *values: object) -> int:
        """Execute and return how many rows it touched."""

    def wake(self, topic: str) -> None:
        """Wake the listeners of `topic` after the commit."""


UseCase = Callable[[Tx], Awaitable[Result]]


def marks(count: int, first: int = 1) -> str:
    """Return `$1, $2, …` for this many values of a list."""
    return ", ".join(f"${position}" for position in range(first, first + count))


def equal(wanted: Mapping[str, str | None]) -> tuple[str, list[str]]:
    """Return the condition that these columns have these values, and the values. A column without a value is free."""
    asked = {column: value for column, value in wanted.items() if value}
    return " AND ".join(f"{column} = ${at}" for at, column in enumerate(asked, 1)) or "1 = 1", list(asked.values())


class Database(Protocol):
    reader: Reader
    on_group: OnGroup

    def version(self) -> int | None:
        """Return a number that changes with every commit of any process; None if that costs as much as a read."""

    async def write(self, use_case: UseCase[Result], *, keep: bool = True) -> Result:
        """Run the use case and commit it; with keep=False roll it back and still return its result (dry run)."""

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
    """Hand every writer of a group its result, on the event loop, after the commit."""
    # After a failed commit too: it may have succeeded although its answer was lost, and a needless wake costs one look.
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
    """Return the topics that a group wakes: those of the writers that are kept, each once."""
    return list(dict.fromkeys(topic for job in jobs if job.keep and job.error is None for topic in job.topics))
