"""Rate limits, entity tags and repeated requests at the HTTP edge."""

import asyncio
import dataclasses
import math
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from gpuaas_contract import audit, catalog, errors, identity, instances, operations, policy
from gpuaas_platform import server
from gpuaas_platform.call import Site
from gpuaas_platform.edge import authorise, etag, http
from gpuaas_platform.kit import retention
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.record import refusals
from platform_world import PASSWORD, FakeClock, World


class Seconds:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_caller_may_send_a_burst_and_then_a_steady_rate() -> None:
    seconds = Seconds()
    limiter = authorise.Limiter(10, 5, seconds)
    assert [limiter.take("a") for _ in range(5)] == [0.0] * 5
    assert limiter.take("a") == pytest.approx(0.1)
    assert limiter.take("b") == 0.0
    seconds.now += 0.1
    assert limiter.take("a") == 0.0
    assert limiter.take("a") > 0
    seconds.now += 60
    assert [limiter.take("a") for _ in range(5)] == [0.0] * 5


def test_a_refused_request_costs_nothing() -> None:
    seconds = Seconds()
    limiter = authorise.Limiter(10, 1, seconds)
    limiter.take("a")
    waits = {round(limiter.take("a"), 6) for _ in range(100)}
    assert waits == {0.1}


def test_no_rate_is_no_limit() -> None:
    limiter = authorise.Limiter(0, 0)
    assert not any(limiter.take("a") for _ in range(10_000))


def test_memory_is_bounded_and_a_greedy_caller_stays_limited() -> None:
    seconds = Seconds()
    limiter = authorise.Limiter(1, 100, seconds)
    for _ in range(100):
        limiter.take("greedy")
    for number in range(3 * authorise.CALLERS_MAX):
        limiter.take(f"stranger-{number}")
    assert limiter.callers() <= authorise.CALLERS_MAX
    assert limiter.take("greedy") > 0


@pytest.fixture
async def strict(settings: Settings, clock: FakeClock) -> AsyncIterator[World]:
    """A platform that allows each caller 40 requests at once and one more per hour."""
    settings = dataclasses.replace(settings, rate_limit_per_s=1 / 3600, rate_limit_burst=40)
    async with server.open_site(settings, clock) as site:
        transport = httpx.ASGITransport(app=http.application(site, server.DOMAINS))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            yield await World.make(site, clock, client)


