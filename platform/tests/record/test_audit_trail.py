"""The audit trail over HTTP: no change without its row, who may read which rows, and finding them again."""

import asyncio
import datetime
import random
import re
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from gpuaas_contract import audit, errors, identity
from gpuaas_contract.wire import Order
from gpuaas_platform import server
from gpuaas_platform.call import Site, system_origin
from gpuaas_platform.kit import db, tables
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.record import chain, service, trail
from platform_world import World

MUTATIONS = 1_000


async def test_a_change_whose_row_cannot_be_written_does_not_happen(world: World) -> None:
    await _execute(world.site, "ALTER TABLE audit RENAME TO audit_away")
    answer = await world.send(identity.ORG_CREATE, {"name": "unseen"}, key="k1")
    await _execute(world.site, "ALTER TABLE audit_away RENAME TO audit")
    assert answer.status_code >= 500
    assert "unseen" not in await _orgs(world)
    assert (await world.send(identity.ORG_CREATE, {"name": "unseen"}, key="k1")).status_code == 201
    assert "unseen" in await _orgs(world)


async def test_a_denial_that_cannot_be_written_stays_a_refusal(world: World) -> None:
    token = await world.service_account("robot")
    await _execute(world.site, "ALTER TABLE audit RENAME TO audit_away")
    answer = await world.send(identity.SERVICE_ACCOUNT_CREATE, {"name": "another"}, token=token)
    await _execute(world.site, "ALTER TABLE audit_away RENAME TO audit")
    assert answer.status_code >= 400


