"""Wrong passwords slow the guesser down, and never exclude the person who owns the account."""

import contextlib
from collections.abc import AsyncIterator

import httpx
import pytest
from gpuaas_contract import errors, identity, users
from gpuaas_platform import server
from gpuaas_platform.edge import http
from gpuaas_platform.identity.users import store
from platform_world import PASSWORD, World

WRONG = "a wrong password"


@contextlib.asynccontextmanager
async def _from(world: World, address: str) -> AsyncIterator[World]:
    """The same platform, called from another address."""
    transport = httpx.ASGITransport(app=http.application(world.site, server.DOMAINS), client=(address, 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield World(world.site, world.clock, client, world.token, world.project_id)


async def _guess(world: World, name: str = "ada", times: int = 1) -> list[int]:
    body = identity.Login(name=name, password=WRONG)
    return [(await world.send(identity.LOGIN, body)).status_code for _ in range(times)]


async def test_five_failures_slow_down_this_name_from_this_network_only(world: World) -> None:
    await world.call(users.USER_CREATE, users.CreateUser(name="ada", password=PASSWORD))
    assert await _guess(world, times=6) == [401] * 5 + [429]
    answer = await world.send(identity.LOGIN, {"name": "ada", "password": PASSWORD})
    assert (answer.status_code, answer.json()["code"], answer.headers["retry-after"]) == (
        429,
        "too_many_attempts",
        "60",
    )
    assert await world.sign_in("admin")
    async with _from(world, "192.0.2.1") as elsewhere:
        assert await elsewhere.sign_in("ada")
    world.clock.forward(60)
    assert await world.sign_in("ada")


async def test_addresses_of_one_ipv6_network_are_one_guesser(world: World) -> None:
    for number in range(6):
        async with _from(world, f"2001:db8::{number}") as guesser:
            assert await _guess(guesser) == [401 if number < 5 else 429]
    async with _from(world, "2001:db8:0:1::1") as other:
        assert await _guess(other) == [401]


async def test_guesses_from_everywhere_do_not_slow_a_network_where_the_person_signed_in(world: World) -> None:
    await world.person("ada")
    for number in range(40):
        async with _from(world, f"198.51.100.{number}") as guesser:
            await _guess(guesser, times=5)
    assert await world.sign_in("ada")
    async with _from(world, "192.0.2.1") as unknown:
        with pytest.raises(errors.TooManyAttempts) as refused:
            await unknown.sign_in("ada")
        assert refused.value.details["retry_after_s"] <= 60
        world.clock.forward(60)
        assert await unknown.sign_in("ada")
        assert await _guess(unknown, times=6) == [401] * 5 + [429]


async def test_a_network_with_many_failures_is_slowed_except_for_people_who_signed_in_there(world: World) -> None:
    await world.person("ada")
    for number in range(25):
        await _guess(world, f"name-{number}")
    assert await _guess(world, "name-30") == [429]
    assert await world.sign_in("ada")


async def test_the_networks_of_a_person_are_stored_as_digests_and_only_a_few(world: World) -> None:
    ada = await world.person("ada")
    for number in range(store.NETWORKS_MAX + 3):
        world.clock.forward(1)
        async with _from(world, f"198.51.100.{number}") as place:
            await place.sign_in("ada")
    rows = await world.site.database.reader.all("SELECT * FROM user_networks WHERE user_id = $1", ada.user_id)
    assert len(rows) == store.NETWORKS_MAX
    assert not any("198.51" in str(column) for row in rows for column in (row[0], row[1], row[2]))


async def test_a_success_resets_the_failures_of_this_name_and_network(world: World) -> None:
    await world.person("ada")
    for _ in range(3):
        assert await _guess(world, times=4) == [401] * 4
        assert await world.sign_in("ada")
