"""The address of a caller behind a proxy, who may read metrics, and that no response is stored by a cache."""

import dataclasses
from collections.abc import AsyncIterator

import httpx
import pytest
from gpuaas_contract import audit, identity
from gpuaas_platform import server
from gpuaas_platform.call import Site
from gpuaas_platform.edge import http
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.record import refusals
from platform_world import FakeClock, World

PROXY, STRANGER = "10.0.0.1", "203.0.113.9"


def _client(site: Site, address: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=http.application(site, server.DOMAINS), client=(address, 1))
    return httpx.AsyncClient(transport=transport, base_url="http://test")


@pytest.fixture
async def proxied(settings: Settings, clock: FakeClock) -> AsyncIterator[World]:
    """A platform behind a proxy that allows each caller 40 requests at once and one more per hour."""
    settings = dataclasses.replace(settings, rate_limit_per_s=1 / 3600, rate_limit_burst=40)
    settings = dataclasses.replace(settings, trusted_proxies=("10.0.0.0/24",))
    async with server.open_site(settings, clock) as site, _client(site, PROXY) as client:
        yield await World.make(site, clock, client)


async def _refused(world: World, client: httpx.AsyncClient, forwarded: str) -> str:
    """Send a sign-in that is refused. Return the address in its audit row."""
    body, headers = {"name": "ghost", "password": "wrong"}, {"X-Forwarded-For": forwarded} if forwarded else {}
    answer = await client.post(identity.LOGIN.path, json=body, headers=headers)
    assert answer.status_code == 401
    await refusals.flush(world.site)
    query = {"result": "failure", "page_size": 500}
    return (await world.call(audit.PLATFORM_AUDIT_LIST, query=query)).items[-1].peer


async def test_a_trusted_proxy_states_the_address_of_the_caller(proxied: World) -> None:
    assert await _refused(proxied, proxied.http, "1.1.1.1, 192.0.2.7") == "192.0.2.7"
    assert await _refused(proxied, proxied.http, "") == PROXY


async def test_another_client_cannot_state_an_address(proxied: World) -> None:
    async with _client(proxied.site, STRANGER) as stranger:
        assert await _refused(proxied, stranger, "192.0.2.7") == STRANGER


async def test_callers_behind_the_proxy_are_limited_one_by_one(proxied: World) -> None:
    body = {"name": "ghost", "password": "wrong"}
    statuses = []
    for address in ["192.0.2.1"] * 50 + ["192.0.2.2"]:
        answer = await proxied.http.post(identity.LOGIN.path, json=body, headers={"X-Forwarded-For": address})
        statuses.append((answer.status_code, answer.json()["code"]))
    assert (429, "rate_limited") in statuses[:50]
    assert statuses[50] == (401, "credentials_invalid")


async def test_metrics_are_for_this_machine_and_for_operators(world: World) -> None:
    operator = await world.person("operator", "platform_ops", "platform")
    person = await world.person("person")
    assert (await world.http.get("/metrics")).status_code == 200
    async with _client(world.site, STRANGER) as stranger:
        cases = {"": 401, "none": 401, person.token: 404, operator.token: 200, world.token: 200}
        for token, status in cases.items():
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            answer = await stranger.get("/metrics", headers=headers)
            assert answer.status_code == status
            assert ("gpuaas_http_requests_in_flight" in answer.text) == (status == 200)
        assert (await stranger.get("/livez")).status_code == 200


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded"])
async def test_a_request_through_a_proxy_on_this_machine_does_not_come_from_this_machine(
    world: World, header: str
) -> None:
    assert (await world.http.get("/metrics", headers={header: "192.0.2.1"})).status_code == 401


async def test_metrics_can_be_opened_to_anyone(settings: Settings, clock: FakeClock) -> None:
    settings = dataclasses.replace(settings, metrics_open=True)
    async with server.open_site(settings, clock) as site, _client(site, STRANGER) as stranger:
        assert (await stranger.get("/metrics")).status_code == 200


async def test_no_response_is_stored_by_a_cache(world: World) -> None:
    answers = [
        await world.send(identity.ME),
        await world.send(identity.ME, token="none"),
        await world.send(identity.ORG_CREATE, {"name": "one"}),
        await world.send(identity.ORG_CREATE, {}),
        await world.http.get("/api/v1/openapi.json"),
        await world.http.get("/nowhere"),
        await world.http.get("/metrics"),
        await world.http.get("/livez"),
    ]
    assert [answer.headers.get_list("cache-control") for answer in answers] == [["no-store"]] * len(answers)
