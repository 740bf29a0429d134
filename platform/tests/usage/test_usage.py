"""Usage: a record counts once, sums are exact on both engines, pages and exports are whole and harmless."""

import asyncio
import csv
import datetime
import io
import random
from decimal import Decimal
from typing import Any

import httpx
import pytest
from gpuaas_contract import audit, errors, identity, instances, usage
from gpuaas_contract.protocol.usage import billionths
from gpuaas_platform.call import Site
from gpuaas_platform.edge import streams
from gpuaas_platform.edge.exchange import Message
from gpuaas_platform.kit import db
from gpuaas_platform.usage import export, rules, store
from platform_world import World

NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)


@pytest.fixture
async def instance(world: World) -> instances.Instance:
    await world.entitled_app()
    return (await world.deploy()).instance


@pytest.fixture
async def token(world: World) -> str:
    return await world.service_account()


def _record(record_id: str, quantity: str = "1", **more: Any) -> dict[str, Any]:
    started_at = more.pop("started_at", NOON - datetime.timedelta(hours=1))
    ended_at = more.pop("ended_at", started_at + datetime.timedelta(minutes=30))
    measured = {"record_id": record_id, "meter": "gpu-time", "quantity": quantity, "unit": "hour"}
    return {**measured, "started_at": started_at, "ended_at": ended_at, **more}


async def _report(
    world: World, token: str, instance: instances.Instance, *records: dict[str, Any]
) -> usage.UsageReceipt:
    body = {"records": list(records)}
    return await world.call(usage.USAGE_REPORT, body, token=token, instance_id=instance.instance_id, key="")


async def test_a_record_carries_who_what_and_where(world: World, token: str, instance: instances.Instance) -> None:
    (head, *_) = await world.members(instance.instance_id)
    reported = _record("r1", "0.50", member_id=head.member_id, subject="ada", attributes={"queue": "long"})
    headers = {"X-Correlation-ID": "run-1"}
    answer = await world.send(
        usage.USAGE_REPORT, {"records": [reported]}, token=token, instance_id=instance.instance_id, headers=headers
    )
    assert answer.json() == {"accepted": 1, "repeated": 0, "conflicting": []}
    (kept,) = (await world.call(usage.USAGE_LIST)).items
    assert (kept.org_id, kept.project_id, kept.instance_id) == (
        instance.org_id,
        instance.project_id,
        instance.instance_id,
    )
    assert (kept.app_slug, kept.app_version, kept.member_id) == ("toy", "1.0.0", head.member_id)
    assert (kept.subject, kept.attributes, kept.quantity) == ("ada", {"queue": "long"}, "0.5")
    assert (kept.correlation_id, kept.reported_at) == ("run-1", world.clock())
    (row,) = (await world.call(audit.AUDIT_LIST, query={"correlation_id": "run-1"})).items
    assert (row.actor_id, row.details) == (kept.reported_by, {"accepted": 1, "repeated": 0, "conflicting": 0})


async def test_a_report_sent_again_counts_once_and_other_content_is_named(
    world: World, token: str, instance: instances.Instance
) -> None:
    await _report(world, token, instance, _record("r1", "1.5"), _record("r2"))
    receipt = await _report(
        world,
        token,
        instance,
        _record("r1", "1.50"),
        _record("r2", "7"),
        _record("r3"),
        _record("r3"),
        _record("r3", "9"),
    )
    assert receipt == usage.UsageReceipt(accepted=1, repeated=2, conflicting=["r2", "r3"])
    (day,) = (await world.call(usage.USAGE_SUMMARY)).items
    assert (day.quantity, day.records) == ("3.5", 3)


async def test_the_same_report_from_many_at_once_counts_once(
    world: World, token: str, instance: instances.Instance
) -> None:
    records = [_record(f"r{number}") for number in range(50)]
    receipts = await asyncio.gather(*(_report(world, token, instance, *records) for _ in range(20)))
    assert sorted(receipt.accepted for receipt in receipts) == [0] * 19 + [50]
    (day,) = (await world.call(usage.USAGE_SUMMARY)).items
    assert (day.quantity, day.records) == ("50", 50)


