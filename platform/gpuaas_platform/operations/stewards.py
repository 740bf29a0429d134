"""Stewards: one controller at a time looks after an instance between operations, under a lease with an epoch.

It takes and renews stewardships, publishes access, and requests operations such as a repair. `observe` records what it
reports."""

import datetime
import functools
from collections.abc import Sequence

import structlog
from gpuaas_contract import errors
from gpuaas_contract.capacity import Allocation
from gpuaas_contract.instances import AccessBundle, Condition, Instance, MemberOperationRequest
from gpuaas_contract.operations import Operation, OperationHead
from gpuaas_contract.paths import InstancePath, ProjectPath
from gpuaas_contract.protocol import request as request_rules
from gpuaas_contract.protocol import steward as rules
from gpuaas_contract.runtime import LEASE_S_MAX, PublishAccess
from gpuaas_contract.stewardships import RenewStewardships, StewardOperationRequest, Stewardship, Stewardships
from msgspec.structs import replace

from gpuaas_platform.allocations import service as allocations
from gpuaas_platform.call import Call, Site, system_origin
from gpuaas_platform.catalog import service as catalog
from gpuaas_platform.identity import admission
from gpuaas_platform.instances import breakers, holds, stewardships
from gpuaas_platform.instances import service as instances
from gpuaas_platform.instances.stewardships import Deployed, Row
from gpuaas_platform.kit import clock, db, structs
from gpuaas_platform.kit.retention import Retained
from gpuaas_platform.nodes import presence
from gpuaas_platform.operations import claim, read, service, state, store

log = structlog.get_logger()

_LOOKS_COUNT_AFTER_S = float(LEASE_S_MAX + rules.UNOBSERVED_AFTER_S)
"""Until renewals could be received for this long, an expired stewardship does not show that no controller looks."""


async def admit(call: Call[ProjectPath], body: RenewStewardships) -> RenewStewardships:
    """Refuse an account that does not operate the app, before the transaction, so that the refusal is recorded."""
    await catalog.check_app(call.site.database.reader, call.caller, body.app_slug)
    await claim.check_bound(call, body.app_slug)
    return body


async def renew(tx: db.Tx, call: Call[ProjectPath], body: RenewStewardships) -> Stewardships:
    """Renew the stewardships that the caller holds, and take free ones. The number of SQL statements does not depend on
    the number of instances, except for one statement per hundred that change."""
    await admission.check_works_in(tx, call.caller.actor_id, call.path.project_id)
    taker = rules.Taker(body.holder, call.caller.actor_id, call.now + datetime.timedelta(seconds=body.lease_s))
    deployed = await stewardships.of_app(tx, call.path.project_id, body.app_slug)
    operated = {item.instance_id: item for item in deployed if item.operator_id in ("", taker.actor_id)}
    present = {instance_id: item.row.steward if item.row else None for instance_id, item in operated.items()}
    held = {item.instance_id: item for item in body.held}
    renewals = rules.renewals(present, held, taker, call.now, take_max=body.take_max)
    changed = [
        (operated[instance_id], _replaced(operated[instance_id].row, Row(instance_id, steward)))
        for instance_id, steward in renewals.items()
    ]
    await stewardships.put(tx, [row for _, row in changed])
    await _show_observed(tx, call, changed)
    return Stewardships(
        held=[
            Stewardship(
                instance_id=row.instance_id,
                epoch=row.steward.epoch,
                expires_at=row.steward.expires_at,
                revision=instance.revision,
            )
            for instance, row in changed
        ],
        lost=[instance_id for instance_id in held if instance_id not in renewals],
    )


async def publish_access(tx: db.Tx, call: Call[InstancePath], body: PublishAccess) -> AccessBundle:
    instance = await instances.named(tx, call)
    await check(tx, call, instance, body.epoch)
    bundle = structs.pick(AccessBundle, body)
    await instances.put_access_bundle(tx, instance.instance_id, bundle)
    return bundle


async def request(tx: db.Tx, call: Call[InstancePath], body: StewardOperationRequest) -> Operation:
    """Accept an operation that the steward requests, within the limits of the app's manifest."""
    call.details["reason"] = body.reason
    instance = await instances.named(tx, call)
    await check(tx, call, instance, body.epoch)
    manifest = await catalog.manifest_of(tx, instance.app_slug, instance.app_version)
    rules.check_kind(manifest.steward, body.kind)
    rules.check_allowed(manifest.steward, body.kind, body.member_ids, instance.inputs)
    rules.check_cancelled(body.kind, await _last_operations(tx, instance, body.member_ids), call.now)
    asked = MemberOperationRequest(kind=body.kind, member_ids=body.member_ids, reason=body.reason)
    if body.kind == "replace":
        asked = await _with_spare(tx, call, instance, asked)
    operation = await service.operate_members(tx, call, asked, by_steward=True)
    role = next(role for role in manifest.roles if role.component_key == operation.component_key)
    request_rules.check_breaker(role, await breakers.state(tx, instance.instance_id, role, call.now))
    since = clock.micros(call.now - rules.REQUESTS_WINDOW)
    requested_at = {
        target.member_id: await store.requested_at(tx, target.member_id, body.kind, since)
        for target in operation.targets
    }
    rules.check_requests(manifest.steward, body.kind, requested_at, call.now)
    for target in operation.targets:
        await store.note_request(tx, operation.operation_id, target.member_id, body.kind, clock.micros(call.now))
    return operation