async def test_with_a_trail_that_fails_at_random_there_is_no_change_without_a_row_and_no_row_without_a_change(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice, append = random.Random(4711), trail.append

    async def sometimes(tx: db.Tx, entry: audit.AuditEntry) -> None:
        if dice.random() < 0.3:
            await tx.run("INSERT INTO audit (chain) VALUES ('half')")
        await append(tx, entry)
        if dice.random() < 0.1:
            raise OSError("no space left on device")

    monkeypatch.setattr(trail, "append", sometimes)
    answers = []
    with structlog.testing.capture_logs():
        for start in range(0, MUTATIONS, 50):
            names = [f"o{number}" for number in range(start, start + 50)]
            answers += await asyncio.gather(*(world.send(identity.ORG_CREATE, {"name": name}) for name in names))
    monkeypatch.undo()
    made = {answer.json()["org_id"] for answer in answers if answer.status_code == 201}
    kept = await world.site.database.reader.all("SELECT org_id FROM orgs WHERE name <> 'acme'")
    rows = await world.site.database.reader.all("SELECT target FROM audit WHERE action = 'identity.org.create'")
    assert 0 < len(made) < MUTATIONS
    assert {row[0] for row in kept} == made
    assert sorted(row[0] for row in rows)[1:] == sorted(made)
    assert await _walk(world.site, chain.PLATFORM) is None


async def test_a_row_shows_the_actor_the_address_the_route_and_the_target(world: World) -> None:
    headers = {"X-Correlation-ID": "ticket-1"}
    answer = await world.send(identity.SERVICE_ACCOUNT_CREATE, {"name": "robot"}, headers=headers)
    (row,) = (await world.call(audit.AUDIT_LIST, query={"correlation_id": "ticket-1"})).items
    assert (row.actor_type, row.actor_name, row.result) == ("user", "admin", "success")
    assert (row.action, row.route, row.peer) == (
        answer_name := "identity.service_account.create",
        answer_name,
        "127.0.0.1",
    )
    assert row.target == answer.json()["service_account_id"]
    assert (row.chain, row.hash) == (
        row.org_id,
        await trail.hash_at(world.site.database.reader, row.chain, row.position),
    )


async def test_secrets_and_bodies_never_reach_the_trail(world: World) -> None:
    token = await world.service_account("robot")
    await world.send(identity.LOGIN, {"name": "admin", "password": "not the password"})
    kept = await world.site.database.reader.all("SELECT document FROM audit")
    text = "".join(row[0] for row in kept)
    assert not any(secret in text for secret in (token, world.token, "not the password", "gpuaas_sak_"))


async def test_control_characters_of_a_name_do_not_reach_the_trail(site: Site) -> None:
    async def use_case(tx: db.Tx) -> None:
        await service.audit(tx, system_origin(site.clock()), "auth.login", "ad\x00min\x1b[31m\n" + "x" * 500)

    await site.database.write(use_case)
    (row,) = (await trail.search(site.database.reader, {}, audit.AuditQuery())).items
    assert row.target.startswith("ad\ufffdmin\ufffd[31m\ufffdxxx")
    assert len(row.target) == 300


async def test_an_organisations_trail_has_its_own_rows_and_those_of_its_projects_only(world: World) -> None:
    other = await world.call(identity.ORG_CREATE, {"name": "other"})
    await world.call(identity.PROJECT_CREATE, {"name": "theirs"}, org_id=other.org_id)
    rows = (await world.call(audit.ORG_AUDIT_LIST, org_id=other.org_id)).items
    assert [(row.action, row.position) for row in rows] == [("identity.org.created", 1), ("identity.project.create", 2)]
    everything = (await world.call(audit.PLATFORM_AUDIT_LIST)).items
    assert {row.chain for row in everything} == {chain.PLATFORM, other.org_id, await _org_id(world)}
    with pytest.raises(errors.NotFound):
        await world.call(audit.ORG_AUDIT_LIST, org_id="org_absent")


async def test_a_service_account_reads_no_trail(world: World) -> None:
    token = await world.service_account("robot")
    org_id = await _org_id(world)
    for endpoint in (audit.AUDIT_LIST, audit.ORG_AUDIT_LIST, audit.PLATFORM_AUDIT_LIST):
        assert (await world.send(endpoint, token=token, org_id=org_id)).status_code in (403, 404)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"correlation_id": "cor_3"}, {3}),
        ({"actor_id": "user_1"}, {1, 4, 7, 10}),
        ({"action": "act_0"}, {0, 2, 4, 6, 8, 10}),
        ({"target": "target_5"}, {5}),
        ({"result": "failure"}, {0, 5, 10}),
        ({"action": "act_0", "result": "failure"}, {0, 10}),
        ({"since": 4, "until": 6}, {4, 5, 6}),
        ({"since": 9}, {9, 10, 11}),
        ({"until": 1, "actor_id": "user_1"}, {1}),
        ({"since": 50}, set()),
        ({"actor_id": "nobody"}, set()),
    ],
)
@pytest.mark.parametrize("order", ["oldest", "newest"])
async def test_a_search_returns_each_matching_row_once_over_all_its_pages_in_its_order(
    site: Site, filters: dict[str, Any], expected: set[int], order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trail, "LOOK_MAX", 4)
    await _numbered(site, 12)
    moments = {name: _moment(value) for name, value in filters.items() if name in ("since", "until")}
    numbers: list[int] = []
    token: str | None = ""
    while token is not None:
        query = audit.AuditQuery(**{**filters, **moments, "order": order, "page_size": 2, "page_token": token})
        page = await trail.search(site.database.reader, {"project_id": "proj_a"}, query)
        numbers += [row.details["number"] for row in page.items]
        assert page.next_page_token != token
        token = page.next_page_token
    assert numbers == sorted(expected, reverse=order == "newest")


async def test_the_newest_rows_are_on_the_first_page_and_a_cursor_ends_the_list(site: Site) -> None:
    await _numbered(site, 6)
    query = audit.AuditQuery(order="newest", page_size=3)
    page = await trail.search(site.database.reader, {}, query)
    assert [row.details["number"] for row in page.items] == [5, 5, 4]
    rows = await trail.search(site.database.reader, {}, audit.AuditQuery(order="newest", after=page.items[-1].cursor))
    assert [row.details["number"] for row in rows.items] == [5, 5]