async def test_a_record_id_belongs_to_its_instance(world: World, token: str, instance: instances.Instance) -> None:
    other = (await world.deploy("two")).instance
    for reporting in (instance, other):
        assert (await _report(world, token, reporting, _record("r1"))).accepted == 1
    assert len((await world.call(usage.USAGE_LIST)).items) == 2


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"quantity": "-1"}, "records[1].quantity"),
        ({"quantity": "1e3"}, "records[1].quantity"),
        ({"quantity": "٣"}, "records[1].quantity"),
        ({"quantity": "0.0000000001"}, "records[1].quantity"),
        ({"ended_at": NOON - datetime.timedelta(hours=2)}, "records[1].ended_at"),
        ({"ended_at": NOON + datetime.timedelta(days=2)}, "records[1].ended_at"),
        ({"started_at": datetime.datetime(1999, 12, 31, tzinfo=datetime.UTC)}, "records[1].started_at"),
        ({"started_at": "0001-01-01T00:00:00+14:00", "ended_at": NOON}, "records[1].started_at"),
        ({"member_id": "mem_nobody"}, "records[1].member_id"),
        ({"attributes": {str(number): "" for number in range(17)}}, "records[1].attributes"),
    ],
)
async def test_an_unsound_record_refuses_the_report_and_is_named(
    world: World, token: str, instance: instances.Instance, changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(errors.ValidationFailed) as refused:
        await _report(world, token, instance, _record("r1"), {**_record("r2"), **changes})
    assert refused.value.details["field"] == field
    assert (await world.call(usage.USAGE_LIST)).items == []


async def test_a_report_has_1_to_1000_records(world: World, token: str, instance: instances.Instance) -> None:
    with pytest.raises(errors.ValidationFailed):
        await _report(world, token, instance)
    with pytest.raises(errors.ValidationFailed):
        await _report(world, token, instance, *(_record(f"r{number}") for number in range(1001)))
    receipt = await _report(world, token, instance, *(_record(f"r{number}") for number in range(1000)))
    assert receipt.accepted == 1000


async def test_only_a_controller_reports_and_only_in_its_project(world: World, instance: instances.Instance) -> None:
    with pytest.raises(errors.PermissionDenied):
        await _report(world, world.token, instance, _record("r1"))
    org_id = (await world.call(identity.ORG_LIST)).items[0].org_id
    sibling = await world.call(identity.PROJECT_CREATE, {"name": "sibling"}, org_id=org_id)
    stranger = await world.service_account("stranger", sibling.project_id)
    with pytest.raises(errors.NotFound):
        await _report(world, stranger, instance, _record("r1"))
    body = {"records": [_record("r1")]}
    options: dict[str, Any] = {"project_id": sibling.project_id, "instance_id": instance.instance_id}
    with pytest.raises(errors.NotFound):
        await world.call(usage.USAGE_REPORT, body, token=stranger, **options)


async def test_where_a_service_account_operates_the_instance_no_other_reports_for_it(world: World, token: str) -> None:
    await world.entitled_app()
    head, hand = await world.allocation("head"), await world.allocation("hand")
    inputs = {"head_allocation": head.allocation_id, "hand_allocations": [hand.allocation_id]}
    named = {"name": "one", "operator_service_account_id": "controller"}
    body = instances.DeployInstance(app_slug="toy", topology="pair", inputs=inputs, **named)
    operated = (await world.call(instances.INSTANCE_CREATE, body)).instance
    other = await world.service_account("other")
    with pytest.raises(errors.PermissionDenied, match="operates"):
        await _report(world, other, operated, _record("r1"))
    assert (await _report(world, token, operated, _record("r1"))).accepted == 1


async def test_under_the_claim_of_an_operation_only_its_controller_reports_and_only_for_its_instance(
    world: World, token: str, instance: instances.Instance
) -> None:
    claim = await world.claim(token)
    assert claim.operation is not None
    claimed = {"operation_id": claim.operation.operation_id, "epoch": claim.epoch, "records": [_record("r1")]}
    receipt = await world.call(usage.USAGE_REPORT, claimed, token=token, instance_id=instance.instance_id, key="")
    assert receipt.accepted == 1
    other = (await world.deploy("two")).instance
    for instance_id, sent, error in (
        (instance.instance_id, claimed | {"epoch": claim.epoch - 1}, errors.LeaseLost),
        (instance.instance_id, claimed | {"operation_id": "op_none"}, errors.NotFound),
        (other.instance_id, claimed, errors.ValidationFailed),
    ):
        with pytest.raises(error):
            await world.call(usage.USAGE_REPORT, sent, token=token, instance_id=instance_id, key="")


async def test_daily_sums_are_exact_for_any_number_of_digits_and_in_any_order(
    world: World, token: str, instance: instances.Instance
) -> None:
    """Compared with Decimal, which keeps every digit; floats and 64-bit numbers would be wrong."""
    chance, expected = random.Random(7), dict[tuple[str, str], Decimal]()
    records = []
    for number in range(300):
        started_at = NOON - datetime.timedelta(hours=chance.randrange(24 * 20))
        quantity = f"{chance.randrange(10 ** chance.randrange(1, 18))}.{chance.randrange(10**9):09}"
        meter = chance.choice(["gpu-time", "storage"])
        records.append(_record(f"r{number}", quantity, started_at=started_at, meter=meter))
        key = (started_at.date().isoformat(), meter)
        expected[key] = expected.get(key, Decimal(0)) + Decimal(quantity)
    chance.shuffle(records)
    for first in range(0, 300, 60):
        await _report(world, token, instance, *records[first : first + 60])
    days = await _summary(world)
    assert {(day.day.isoformat(), day.meter): Decimal(day.quantity) for day in days} == expected
    assert [(day.day, day.meter) for day in days] == sorted((day.day, day.meter) for day in days)
    assert sum(day.records for day in days) == 300


async def test_a_record_counts_for_the_day_it_started_in_utc(
    world: World, token: str, instance: instances.Instance
) -> None:
    await _report(
        world,
        token,
        instance,
        _record("r1", "1", started_at=datetime.datetime.fromisoformat("2026-01-01T00:30:00+02:00")),
        _record("r2", "2", started_at=datetime.datetime.fromisoformat("2025-12-31T23:30:00-02:00")),
    )
    assert [(day.day.isoformat(), day.quantity) for day in await _summary(world)] == [
        ("2025-12-31", "1"),
        ("2026-01-01", "2"),
    ]


async def test_a_summary_covers_at_most_93_days_and_can_be_narrowed(
    world: World, token: str, instance: instances.Instance
) -> None:
    other = (await world.deploy("two")).instance
    for reporting in (instance, other):
        await _report(world, token, reporting, _record("r1"), _record("r2", meter="storage", unit="byte"))
    query = {"instance_id": instance.instance_id, "meter": "storage"}
    (day,) = (await world.call(usage.USAGE_SUMMARY, query=query)).items
    assert (day.instance_id, day.meter, day.unit, day.app_slug) == (instance.instance_id, "storage", "byte", "toy")
    assert len((await world.call(usage.USAGE_SUMMARY, query={"meter": "storage"})).items) == 2
    assert len((await world.call(usage.USAGE_SUMMARY, query={"until": "2026-01-01"})).items) == 0
    await world.call(usage.USAGE_SUMMARY, query={"since": "2025-10-01", "until": "2026-01-02"})
    with pytest.raises(errors.ValidationFailed, match="93 days"):
        await world.call(usage.USAGE_SUMMARY, query={"since": "2025-09-30", "until": "2026-01-02"})


async def test_records_are_paged_by_their_start_and_late_ones_are_in_their_place(
    world: World, token: str, instance: instances.Instance
) -> None:
    starts = [NOON - datetime.timedelta(minutes=minutes) for minutes in (5, 300, 60, 60, 1)]
    for number, started_at in enumerate(starts):
        await _report(world, token, instance, _record(f"r{number}", started_at=started_at))
    assert [record.record_id for record in await _pages(world, page_size=2)] == ["r1", "r2", "r3", "r0", "r4"]
    since, until = (NOON - datetime.timedelta(minutes=minutes) for minutes in (60, 1))
    narrow = await _pages(world, page_size=1, since=since.isoformat(), until=until.isoformat())
    assert [record.record_id for record in narrow] == ["r2", "r3", "r0"]
    assert await _pages(world, instance_id="inst_other") == []
    assert await _pages(world, instance_id=instance.instance_id, meter="storage") == []
    with pytest.raises(errors.ValidationFailed, match="page_token"):
        await world.call(usage.USAGE_LIST, query={"page_token": "nonsense"})


class Planner:
    """A reader that records the query plan of SQLite for each query and returns no rows."""

    def __init__(self, reader: db.Reader) -> None:
        self._reader = reader
        self.plan = ""

    async def one(self, sql: str, *values: Any) -> None:
        await self.all(sql, *values)

    async def all(self, sql: str, *values: Any) -> list[Any]:
        rows = await self._reader.all(f"EXPLAIN QUERY PLAN {sql}", *values)
        self.plan = " ".join(row["detail"] for row in rows)
        return []


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "filters", [{}, {"instance_id": "inst_x"}, {"meter": "m"}, {"instance_id": "inst_x", "meter": "m"}]
)
async def test_every_choice_of_filters_is_served_by_one_index(site: Site, filters: dict[str, Any]) -> None:
    planner = Planner(site.database.reader)
    await store.records_after(planner, "proj_x", usage.UsageQuery(**filters), store.START, 10)
    named = "".join(f"{name}=? AND " for name in ("project_id", *filters))
    assert f"({named}started_at>? AND started_at<?)" in planner.plan
    assert "TEMP B-TREE" not in planner.plan
    days = (NOON.date(), NOON.date())
    await store.days_after(planner, "proj_x", usage.SummaryQuery(**filters), days, ("", "", "", ""), 10)
    assert "(project_id=? AND " in planner.plan
    assert "day>? AND day<?)" in planner.plan