async def _last_operations(
    reader: db.Reader, instance: Instance, member_ids: Sequence[str]
) -> dict[str, OperationHead]:
    """Return the last operation of each of these members of the instance."""
    members = await instances.members_named(reader, member_ids)
    last = {item.member_id: item.last_operation_id for item in members if item.instance_id == instance.instance_id}
    operation_ids = sorted(set(last.values()))
    if not operation_ids:
        return {}
    heads = await store.heads(reader, f"operation_id IN ({db.marks(len(operation_ids))})", *operation_ids)
    by_id = {head.operation_id: head for head in heads}
    return {member_id: by_id[operation_id] for member_id, operation_id in last.items() if operation_id in by_id}


async def _with_spare(
    tx: db.Tx, call: Call[InstancePath], instance: Instance, asked: MemberOperationRequest
) -> MemberOperationRequest:
    """Return the request with a spare. It has force, because a lost machine shows no evidence; so what force skips,
    holds and the disruption budget, is checked here."""
    members = await instances.live_members(tx, instance.instance_id)
    member = next((member for member in members if member.member_id == asked.member_ids[0]), None)
    if member is None:
        raise errors.NotFound(f"The instance has no member {asked.member_ids[0]}.")
    manifest = await catalog.manifest_of(tx, instance.app_slug, instance.app_version)
    role = next(role for role in manifest.roles if role.component_key == member.component_key)
    request_rules.check_holds("replace", [member.member_id], await holds.standing(tx, instance.instance_id, call.now))
    active = await read.active(tx, instance.instance_id)
    request_rules.check_budget(role, "replace", members, active, [member.member_id])
    old = await allocations.in_project(tx, instance.project_id, member.allocation_id)
    rules.check_lost(old.node_name, is_ready=await allocations.is_on_ready_node(tx, old))
    given_up = await store.given_up(tx, instance.instance_id)
    spares = await allocations.spares(tx, instance.project_id)
    free = {item.allocation_id: _shape(item) for item in spares if item.allocation_id not in given_up}
    spare = rules.choose_spare(_shape(old), free)
    call.details["allocation_id"] = spare
    return replace(asked, allocation_ids=[spare], force=True)


def _shape(allocation: Allocation) -> rules.Shape:
    return rules.Shape(allocation.sku, allocation.region, allocation.gpus)


async def check(reader: db.Reader, call: Call, instance: Instance, epoch: int) -> None:
    """Refuse a caller that does not hold the stewardship of the instance with this epoch."""
    row = await stewardships.get(reader, instance.instance_id)
    rules.check(instance, row.steward if row else None, epoch, call.caller, call.now)


async def check_reporter(reader: db.Reader, call: Call, instance: Instance, epoch: int) -> None:
    """Refuse an observation from another controller than the steward. See `rules.check_reporter` for epoch 0."""
    row = await stewardships.get(reader, instance.instance_id)
    rules.check_reporter(instance, row.steward if row else None, epoch, call.caller, call.now)


async def note_look(tx: db.Tx, call: Call, instance: Instance) -> list[Condition]:
    """Store that a controller looked at the instance now. Return the condition that changes with it, if one does."""
    row = await stewardships.get(tx, instance.instance_id)
    if row is None:
        return []
    looked = Row(row.instance_id, rules.observed(row.steward, call.now, call.now))
    await stewardships.put(tx, [looked])
    if not row.is_unobserved:
        return []
    return [rules.observed_condition(instance, looked.steward, call.now, is_observed=True)]


async def mark_unobserved(site: Site, now: datetime.datetime) -> None:
    """Set the condition of instances that no controller looks after any more, each in a transaction of its own."""
    reader, limit = site.database.reader, now - datetime.timedelta(seconds=rules.UNOBSERVED_AFTER_S)
    overdue = await stewardships.expired(reader, limit)
    if not overdue or await presence.received_for_s(reader, site, now) < _LOOKS_COUNT_AFTER_S:
        return
    for instance_id in overdue:
        try:
            await site.database.write(functools.partial(_mark_unobserved, instance_id=instance_id, now=now))
        except db.Unavailable:
            raise
        except Exception:
            log.exception("steward.mark_failed", instance_id=instance_id)


async def _mark_unobserved(tx: db.Tx, *, instance_id: str, now: datetime.datetime) -> None:
    row = await stewardships.get(tx, instance_id)
    if row is None or row.is_unobserved or not rules.is_unobserved(row.steward, now):
        return
    instance = await instances.get(tx, instance_id)
    condition = rules.observed_condition(instance, row.steward, now, is_observed=False)
    await state.derive_instance(tx, system_origin(now, instance.correlation_id), instance, None, [condition])
    await stewardships.put(tx, [row._replace(is_unobserved=True)])


async def _show_observed(tx: db.Tx, call: Call, changed: list[tuple[Deployed, Row]]) -> None:
    """Set the condition of instances that a controller looks after again."""
    for before, row in changed:
        if before.row is not None and before.row.is_unobserved and not row.is_unobserved:
            instance = await instances.get(tx, row.instance_id)
            condition = rules.observed_condition(instance, row.steward, call.now, is_observed=True)
            await state.derive_instance(tx, call.origin, instance, None, [condition])


def _replaced(before: Row | None, row: Row) -> Row:
    """Return the row to store. An instance that was not observed stays so until a controller has looked at it."""
    looked = before is None or row.steward.observed_at != before.steward.observed_at
    return row if looked else row._replace(is_unobserved=before is not None and before.is_unobserved)


async def _is_old(reader: db.Reader, requested_before: int) -> bool:
    return await store.has_old_requests(reader, requested_before)


async def _forget(tx: db.Tx, requested_before: int, limit: int) -> None:
    await store.forget_old_requests(tx, requested_before, limit)


RETAINED = Retained("operations.steward_requests", lambda _: rules.REQUESTS_WINDOW.total_seconds(), _is_old, _forget)