async def test_a_page_token_of_one_order_is_refused_by_the_other(site: Site) -> None:
    await _numbered(site, 6)
    page = await trail.search(site.database.reader, {}, audit.AuditQuery(page_size=3))
    query = audit.AuditQuery(order="newest", page_token=page.next_page_token or "")
    with pytest.raises(tables.PageTokenInvalid):
        await trail.search(site.database.reader, {}, query)


async def test_a_clock_set_back_hides_no_row_from_a_search_by_time(site: Site) -> None:
    await _numbered(site, 6)
    await _numbered(site, 6)
    query = audit.AuditQuery(since=_moment(4), until=_moment(5))
    page = await trail.search(site.database.reader, {}, query)
    assert [row.details["number"] for row in page.items] == [4, 4, 5, 5] * 2


async def test_a_page_finds_the_rows_it_looks_at_through_an_index(tmp_path: Path) -> None:
    """Checked with the query plans of the embedded store; the range of cursors bounds how many rows it reads."""
    async with server.open_site(Settings(data_dir=tmp_path)) as site:
        for name in ("project_id", "chain", *trail.INDEXED):
            question = f"SELECT * FROM audit WHERE cursor > 0 AND cursor <= 9 AND {name} = 'x' ORDER BY cursor LIMIT 5"
            (plan,) = await site.database.reader.all(f"EXPLAIN QUERY PLAN {question}")
            assert f"({name}=? AND cursor>? AND cursor<?)" in plan[3]


def test_no_code_changes_or_removes_an_audit_row() -> None:
    folder = resources.files("gpuaas_platform")
    texts = {str(path): path.read_text() for path in sorted(_files(folder)) if path.name.endswith((".py", ".sql"))}
    offending = re.compile(r"\b(UPDATE\s+audit|DELETE\s+FROM\s+audit|TRUNCATE\s+audit)\b", re.IGNORECASE)
    assert [name for name, text in texts.items() if offending.search(text)] == []


def _files(folder: Any) -> list[Any]:
    return [file for entry in folder.iterdir() for file in (_files(entry) if entry.is_dir() else [entry])]


async def _numbered(site: Site, count: int) -> None:
    async def use_case(tx: db.Tx) -> None:
        for number in range(count):
            entry = audit.AuditEntry(
                audit_id=f"aud_{number}",
                occurred_at=_moment(number),
                actor_type="user",
                actor_id=f"user_{number % 3}",
                action=f"act_{number % 2}",
                target=f"target_{number}",
                result="success" if number % 5 else "failure",
                correlation_id=f"cor_{number}",
                org_id="org_a",
                project_id="proj_a",
                details={"number": number},
            )
            await trail.append(tx, entry)
            await trail.append(tx, msgspec.structs.replace(entry, project_id="proj_b", org_id="org_b"))

    await site.database.write(use_case)


def _moment(second: int) -> datetime.datetime:
    return datetime.datetime(2026, 1, 1, 0, 0, second, tzinfo=datetime.UTC)


async def _walk(site: Site, name: str) -> chain.Finding | None:
    rows = await site.database.reader.all(
        """SELECT cursor, position, previous_hash, hash, document, project_id, actor_id, action, target, result,
                  correlation_id FROM audit WHERE chain = $1 ORDER BY position""",
        name,
    )
    walk = chain.Walk(name)
    columns = [tuple(row[number] for number in range(11)) for row in rows]
    walk.feed([chain.Row(*values)._replace(document=values[4].encode()) for values in columns])
    return walk.end()


async def _orgs(world: World) -> list[str]:
    return [org.name for org in (await world.call(identity.ORG_LIST)).items]


async def _org_id(world: World) -> str:
    return next(org.org_id for org in (await world.call(identity.ORG_LIST)).items if org.name == "acme")


async def _execute(site: Site, sql: str) -> None:
    async def use_case(tx: db.Tx) -> None:
        await tx.run(sql)

    await site.database.write(use_case)
