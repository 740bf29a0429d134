"""Take usage reports, page through records, read daily sums."""

from collections.abc import Sequence

from gpuaas_contract.instances import Instance
from gpuaas_contract.protocol import request as request_rules
from gpuaas_contract.usage import (
    ReportedUsage,
    ReportUsage,
    SummaryQuery,
    UsageDay,
    UsagePageQuery,
    UsageReceipt,
    UsageRecord,
)
from gpuaas_contract.wire import Page

from gpuaas_platform.call import Call
from gpuaas_platform.instances import service as instances
from gpuaas_platform.kit import db, ids, tables
from gpuaas_platform.usage import rules, store

_RECORDS, _DAYS = "usage_records", "usage_days"
_FROM_FIRST_DAY = ("", "", "", "")


async def report(tx: db.Tx, call: Call, body: ReportUsage) -> UsageReceipt:
    """Writers run one after another, so the totals read here are still so when the new ones go in."""
    instance = await instances.named(tx, call)
    request_rules.check_operator(instance.operator_service_account_id, call.caller.actor_id)
    rules.check(body.records, await _members(tx, instance, body.records), call.now)
    record_ids = {record.record_id for record in body.records}
    found = rules.sort(body.records, await store.present(tx, instance.instance_id, record_ids))
    if found.new:
        await store.add(tx, [_kept(call, instance, record) for record in found.new])
        before = await store.totals(tx, instance, {rules.group_of(record) for record in found.new})
        await store.put_totals(tx, instance, rules.totals(found.new, before))
    receipt = UsageReceipt(accepted=len(found.new), repeated=found.repeated, conflicting=found.conflicting)
    call.details.update(accepted=receipt.accepted, repeated=receipt.repeated, conflicting=len(receipt.conflicting))
    return receipt


async def records(reader: db.Reader, project_id: str, query: UsagePageQuery) -> Page[UsageRecord]:
    size = query.page_size
    after = _position(query.page_token) if query.page_token else store.START
    found = await store.records_after(reader, project_id, query, after, size + 1)
    items = [record for _, record in found[:size]]
    if len(found) <= size:
        return Page(items=items)
    started_at, usage_id = found[size - 1][0]
    return Page(items=items, next_page_token=tables.write_token(_RECORDS, f"{started_at}/{usage_id}"))


async def summary(reader: db.Reader, call: Call, query: SummaryQuery) -> Page[UsageDay]:
    size = query.page_size
    days = rules.days(query.since, query.until, call.now.date())
    after = _group(query.page_token) if query.page_token else _FROM_FIRST_DAY
    found = await store.days_after(reader, call.in_project().project_id, query, days, after, size + 1)
    if len(found) <= size:
        return Page(items=found)
    last = found[size - 1]
    key = f"{last.day.isoformat()}/{last.instance_id}/{last.meter}/{last.unit}"
    return Page(items=found[:size], next_page_token=tables.write_token(_DAYS, key))


def _position(token: str) -> store.Position:
    started_at, _, usage_id = tables.read_token(_RECORDS, token).partition("/")
    if not started_at.lstrip("-").isdecimal():
        raise tables.PageTokenInvalid(token)
    return int(started_at), usage_id


def _group(token: str) -> Sequence[str]:
    found = tables.read_token(_DAYS, token).split("/")
    if len(found) != len(_FROM_FIRST_DAY):
        raise tables.PageTokenInvalid(token)
    return found


async def _members(tx: db.Tx, instance: Instance, records: list[ReportedUsage]) -> set[str]:
    """Those of the named members that are, or were, of this instance."""
    named = {record.member_id for record in records if record.member_id}
    return await instances.members_among(tx, instance, named)


def _kept(call: Call, instance: Instance, record: ReportedUsage) -> UsageRecord:
    return UsageRecord(
        usage_id=ids.new("use"),
        record_id=record.record_id,
        meter=record.meter,
        quantity=rules.shown(rules.billionths(record.quantity)),
        unit=record.unit,
        started_at=record.started_at,
        ended_at=record.ended_at,
        member_id=record.member_id,
        subject=record.subject,
        attributes=record.attributes,
        org_id=instance.org_id,
        project_id=instance.project_id,
        instance_id=instance.instance_id,
        app_slug=instance.app_slug,
        app_version=instance.app_version,
        reported_by=call.caller.actor_id,
        reported_at=call.now,
        correlation_id=call.origin.correlation_id,
    )