async def test_the_export_has_every_record_and_runs_nothing_in_a_spreadsheet(
    world: World, token: str, instance: instances.Instance
) -> None:
    bad = '=HYPERLINK("http://x","y")'
    subjects = [bad, "+1", "-1", "@x", "\tx", "\nx", 'a,"b"\nc', "ünï"]
    named = [_record(f"s{number:03}", subject=subject) for number, subject in enumerate(subjects)]
    many = [_record(f"r{number:03}", f"{number}.25") for number in range(1000)]
    for batch in (named, many, [_record("=1+1", attributes={"a": bad})]):
        await _report(world, token, instance, *batch)
    answer = await world.send(usage.USAGE_EXPORT)
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    header, *rows = list(csv.reader(io.StringIO(answer.text, newline="")))
    assert tuple(header) == export.COLUMNS
    by_id = {row[header.index("record_id")]: row for row in rows}
    assert len(rows) == len(by_id) == len(subjects) + 1001
    assert [by_id[f"s{number:03}"][header.index("subject")] for number in range(len(subjects))] == [
        *(f"'{subject}" for subject in subjects[:6]),
        *subjects[6:],
    ]
    assert by_id["'=1+1"][header.index("attributes")] == '{"a":"=HYPERLINK(\\"http://x\\",\\"y\\")"}'
    assert by_id["r007"][header.index("quantity")] == "7.25"
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))]


