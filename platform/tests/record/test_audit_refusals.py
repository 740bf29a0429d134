"""Refused sign-ins reach the audit trail as counts: few rows, and nothing that an auditor needs is lost."""

import asyncio

import pytest
from gpuaas_contract import audit, identity, instances
from gpuaas_platform import server
from gpuaas_platform.call import Site
from gpuaas_platform.edge import exchange, http
from gpuaas_platform.kit import db
from gpuaas_platform.kit.refusals import ROWS_PER_CALLER
from gpuaas_platform.record import chain, refusals, trail
from platform_world import World

REQUESTS = 10_000


async def _rows(world: World) -> list[audit.AuditRow]:
    return (await world.call(audit.PLATFORM_AUDIT_LIST, query={"result": "failure"})).items


async def _refused(application: http.Application) -> int:
    """Ask for a token with a key that does not exist, without a client library, which would take most of the time."""
    endpoint, sent = identity.SERVICE_ACCOUNT_TOKEN, list[exchange.Message]()
    scope = {"type": "http", "method": "POST", "path": endpoint.path, "headers": [], "client": ("127.0.0.1", 1)}
    body = b'{"key_id": "key_x", "client_secret": "wrong"}'

    async def receive() -> exchange.Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: exchange.Message) -> None:
        sent.append(message)

    await application(scope, receive, send)
    return int(sent[0]["status"])


async def test_ten_thousand_refused_token_requests_write_a_handful_of_rows(world: World) -> None:
    application, start = http.application(world.site, server.DOMAINS), world.clock()
    for sent in range(0, REQUESTS, 100):
        if sent == REQUESTS // 2:
            world.clock.forward(60)
        assert set(await asyncio.gather(*(_refused(application) for _ in range(100)))) == {401}
        await refusals.sweep(world.site)
    await refusals.flush(world.site)
    rows = await _rows(world)
    assert [row.details["count"] for row in rows] == [REQUESTS // 2] * 2
    assert [row.details["codes"] for row in rows] == [{"credentials_invalid": REQUESTS // 2}] * 2
    assert {(row.target, row.peer, row.route) for row in rows} == {("127.0.0.1",) * 2 + ("auth.service_account_token",)}
    assert [row.details["first_at"] for row in rows] == [start.isoformat(), world.clock().isoformat()]
    assert [row.details["last_at"] for row in rows] == [start.isoformat(), world.clock().isoformat()]


async def test_the_row_names_the_account_that_was_tried_and_never_what_was_typed(world: World) -> None:
    me = await world.call(identity.ME)
    for name in ("admin", "my secret password"):
        body = identity.Login(name=name, password="a wrong password")
        assert (await world.send(identity.LOGIN, body, token="")).status_code == 401
    await refusals.flush(world.site)
    [row] = await _rows(world)
    assert row.details["accounts"] == {me.actor_id: 1, "unknown": 1}
    assert "secret" not in str(row)


async def test_attempts_that_had_to_wait_are_counted_too(world: World) -> None:
    for _ in range(8):
        await world.send(identity.LOGIN, identity.Login(name="ghost", password="a wrong password"), token="")
    await refusals.flush(world.site)
    [row] = await _rows(world)
    assert row.details["codes"] == {"credentials_invalid": 5, "too_many_attempts": 3}


async def test_counts_that_cannot_be_written_are_written_later(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(_: db.Tx, __: audit.AuditEntry) -> None:
        raise OSError("no space left on device")

    await world.send(identity.LOGIN, identity.Login(name="admin", password="a wrong password"), token="")
    world.clock.forward(60)
    with monkeypatch.context() as patch:
        patch.setattr(trail, "append", broken)
        with pytest.raises(OSError, match="no space"):
            await refusals.sweep(world.site)
    await world.send(identity.LOGIN, identity.Login(name="admin", password="a wrong password"), token="")
    await refusals.sweep(world.site)
    await refusals.flush(world.site)
    assert [row.details["count"] for row in await _rows(world)] == [1, 1]


async def test_nothing_is_written_without_a_refusal(site: Site) -> None:
    await refusals.sweep(site)
    await refusals.flush(site)
    assert await trail.tip(site.database.reader, chain.PLATFORM) == (0, chain.GENESIS)


async def test_a_signed_in_caller_cannot_fill_the_trail_of_an_organisation_with_refusals(world: World) -> None:
    stranger, member = await world.person("stranger"), await world.person("vi", "viewer", world.project_id)
    org_id, more = (await world.call(identity.ORG_LIST)).items[0].org_id, 40
    for person, status in ((stranger, 404), (member, 403)):
        for _ in range(ROWS_PER_CALLER + more):
            answer = await world.send(instances.INSTANCE_CREATE, {}, token=person.token)
            assert answer.status_code == status
    query = {"action": "authz.deny", "page_size": 500}
    denied = (await world.call(audit.ORG_AUDIT_LIST, org_id=org_id, query=query)).items
    assert len(denied) == 2 * ROWS_PER_CALLER
    await refusals.flush(world.site)
    rows = (await world.call(audit.PLATFORM_AUDIT_LIST, query=query)).items
    [counted] = [row for row in rows if row.chain == "platform"]
    assert (counted.action, counted.chain, counted.details["count"]) == ("authz.deny", "platform", 2 * more)
    assert counted.details["accounts"] == {stranger.user_id: more, member.user_id: more}
    world.clock.forward(60)
    await world.send(instances.INSTANCE_CREATE, {}, token=stranger.token)
    denied = (await world.call(audit.ORG_AUDIT_LIST, org_id=org_id, query=query)).items
    assert len(denied) == 2 * ROWS_PER_CALLER + 1
