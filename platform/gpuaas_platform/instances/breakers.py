"""The circuit breaker of a role. After too many failed joins in its window it refuses adds; running members stay."""

import datetime
from collections.abc import Sequence

from gpuaas_contract import errors
from gpuaas_contract.catalog import BREAKER_WINDOW_S_MAX, Manifest, RoleSpec
from gpuaas_contract.event_types import BreakerChanged
from gpuaas_contract.instances import BreakerState, Instance, Member
from gpuaas_contract.operations import OperationHead
from gpuaas_contract.protocol import request as request_rules

from gpuaas_platform.call import Call, Origin
from gpuaas_platform.catalog import service as catalog
from gpuaas_platform.instances import events, store
from gpuaas_platform.kit import db, structs
from gpuaas_platform.kit.retention import Retained

RETAINED = Retained(
    "instances.failed_joins", lambda _: BREAKER_WINDOW_S_MAX, store.has_old_failed_joins, store.forget_old_failed_joins
)
"""Deletes failed joins that are too old to count for any breaker."""


async def state(reader: db.Reader, instance_id: str, role: RoleSpec, now: datetime.datetime) -> BreakerState:
    since = now - datetime.timedelta(seconds=role.breaker.window_s)
    failed_at = await store.failed_joins(reader, instance_id, role.component_key, since)
    return request_rules.breaker_state(role, failed_at, now)


async def count_failures(
    tx: db.Tx, origin: Origin, operation: OperationHead, instance: Instance, failed: Sequence[Member]
) -> None:
    """Record the failed members of an add or replace, all of one role. Emit an event if this opens the breaker."""
    if not failed:
        return
    role = role_of(await catalog.manifest_of(tx, instance.app_slug, instance.app_version), operation.component_key)
    before = await state(tx, instance.instance_id, role, origin.now)
    for member in failed:
        await store.note_failed_join(tx, member, origin.now)
    after = await state(tx, instance.instance_id, role, origin.now)
    if after.open and not before.open:
        why = failed[-1].status_reason
        payload = structs.pick(BreakerChanged, after, component_key=role.component_key, reason=why)
        await events.emit(tx, origin, "apps.role.breaker", instance, payload, operation)


async def close(tx: db.Tx, call: Call, instance: Instance, component_key: str, reason: str) -> None:
    """Close the breaker of a role: delete its failed joins and, if it was open, emit an event."""
    role = role_of(await catalog.manifest_of(tx, instance.app_slug, instance.app_version), component_key)
    if (await state(tx, instance.instance_id, role, call.now)).open:
        payload = structs.pick(BreakerChanged, BreakerState(), component_key=component_key, reason=reason)
        await events.emit(tx, call.origin, "apps.role.breaker", instance, payload)
    await store.forget_failed_joins(tx, instance.instance_id, component_key)


def role_of(manifest: Manifest, component_key: str) -> RoleSpec:
    role = next((role for role in manifest.roles if role.component_key == component_key), None)
    if role is None:
        raise errors.NotFound(f"There is no role {component_key} in this instance.")
    return role
