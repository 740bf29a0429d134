"""Answer many small questions to the store together, with one statement for all that arrive within some milliseconds.

Thousands of nodes ask the same few questions: is my token valid, have I a task. Each alone costs a trip to the database
server; together they cost little more than one.
"""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from gpuaas_platform.kit import db

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Answerer = Callable[[db.Database, Sequence[Question]], Awaitable[Sequence[Answer]]]
READ_S, WRITE_S = 0.02, 0.1
"""How often a batch of reads or of writes starts. A commit costs more, and no one waits for that of a heartbeat."""
BATCH_MAX = 256
SIZES = (1, 4, 16, 64, BATCH_MAX)
"""Numbers of questions in one statement. Few different statements keep the cache of prepared ones small."""


class Batches(Generic[Question, Answer]):
    """A question is answered by a batch that starts after it was asked, so no answer is older than its question.

    The first question after a pause is answered at once; while many arrive, a batch starts every `every_s`."""

    def __init__(self, answer: Callable[[Sequence[Question]], Awaitable[Sequence[Answer]]], every_s: float) -> None:
        self._answer, self._every_s = answer, every_s
        self._waiting: list[tuple[Question, asyncio.Future[Answer]]] = []
        self._next_at, self._running = 0.0, set[asyncio.Task[None]]()
        self._is_scheduled = False

    async def ask(self, question: Question) -> Answer:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((question, future))
        if len(self._waiting) >= BATCH_MAX:
            self._start()
        elif not self._is_scheduled:
            self._is_scheduled = True
            loop.call_at(max(self._next_at, loop.time()), self._start_scheduled, context=contextvars.Context())
        return await future

    def _start_scheduled(self) -> None:
        self._is_scheduled = False
        if self._waiting:
            self._start()

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        self._next_at = loop.time() + self._every_s
        asked, self._waiting = self._waiting, []
        # The task gets its own context, so that its log lines do not carry the fields of one request.
        task = loop.create_task(self._run(asked), context=contextvars.Context())
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, asked: Sequence[tuple[Question, asyncio.Future[Answer]]]) -> None:
        wanted = [(question, future) for question, future in asked if not future.done()]
        if not wanted:
            return
        try:
            answers = await self._answer([question for question, _ in wanted])
        except Exception as error:  # noqa: BLE001 - everyone who asked gets it
            for _, future in wanted:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), answer in zip(wanted, answers, strict=True):
            if not future.done():
                future.set_result(answer)


class Batcher:
    """The batches of this process: one for each function that answers questions."""

    def __init__(self) -> None:
        self._batches: dict[Answerer[Any, Any], Batches[Any, Any]] = {}

    async def ask(
        self, database: db.Database, answer: Answerer[Question, Answer], question: Question, every_s: float = READ_S
    ) -> Answer:
        """Return the answer to one question. If the store is in this process, waiting for others would save nothing."""
        if not database.is_remote:
            return (await answer(database, [question]))[0]
        batches = self._batches.get(answer)
        if batches is None:
            batches = self._batches[answer] = Batches(lambda questions: answer(database, questions), every_s)
        result: Answer = await batches.ask(question)
        return result


def padded(items: Sequence[Question]) -> list[Question]:
    """Return the items and the last one repeated, up to one of `SIZES`."""
    size = next((size for size in SIZES if size >= len(items)), len(items))
    return [*items, *[items[-1]] * (size - len(items))]
