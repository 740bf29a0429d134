"""Questions that are answered together: how many statements they cost, and that no answer is too old."""

import asyncio
from collections.abc import Sequence

import pytest
from gpuaas_platform.call import Site
from gpuaas_platform.kit import batches, db


async def test_questions_that_arrive_while_many_do_are_answered_together() -> None:
    asked: list[list[int]] = []

    async def double(numbers: Sequence[int]) -> list[int]:
        asked.append(list(numbers))
        return [2 * number for number in numbers]

    together = batches.Batches(double, every_s=0.02)
    answers = await asyncio.gather(*(together.ask(number) for number in range(100)))
    assert answers == [2 * number for number in range(100)]
    assert asked == [list(range(100))]


async def test_no_batch_has_more_questions_than_a_statement_takes() -> None:
    sizes: list[int] = []

    async def answer(numbers: Sequence[int]) -> Sequence[int]:
        sizes.append(len(numbers))
        return numbers

    together = batches.Batches(answer, every_s=0.02)
    await asyncio.gather(*(together.ask(number) for number in range(3 * batches.BATCH_MAX)))
    assert max(sizes) <= batches.BATCH_MAX


async def test_a_question_is_not_answered_by_a_batch_that_started_before_it() -> None:
    truth, is_reading, may_answer = ["old"], asyncio.Event(), asyncio.Event()

    async def read(questions: Sequence[None]) -> list[str]:
        present = truth[0]
        is_reading.set()
        await may_answer.wait()
        return [present for _ in questions]

    together = batches.Batches(read, every_s=0.0)
    first = asyncio.ensure_future(together.ask(None))
    await is_reading.wait()
    truth[0] = "new"
    second = asyncio.ensure_future(together.ask(None))
    may_answer.set()
    assert [await first, await second] == ["old", "new"]


async def test_everyone_who_asked_gets_the_error_and_the_next_question_is_answered() -> None:
    errors = [db.Unavailable("gone")]

    async def answer(numbers: Sequence[int]) -> Sequence[int]:
        if errors:
            raise errors.pop()
        return numbers

    together = batches.Batches(answer, every_s=0.0)
    results = await asyncio.gather(together.ask(1), together.ask(2), return_exceptions=True)
    assert [str(result) for result in results] == ["gone", "gone"]
    assert await together.ask(3) == 3


async def test_a_caller_that_stops_waiting_does_not_disturb_the_others() -> None:
    async def answer(numbers: Sequence[int]) -> Sequence[int]:
        return numbers

    together = batches.Batches(answer, every_s=0.0)
    gone, stays = asyncio.ensure_future(together.ask(1)), asyncio.ensure_future(together.ask(2))
    await asyncio.sleep(0)
    gone.cancel()
    assert await stays == 2


async def test_both_stores_answer_through_the_batcher_of_the_process(site: Site) -> None:
    async def lengths(database: db.Database, words: Sequence[str]) -> list[int]:
        assert database is site.database
        return [len(word) for word in words]

    answers = await asyncio.gather(*(site.batches.ask(site.database, lengths, word) for word in ("a", "bb", "ccc")))
    assert answers == [1, 2, 3]


@pytest.mark.parametrize(("count", "size"), [(1, 1), (2, 4), (64, 64), (65, 256), (256, 256)])
def test_few_sizes_of_statements_are_used(count: int, size: int) -> None:
    made = batches.padded(list(range(count)))
    assert (len(made), made[:count], set(made[count:])) == (
        size,
        list(range(count)),
        {count - 1} if size > count else set(),
    )
