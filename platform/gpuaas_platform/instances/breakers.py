"""The circuit breaker of a role: too many failed joins in its window stop further adds; running members stay."""

import datetime
from collections.abc import Sequence

from gpuaas_contract import errors
from gpuaas_contract.catalog import Manifest, RoleSpec
from gpuaas_contract.event_types import BreakerChanged
from gpuaas_contract.instances import BreakerState, Instance, Member, Role
from gpuaas_contract.operations import OperationHead
from gpuaas_contract.protocol import request as request_rules
from gpuaas_contract.protocol import status as status_rules

from gpuaas_platform.call import Call, Origin
from gpuaas_platform.catalog import service as catalog
from gpuaas_platform.instances import events, store
from gpuaas_platform.kit import db


async def state(reader: db.Reader, instance_id: str, role: RoleSpec, now: datetime.datetime) -> BreakerState:
    since = now - datetime.timedelta(seconds=role.breaker.window_s)
    return request_rules.breaker_state(
        role, await store.failed_joins(reader, instance_id, role.component_key, since), now
    )


async def states(
    reader: db.Reader, instance_id: str, manifest: Manifest, now: datetime.datetime
) -> dict[str, BreakerState]:
    return {role.component_key: await state(reader, instance_id, role, now) for role in manifest.roles}


async def count_failures(
    tx: db.Tx, origin: Origin, operation: OperationHead, instance: Instance, failed: Sequence[Member]
) -> None:
    """Count failed members of an add or replace, all of one role; emit an event when that opens the breaker."""
    if not failed:
        return
    manifest = await catalog.manifest_of(tx, instance.app_slug, instance.app_version)
    role = role_of(manifest, operation.component_key)
    before = await state(tx, instance.instance_id, role, origin.now)
    for member in failed:
        await store.note_failed_join(tx, member, origin.now)
    after = await state(tx, instance.instance_id, role, origin.now)
    if after.open and not before.open:
        payload = _changed(role, after, failed[-1].status_reason)
        await events.emit(tx, origin, "apps.role.breaker", instance, payload, correlation_id=operation.correlation_id)


async def reset(tx: db.Tx, call: Call, instance: Instance, component_key: str, reason: str) -> Role:
    """Close the breaker of a role: its failed joins count no more."""
    manifest = await catalog.manifest_of(tx, instance.app_slug, instance.app_version)
    role = role_of(manifest, component_key)
    if (await state(tx, instance.instance_id, role, call.now)).open:
        await events.emit(tx, call.origin, "apps.role.breaker", instance, _changed(role, BreakerState(), reason))
    await store.forget_failed_joins(tx, instance.instance_id, component_key)
    members = await store.live_members(tx, instance.instance_id)
    present = status_rules.roles(manifest, members, await states(tx, instance.instance_id, manifest, call.now))
    return next(role for role in present if role.component_key == component_key)


def role_of(manifest: Manifest, component_key: str) -> RoleSpec:
    role = next((role for role in manifest.roles if role.component_key == component_key), None)
    if role is None:
        raise errors.NotFound(f"There is no role {component_key} in this instance.")
    return role


def _changed(role: RoleSpec, state: BreakerState, reason: str) -> BreakerChanged:
    return BreakerChanged(
        component_key=role.component_key,
        open=state.open,
        failures=state.failures,
        closes_at=state.closes_at,
        reason=reason,
    )
