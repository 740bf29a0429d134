"""Accept usage reports, list records, read daily totals."""

from gpuaas_contract.instances import Instance
from gpuaas_contract.paths import InstancePath, ProjectPath
from gpuaas_contract.protocol import usage as protocol
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
from gpuaas_platform.kit import db, ids, paging, structs, tables
from gpuaas_platform.operations import fence, stewards
from gpuaas_platform.usage import rules, store

_GROUP_PARTS = 4


async def report(tx: db.Tx, call: Call[InstancePath], body: ReportUsage) -> UsageReceipt:
    """Store a report and update totals. Write transactions run one at a time, so no other report changes the totals."""
    instance = await instances.named(tx, call)
    await _check_reporter(tx, call, instance, body)
    named = {record.member_id for record in body.records if record.member_id}
    protocol.check(body.records, await instances.members_among(tx, instance, named), call.now)
    record_ids = {record.record_id for record in body.records}
    reported = protocol.sort(body.records, await store.present(tx, instance.instance_id, record_ids))
    if reported.new:
        await store.add(tx, [_kept(call, instance, record) for record in reported.new])
        before = await store.totals(tx, instance, {rules.group_of(record) for record in reported.new})
        await store.put_totals(tx, instance, rules.totals(reported.new, before))
    receipt = UsageReceipt(accepted=len(reported.new), repeated=reported.repeated, conflicting=reported.conflicting)
    call.details.update(accepted=receipt.accepted, repeated=receipt.repeated, conflicting=len(receipt.conflicting))
    return receipt


async def list_records(reader: db.Reader, call: Call[ProjectPath, UsagePageQuery]) -> Page[UsageRecord]:
    async def read(after: str, limit: int) -> list[UsageRecord]:
        return await store.records_after(reader, call.path.project_id, call.query, _position(after), limit)

    return await paging.page("usage_records", call.query, read, _key_of_record)


async def summarise(reader: db.Reader, call: Call[ProjectPath, SummaryQuery]) -> Page[UsageDay]:
    query = call.query
    days = rules.days(query.since, query.until, call.now.date())

    async def read(after: str, limit: int) -> list[UsageDay]:
        return await store.days_after(reader, call.path.project_id, query, days, _group(after), limit)

    return await paging.page("usage_days", query, read, _key_of_day)


async def _check_reporter(tx: db.Tx, call: Call[InstancePath], instance: Instance, body: ReportUsage) -> None:
    """Refuse a caller that neither looks after the instance nor has claimed the operation on it that it names."""
    if body.operation_id:
        operation = await fence.check(tx, call, body.operation_id, body.epoch)
        protocol.check_operation(operation, instance.instance_id)
    else:
        await stewards.check_reporter(tx, call, instance, body.epoch)


def _key_of_record(record: UsageRecord) -> str:
    started_at, usage_id = store.position_of(record)
    return f"{started_at}/{usage_id}"


def _position(key: str) -> store.Position:
    if not key:
        return store.START
    started_at, _, usage_id = key.partition("/")
    if not started_at.lstrip("-").isdecimal():
        raise tables.PageTokenInvalid(key)
    return int(started_at), usage_id


def _key_of_day(day: UsageDay) -> str:
    return f"{day.day.isoformat()}/{day.instance_id}/{day.meter}/{day.unit}"


def _group(key: str) -> list[str]:
    parts = key.split("/") if key else [""] * _GROUP_PARTS
    if len(parts) != _GROUP_PARTS:
        raise tables.PageTokenInvalid(key)
    return parts


def _kept(call: Call, instance: Instance, record: ReportedUsage) -> UsageRecord:
    return structs.pick(
        UsageRecord,
        record,
        usage_id=ids.new("use"),
        quantity=rules.shown(protocol.billionths(record.quantity)),
        org_id=instance.org_id,
        project_id=instance.project_id,
        instance_id=instance.instance_id,
        app_slug=instance.app_slug,
        app_version=instance.app_version,
        reported_by=call.caller.actor_id,
        reported_at=call.now,
        correlation_id=call.origin.correlation_id,
    )
