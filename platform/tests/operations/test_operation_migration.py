"""Operations that an older release kept as one document each are rows after the start, and can be finished."""

import datetime
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec
import old_records
import pytest
from gpuaas_contract import audit, errors, events, identity, operations
from gpuaas_contract.permissions import PROGRAM_KEYS, ROLES
from gpuaas_contract.protocol import exits as exit_rules
from gpuaas_platform import server
from gpuaas_platform.edge import http
from gpuaas_platform.identity import store
from gpuaas_platform.kit import db
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.operations import upgrade
from gpuaas_platform.record import heads, verify
from platform_world import FakeClock, World
from scripted_controller import Cluster, Controller, Held

DATA = Path(__file__).parent / "data"


@pytest.fixture
def records(database_url: str) -> old_records.Records:
    engine = "postgres" if database_url else "sqlite"
    return old_records.read(DATA / f"operations_in_documents_{engine}.json.gz")


@pytest.fixture
async def old_world(records: old_records.Records, settings: Settings, clock: FakeClock) -> AsyncIterator[World]:
    """The platform of the older release, started with this one."""
    clock.now = datetime.datetime.fromisoformat(records.now)
    await old_records.load(records, settings, before_migration=21)
    async with server.open_site(settings, clock) as site:
        await upgrade.bind_accounts(site)
        application = http.application(site, server.DOMAINS)
        transport = httpx.ASGITransport(app=application, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            world = World(site, clock, client, project_id=records.project_id)
            world.token = await world.sign_in("admin")
            yield world


async def controller_of(world: World, records: old_records.Records) -> Controller:
    login = identity.ServiceAccountLogin(key_id=records.key_id, client_secret=records.client_secret)
    return Controller(world, (await world.call(identity.SERVICE_ACCOUNT_TOKEN, login)).access_token)


async def test_every_operation_reads_as_before(old_world: World, records: old_records.Records) -> None:
    listed = (await old_world.call(operations.OPERATION_LIST)).items
    assert [operation.operation_id for operation in listed] == list(records.operations)
    for operation_id, shown in records.operations.items():
        before = msgspec.convert(shown, operations.Operation)
        # The words for an exit may change; which exits there are may not.
        exits = [msgspec.structs.replace(each, meaning=exit_rules.MEANINGS[each.name]) for each in before.exits]
        expected = msgspec.structs.replace(before, steps_total=len(before.steps), exits=exits)
        assert await old_world.operation(operation_id) == expected


async def test_the_document_of_an_operation_keeps_nothing_that_is_a_column_or_a_row(old_world: World) -> None:
    rows = await old_world.site.database.reader.all("SELECT document FROM operations")
    gone = {"status", "revision", "epoch", "attempts", "lease", "targets", "steps", "progress", "exits"}
    assert [gone & set(msgspec.json.decode(row[0])) for row in rows] == [set()] * 5


async def test_open_operations_are_finished_and_the_audit_trail_is_sound(
    old_world: World, records: old_records.Records, settings: Settings
) -> None:
    controller = await controller_of(old_world, records)
    cluster = Cluster(old_world, controller, records.instance_id)
    assert (await controller.take()).operation.kind == "replace", "the others are under a lease of the older release"
    old_world.clock.forward(61)
    ended = {}
    while (claim := await controller.claim()).operation is not None:
        held = Held(old_world, controller.token, claim)
        ended[held.operation.kind] = (await _finish(held)).status
    assert ended == {"add": "succeeded", "drain": "cancelled", "replace": "succeeded"}
    assert await cluster.status() == "running"
    assert await cluster.bound() == await cluster.occupied()
    with pytest.raises(errors.MemberHeld):
        await cluster.change("decommission")
    await cluster.change("decommission", force=True, reason="over")
    await controller.carry_out()
    assert await cluster.status() == "deleted"
    assert await _audit_findings(old_world, settings) == []


async def test_a_failed_operation_of_the_older_release_can_be_retried(
    old_world: World, records: old_records.Records
) -> None:
    controller = await controller_of(old_world, records)
    failed = next(shown for shown in records.operations.values() if shown["status"] == "failed")
    body = {"reason": "again"}
    again = await old_world.call(operations.OPERATION_RETRY, body, operation_id=failed["operation_id"])
    assert (again.status, [step.state for step in again.steps]) == ("accepted", ["failed"])
    held = await controller.take()
    assert held.operation_id == failed["operation_id"]
    await held.step("drain it", "running", held.member_ids[0])
    (step,) = (await old_world.operation(held.operation_id)).steps
    assert (step.state, step.attempt) == ("running", 2)


async def test_what_happens_now_comes_after_the_events_of_the_older_release(
    old_world: World, records: old_records.Records
) -> None:
    before = (await old_world.call(events.EVENT_LIST, query={"limit": 500})).items
    await Cluster(old_world, await controller_of(old_world, records), records.instance_id).hold(
        (await old_world.members(records.instance_id))[1].member_id, "no_work"
    )
    after = (await old_world.call(events.EVENT_LIST, query={"limit": 500})).items
    assert after[: len(before)] == before
    assert [event.type for event in after[len(before) :]] == ["apps.hold.placed"]
    assert [event.cursor for event in after] == sorted({event.cursor for event in after})


async def _finish(held: Held) -> operations.Operation:
    if held.operation.status == "cancelling":
        await held.report(held.member_ids[0], "ready")
        return await held.complete(undone=True)
    if held.operation.kind == "add":
        states = {(step.member_id, step.state) for step in held.operation.steps}
        assert states == set(zip(held.member_ids, ("succeeded", "running"), strict=True))
    return await held.carry_out()


async def _audit_findings(world: World, settings: Settings) -> list[str]:
    await server.heads_signer(world.site).sweep()
    evidence = verify.Evidence(heads.folder_in(settings.data_dir), world.site.keys.audit.public_key())
    async with verify.open_source(settings.data_dir, settings.database_url) as source:
        verdicts = await verify.verify(source, evidence)
    assert len(verdicts) == 2
    return [finding.message for verdict in verdicts for finding in verdict.findings]


async def test_the_account_of_the_older_release_is_bound_to_the_app_that_it_operated(old_world: World) -> None:
    (account,) = (await old_world.call(identity.SERVICE_ACCOUNT_LIST)).items
    assert (account.apps, account.permissions) == (["toy"], sorted(ROLES["service_account"]))
    warnings = [
        event.payload
        for event in (await old_world.call(events.EVENT_LIST, query={"limit": 500})).items
        if event.type == "identity.service_account.bound"
    ]
    assert [(event["apps"], event["bound_by"]) for event in warnings] == [(["toy"], "platform")]
    assert "gpuaas service-account bind controller --app toy" in warnings[0]["reason"]
    rows = (await old_world.call(audit.AUDIT_LIST, query={"page_size": 500})).items
    assert [row.actor_type for row in rows if row.action == "identity.service_account.bind"] == ["system"]


async def test_an_account_is_bound_once_and_one_that_operated_nothing_gets_no_app(
    records: old_records.Records, settings: Settings, clock: FakeClock
) -> None:
    clock.now = datetime.datetime.fromisoformat(records.now)
    await old_records.load(records, settings, before_migration=21)
    async with server.open_site(settings, clock) as site:
        await site.database.write(_forget_its_work)
        await upgrade.bind_accounts(site)
        await upgrade.bind_accounts(site)
        (account,) = await store.SERVICE_ACCOUNTS.find(site.database.reader, "1 = 1")
        assert (account.apps, account.permissions) == ([], sorted(PROGRAM_KEYS))
        count = "SELECT count(*) FROM audit WHERE action = 'identity.service_account.bind'"
        assert [row[0] for row in await site.database.reader.all(count)] == [1]


async def _forget_its_work(tx: db.Tx) -> None:
    await tx.run("UPDATE operations SET lease_actor_id = '', operator_id = ''")
    await tx.run("DELETE FROM controllers")
