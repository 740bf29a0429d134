"""The log of an operation: sent under the lease, bounded, paged, deleted after its time."""

from typing import Any

import pytest
from gpuaas_contract import errors, operations, runtime
from gpuaas_platform import server
from gpuaas_platform.kit import retention
from gpuaas_platform.operations import log
from platform_world import World
from scripted_controller import Cluster, Held


def line(number: int, level: str = "info", **fields: Any) -> dict[str, Any]:
    moment = f"2030-01-01T00:00:{number % 60:02d}Z"
    return {"number": number, "logged_at": moment, "level": level, "event": f"e{number}", "fields": fields}


async def beat(held: Held, *lines: dict[str, Any]) -> operations.Receipt:
    return await held.send(runtime.HEARTBEAT, {"log": list(lines)})


async def page(held: Held, **query: Any) -> Any:
    return await held.world.call(operations.OPERATION_LOG, query=query, operation_id=held.operation_id)


async def numbers(held: Held) -> list[str]:
    return [stored.event for stored in (await page(held)).items]


@pytest.fixture
async def held(world: World) -> Held:
    cluster = await Cluster.running(world)
    await cluster.add(*await cluster.machines(1))
    return await cluster.controller.take()


async def test_lines_come_with_heartbeats_and_with_the_end_and_repeats_are_stored_once(held: Held) -> None:
    before = await beat(held, line(1, text="one"), line(2))
    assert (await beat(held, line(1), line(2), line(3, "warning"))).revision == before.revision
    failure = {"code": "app_failed", "message": "it broke", "failure_class": "repairable"}
    await held.send(runtime.FAIL, {**failure, "log": [line(3), line(4, "error")]})
    await held.send(runtime.FAIL, {**failure, "log": [line(4, "error"), line(5)]})
    stored = (await page(held)).items
    assert [(kept.position, kept.event, kept.level) for kept in stored] == [
        (1, "e1", "info"),
        (2, "e2", "info"),
        (3, "e3", "warning"),
        (4, "e4", "error"),
    ]
    assert (stored[0].fields, stored[0].epoch) == ({"text": "one"}, held.claim.epoch)


async def test_a_completed_operation_has_its_last_lines(held: Held) -> None:
    await held.bring(held.member_ids)
    await held.complete(log=[line(1)])
    assert await numbers(held) == ["e1"]


async def test_a_refused_end_stores_no_lines_and_they_can_be_sent_again(held: Held) -> None:
    with pytest.raises(errors.Conflict):
        await held.complete(log=[line(1)])
    await beat(held, line(1))
    assert await numbers(held) == ["e1"]


async def test_lines_of_a_holder_that_lost_its_lease_are_refused(held: Held) -> None:
    stale = {"epoch": held.claim.epoch - 1, "log": [line(1)]}
    with pytest.raises(errors.LeaseLost):
        await held.send(runtime.HEARTBEAT, stale)
    assert await numbers(held) == []


async def test_pages_follow_each_other(held: Held) -> None:
    await beat(held, *(line(number) for number in range(1, 8)))
    events: list[str] = []
    token: str | None = ""
    while token is not None:
        part = await page(held, page_size=3, **({"page_token": token} if token else {}))
        events += [stored.event for stored in part.items]
        token = part.next_page_token
    assert events == [f"e{number}" for number in range(1, 8)]


async def test_control_characters_and_values_over_their_bounds_are_refused(held: Held) -> None:
    refused = [
        [line(1, text="\x1b[2J")],
        [line(1, text="x" * runtime.LOG_LINE_BYTES_MAX)],
        [line(number) for number in range(1, runtime.LOG_BATCH_MAX + 2)],
        [line(1, "debug")],
        [{**line(1), "event": "e" * 201}],
    ]
    for lines in refused:
        with pytest.raises(errors.ApiError) as refusal:
            await beat(held, *lines)
        assert refusal.value.status in (400, 413, 422)
    assert await numbers(held) == []


async def test_people_who_may_read_the_operation_may_read_its_log_and_others_do_not_find_it(held: Held) -> None:
    world = held.world
    await beat(held, line(1))
    viewer = await world.person("viewer", "viewer", world.project_id)
    where = {"operation_id": held.operation_id}
    assert len((await world.call(operations.OPERATION_LOG, token=viewer.token, **where)).items) == 1
    stranger = await world.person("stranger")
    with pytest.raises(errors.ApiError) as refusal:
        await world.call(operations.OPERATION_LOG, token=stranger.token, **where)
    assert refusal.value.status in (403, 404)


async def test_old_lines_are_deleted_and_younger_ones_stay(held: Held) -> None:
    world, site = held.world, held.world.site
    await beat(held, line(1), line(2))
    world.clock.forward(site.settings.operation_log_kept_s - 5)
    assert set(log.RETAINED) <= set(server.RETAINED)
    await retention.sweep(site.database, site.settings, site.clock(), log.RETAINED)
    assert len(await log.newest(site.database.reader, [held.operation_id], 9)) == 2
    world.clock.forward(10)
    await retention.sweep(site.database, site.settings, site.clock(), log.RETAINED)
    assert await log.newest(site.database.reader, [held.operation_id], 9) == []
    assert await site.database.reader.one("SELECT 1 FROM operation_logs") is None
