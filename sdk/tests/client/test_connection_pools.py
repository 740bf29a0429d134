"""How the client spreads its requests over connections."""

import asyncio
from contextlib import AsyncExitStack

import httpx
import pytest
from gpuaas_sdk.client.pools import AT_ONCE, Pools


class Factory:
    """Opens pools, and remembers them."""

    def __init__(self) -> None:
        self.pools: list[httpx.AsyncClient] = []

    def __call__(self, limits: httpx.Limits) -> httpx.AsyncClient:
        pool = httpx.AsyncClient(limits=limits, trust_env=False)
        self.pools.append(pool)
        return pool


async def lend(pools: Pools, stack: AsyncExitStack, count: int) -> list[httpx.AsyncClient]:
    return [await stack.enter_async_context(pools.lend()) for _ in range(count)]


async def test_requests_one_after_the_other_use_one_pool() -> None:
    factory = Factory()
    pools = Pools(factory)
    for _ in range(3 * AT_ONCE):
        async with pools.lend():
            pass
    assert len(factory.pools) == 1
    await pools.aclose()


async def test_no_pool_has_more_requests_than_it_should_and_none_waits() -> None:
    factory = Factory()
    pools = Pools(factory)
    async with AsyncExitStack() as stack:
        lent = await lend(pools, stack, 3 * AT_ONCE + 1)
    assert [lent.count(pool) for pool in factory.pools] == [AT_ONCE, AT_ONCE, AT_ONCE, 1]
    await pools.aclose()


async def test_a_pool_that_has_room_again_is_used_before_a_new_one_opens() -> None:
    factory = Factory()
    pools = Pools(factory)
    async with AsyncExitStack() as stack:
        await lend(pools, stack, AT_ONCE)
    async with AsyncExitStack() as stack:
        await lend(pools, stack, AT_ONCE)
    assert len(factory.pools) == 1
    await pools.aclose()


async def test_a_request_that_is_cancelled_gives_its_place_back() -> None:
    factory = Factory()
    pools = Pools(factory)

    async def wait() -> None:
        async with pools.lend():
            await asyncio.Event().wait()

    for _ in range(2 * AT_ONCE):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wait(), 0)
    waiting = [asyncio.create_task(wait()) for _ in range(AT_ONCE)]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    async with pools.lend() as pool:
        assert pool is factory.pools[0]
    assert len(factory.pools) == 1
    await pools.aclose()


async def test_all_pools_are_closed() -> None:
    factory = Factory()
    pools = Pools(factory)
    async with AsyncExitStack() as stack:
        await lend(pools, stack, AT_ONCE + 1)
    await pools.aclose()
    assert [pool.is_closed for pool in factory.pools] == [True, True]
