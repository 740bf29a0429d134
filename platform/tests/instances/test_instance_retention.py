"""Failed joins that no breaker counts any more are deleted."""

import dataclasses

import pytest
from gpuaas_contract.catalog import BREAKER_WINDOW_S_MAX
from gpuaas_platform import server
from gpuaas_platform.instances import breakers, store
from gpuaas_platform.kit import clock, db, retention
from gpuaas_platform.kit.settings import Settings
from platform_world import World

DAY_S = 86_400


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return dataclasses.replace(settings, session_ttl_s=30 * DAY_S, service_account_token_ttl_s=30 * DAY_S)


async def fail_joins(world: World, count: int) -> None:
    """Of a role of one instance, now."""
    failed_at = clock.micros(world.clock())

    async def use_case(tx: db.Tx) -> None:
        for number in range(count):
            await tx.run(
                "INSERT INTO failed_joins (instance_id, component_key, failed_at, member_id) VALUES ($1, $2, $3, $4)",
                "inst_1",
                "hand",
                failed_at,
                f"mem_{number}",
            )

    await world.site.database.write(use_case)


async def failed_joins(world: World) -> int:
    return len(await store.failed_joins(world.site.database.reader, "inst_1", "hand", clock.EPOCH))


async def test_a_failed_join_is_deleted_when_no_breaker_can_count_it(world: World) -> None:
    await fail_joins(world, 2)
    world.clock.forward(BREAKER_WINDOW_S_MAX - 1)
    await fail_joins(world, 1)
    await server.forget_old_rows(world.site)
    assert await failed_joins(world) == 3
    world.clock.forward(2)
    await server.forget_old_rows(world.site)
    assert await failed_joins(world) == 1


async def test_failed_joins_are_deleted_with_one_batch_in_each_transaction(world: World) -> None:
    await fail_joins(world, 2 * retention.BATCH + 1)
    world.clock.forward(BREAKER_WINDOW_S_MAX + 1)
    transactions = 0

    def counted(size: int, _: float) -> None:
        nonlocal transactions
        transactions += size

    world.site.database.on_group = counted
    await retention.sweep(world.site.database, world.site.settings, world.clock(), [breakers.RETAINED])
    assert (await failed_joins(world), transactions) == (0, 3)
