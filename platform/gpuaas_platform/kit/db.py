"""The store port. Two drivers implement it: `sqlite` (embedded) and `postgres`.

A write use case is one coroutine function of a transaction and may await nothing but that transaction. Writers wait in
a queue; whatever has queued while the last commit ran becomes one group: each runs under its own savepoint, all are
committed together, and only then are they answered. One group runs at a time, also across processes, so every write
use case sees all earlier ones and none runs beside it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")
OnGroup = Callable[[int, float], None]
"""Called after each commit with the number of writers and the seconds it took."""


class Unavailable(Exception):
    """The store does not answer, or cannot take more."""


def nobody_counts(_: int, __: float) -> None:
    return


class Row(Protocol):
    def __getitem__(self, key: str | int, /) -> Any: ...


class Reader(Protocol):
    """SQL uses $1, $2 … for parameters, on both engines."""

    async def one(self, sql: str, *values: Any) -> Row | None: ...

    async def all(self, sql: str, *values: Any) -> Sequence[Row]: ...


class Tx(Reader, Protocol):
    async def run(self, sql: str, *values: Any) -> int:
        """Execute and return how many rows it touched."""

    def wake(self, topic: str) -> None:
        """Tell whoever waits for `topic`, after the commit."""


UseCase = Callable[[Tx], Awaitable[Result]]


def marks(count: int, first: int = 1) -> str:
    """`$1, $2, …` for as many values, to stand in a list."""
    return ", ".join(f"${position}" for position in range(first, first + count))


class Database(Protocol):
    reader: Reader
    on_group: OnGroup

    def version(self) -> int | None:
        """Another number after every commit, whichever process made it; None where asking costs as much as reading."""

    async def write(self, use_case: UseCase[Result], *, keep: bool = True) -> Result:
        """Run the use case and commit it; with keep=False roll it back and still return its result (dry run)."""

    async def close(self) -> None: ...


@dataclass
class Job:
    """One writer in the queue, shared by both drivers."""

    use_case: UseCase[Any]
    keep: bool
    answer: "asyncio.Future[Any]"
    topics: list[str] = field(default_factory=list)
    result: Any = None
    error: BaseException | None = None


def settle(jobs: Sequence[Job], notify: Callable[[str], None], commit_error: BaseException | None) -> None:
    """Answer every writer of a group, on the event loop, after the commit."""
    # After a failed commit too: its answer may have been lost after it was done, and a needless wake costs one look.
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
    """What a group wakes: the topics of the writers that are kept, each once."""
    return list(dict.fromkeys(topic for job in jobs if job.keep and job.error is None for topic in job.topics))