async def test_an_export_can_be_narrowed_and_hides_what_the_caller_may_not_see(
    world: World, token: str, instance: instances.Instance
) -> None:
    await _report(world, token, instance, _record("r1"), _record("r2", meter="storage"))
    assert len((await world.send(usage.USAGE_EXPORT, query={"meter": "storage"})).text.splitlines()) == 2
    assert (await world.send(usage.USAGE_EXPORT, query={"metre": "storage"})).status_code == 400
    stranger = await world.person("stranger")
    assert (await world.send(usage.USAGE_EXPORT, token=stranger.token)).status_code == 404
    assert (await world.send(usage.USAGE_EXPORT, token="")).status_code == 401


async def test_an_export_whose_caller_lost_the_right_is_cut_and_does_not_look_whole(
    world: World, token: str, instance: instances.Instance
) -> None:
    await _report(world, token, instance, *(_record(f"r{number}") for number in range(600)))
    source = export.Export(world.site.database.reader, world.project_id, usage.UsageQuery())
    sent = list[Message]()

    async def receive() -> Message:
        await asyncio.Event().wait()
        return {}

    async def send(message: Message) -> None:
        sent.append(message)
        if len(sent) == 2:
            source.end()

    await streams.pump(source, receive, send)
    assert [message["more_body"] for message in sent] == [True, True]


async def test_a_dry_run_counts_nothing(world: World, token: str, instance: instances.Instance) -> None:
    body = {"records": [_record("r1")]}
    options: dict[str, Any] = {"token": token, "instance_id": instance.instance_id, "query": {"dry_run": "true"}}
    answer: httpx.Response = await world.send(usage.USAGE_REPORT, body, **options)
    assert answer.json()["accepted"] == 1
    assert await _summary(world) == []


@pytest.mark.parametrize("quantity", ["0", "1", "1.5", "0.000000001", "999999999999999999.999999999"])
def test_a_quantity_is_read_and_shown_without_loss(quantity: str) -> None:
    assert rules.shown(billionths(quantity)) == quantity


async def _summary(world: World) -> list[usage.UsageDay]:
    days, token = list[usage.UsageDay](), ""
    while True:
        page = await world.call(usage.USAGE_SUMMARY, query={"page_size": 7, "page_token": token})
        days += page.items
        if page.next_page_token is None:
            return days
        token = page.next_page_token


async def _pages(world: World, **query: Any) -> list[usage.UsageRecord]:
    records, token = list[usage.UsageRecord](), ""
    while True:
        page = await world.call(usage.USAGE_LIST, query={**query, "page_token": token})
        records += page.items
        if page.next_page_token is None:
            return records
        token = page.next_page_token