async def test_one_greedy_caller_is_refused_and_no_other(strict: World) -> None:
    other = await strict.service_account("robot")
    answers = [await strict.send(identity.ME) for _ in range(50)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(refused) >= 10
    problem = refused[-1].json()
    assert (problem["code"], problem["retryable"]) == ("rate_limited", True)
    assert int(refused[-1].headers["retry-after"]) == math.ceil(problem["details"]["retry_after_s"]) > 1
    assert (await strict.send(identity.ME, token=other)).status_code == 200
    assert (await strict.http.get("/readyz")).status_code == 200
    assert "gpuaas_rate_limited_total" in (await strict.http.get("/metrics")).text


async def test_callers_without_a_valid_token_are_limited_by_address(strict: World) -> None:
    answers = [await strict.send(identity.ME, token="no-such-token") for _ in range(50)]
    assert {answer.status_code for answer in answers} == {401, 429}
    assert (await strict.send(identity.ME)).status_code == 200


async def test_nodes_have_a_limit_of_their_own(strict: World) -> None:
    node = await strict.node("n1")
    path, headers = "/node/v1/tasks", {"Authorization": f"Bearer {node.token}"}
    statuses = [(await strict.http.get(path, headers=headers)).status_code for _ in range(80)]
    assert set(statuses) == {200}


async def test_a_resource_with_a_revision_has_a_tag_and_is_not_sent_twice(world: World) -> None:
    await world.entitled_app()
    deployed = await world.deploy()
    asked: list[tuple[Any, dict[str, Any]]] = [
        (instances.INSTANCE_GET, {"instance_id": deployed.instance.instance_id}),
        (operations.OPERATION_GET, {"operation_id": deployed.operation.operation_id}),
    ]
    for endpoint, params in asked:
        first = await world.send(endpoint, **params)
        tag = first.headers["etag"]
        assert tag == f'"{first.json()["revision"]}"'
        for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
            again = await world.send(endpoint, headers={"If-None-Match": known}, **params)
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        assert (await world.send(endpoint, headers={"If-None-Match": '"other"'}, **params)).status_code == 200


async def test_a_guarded_change_needs_what_was_read_and_only_changes_that(world: World) -> None:
    body = policy.Overlay(instances_max=3)
    tag = (await world.send(policy.PROJECT_GET)).headers["etag"]
    missing = await world.send(policy.PROJECT_SET, body, headers={"If-Match": ""})
    assert (missing.status_code, missing.json()["code"]) == (428, "precondition_required")
    assert (await world.send(policy.PROJECT_SET, body, headers={"If-Match": tag})).status_code == 200
    stale = await world.send(policy.PROJECT_SET, body, headers={"If-Match": tag})
    assert (stale.status_code, stale.json()["code"]) == (412, "precondition_failed")
    assert stale.json()["details"]["etag"] == (await world.send(policy.PROJECT_GET)).headers["etag"] != tag


async def test_of_two_changes_of_the_same_revision_one_succeeds(world: World) -> None:
    tag = (await world.send(policy.PROJECT_GET)).headers["etag"]
    changes = [
        world.send(policy.PROJECT_SET, policy.Overlay(instances_max=number), headers={"If-Match": tag})
        for number in range(20)
    ]
    statuses = sorted(answer.status_code for answer in await asyncio.gather(*changes))
    assert statuses == [200] + [412] * 19


@pytest.mark.parametrize(
    ("if_match", "if_none_match", "present"),
    [('"1"', "", '"1"'), ('"0", W/"1"', "", '"1"'), ("*", "", '"1"'), ("", "*", None)],
)
def test_a_tag_that_meets_the_condition_of_the_header_passes(
    if_match: str, if_none_match: str, present: str | None
) -> None:
    etag.check(if_match, if_none_match, present)


@pytest.mark.parametrize(
    ("if_match", "if_none_match", "present"),
    [('"2"', "", '"1"'), ("*", "", None), ("", "*", '"1"'), ("", '"1"', '"1"')],
)
def test_a_tag_that_does_not_meet_the_condition_of_the_header_is_refused(
    if_match: str, if_none_match: str, present: str | None
) -> None:
    with pytest.raises(errors.PreconditionFailed):
        etag.check(if_match, if_none_match, present)


async def test_two_hundred_identical_requests_make_one_thing(world: World) -> None:
    sent = [world.send(identity.ORG_CREATE, {"name": "race"}, key="k1") for _ in range(200)]
    answers = await asyncio.gather(*sent)
    assert len({answer.content for answer in answers if answer.status_code == 201}) == 1
    assert {answer.json()["code"] for answer in answers if answer.status_code != 201} <= {"request_in_flight"}
    row = await world.site.database.reader.one("SELECT count(*) FROM orgs WHERE name = 'race'")
    assert row is not None
    assert row[0] == 1
    metrics = (await world.http.get("/metrics")).text
    replays = sum(answer.status_code == 201 for answer in answers) - 1
    assert f"gpuaas_idempotency_replays_total {replays}.0" in metrics


async def test_a_dry_run_of_a_sign_in_gives_a_token_that_opens_nothing(world: World) -> None:
    body = identity.Login(name="admin", password=PASSWORD)
    answer = await world.send(identity.LOGIN, body, query={"dry_run": "true"})
    assert answer.status_code == 200
    assert (await world.send(identity.ME, token=answer.json()["access_token"])).status_code == 401


async def test_a_sign_in_that_is_refused_is_on_the_record_even_if_it_was_a_dry_run(world: World) -> None:
    body = identity.Login(name="admin", password="a wrong password")
    assert (await world.send(identity.LOGIN, body, query={"dry_run": "true"})).status_code == 401
    key = identity.ServiceAccountLogin(key_id="key_x", client_secret="wrong")
    assert (await world.send(identity.SERVICE_ACCOUNT_TOKEN, key, query={"dry_run": "true"})).status_code == 401
    await refusals.flush(world.site)
    rows = (await world.call(audit.PLATFORM_AUDIT_LIST, query={"result": "failure"})).items
    assert [(row.action, row.route) for row in rows] == [
        ("auth.login", "auth.login"),
        ("auth.login", "auth.service_account_token"),
    ]


async def test_old_answers_and_tokens_are_deleted_in_batches(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    for number in range(5):
        await world.send(identity.ORG_CREATE, {"name": f"old-{number}"}, key=f"k{number}")
    world.clock.forward(world.site.settings.idempotency_kept_s - 60)
    await server.forget_old_rows(world.site)
    assert await _kept(world.site, "idempotency") >= 5
    world.token = await world.sign_in("admin")
    await world.send(identity.ORG_CREATE, {"name": "new"}, key="k-new")
    world.clock.forward(120)
    await server.forget_old_rows(world.site)
    assert await _kept(world.site, "idempotency") == 1
    assert await _kept(world.site, "tokens") == 1
    assert (await world.send(identity.ORG_CREATE, {"name": "old-1"}, key="k1")).json()["code"] == "conflict"


async def _kept(site: Site, table: str) -> int:
    row = await site.database.reader.one(f"SELECT count(*) FROM {table}")
    assert row is not None
    return int(row[0])


async def test_a_list_is_passed_on_as_it_is_stored(world: World) -> None:
    await world.entitled_app()
    listed = (await world.send(catalog.VERSION_LIST)).json()["items"]
    stored = await world.site.database.reader.all("SELECT document FROM app_versions")
    assert len(listed) == len(stored) == 1
    assert (await world.call(catalog.VERSION_LIST)).items[0].manifest.slug == listed[0]["app_slug"]
