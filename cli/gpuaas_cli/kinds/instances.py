"""App instances, and all that belongs to one: members, roles, holds, operations, controllers, secrets."""

from collections.abc import Sequence
from typing import Any

from gpuaas_contract.holds import HOLD_LIST
from gpuaas_contract.instances import INSTANCE_LIST, ROLE_LIST
from gpuaas_contract.lifecycles import GONE_MEMBER
from gpuaas_contract.operations import OPERATION_LIST
from gpuaas_contract.runtime import CONTROLLER_LIST
from gpuaas_contract.secrets import SECRET_LIST

from gpuaas_cli.client import lookup
from gpuaas_cli.client.session import Session
from gpuaas_cli.kinds.kind import Filters, Kind, listed, names
from gpuaas_cli.output import Column, age, clock_time
from gpuaas_cli.show import states


async def _instances(session: Session, filters: Filters) -> Sequence[Any]:
    found = await session.every(INSTANCE_LIST)
    return [one for one in found if filters.everything or one.status != "deleted"]


async def _members(session: Session, filters: Filters) -> Sequence[Any]:
    found = await lookup.all_members(session, filters.instance)
    return [one for one in found if filters.everything or one.status not in GONE_MEMBER]


async def _operations(session: Session, filters: Filters) -> Sequence[Any]:
    query = {"instance_id": (await lookup.instance(session, filters.instance)).instance_id} if filters.instance else {}
    found = await session.every(OPERATION_LIST, query=query)
    shown = [one for one in found if filters.everything or one.kind != "preview"]
    return [one for one in shown if filters.correlation in ("", one.correlation_id)]


async def _roles(session: Session, filters: Filters) -> Sequence[Any]:
    return (await session.call(ROLE_LIST, instance_id=filters.instance)).items


async def _holds(session: Session, filters: Filters) -> Sequence[Any]:
    found = await session.every(HOLD_LIST, instance_id=filters.instance)
    return [one for one in found if filters.everything or states.of_hold(one) == "standing"]


async def _secrets(session: Session, filters: Filters) -> Sequence[Any]:
    found = await session.every(SECRET_LIST, instance_id=filters.instance)
    return [one for one in found if filters.everything or one.state == "issued"]


KINDS: tuple[Kind, ...] = (
    Kind(
        "instances",
        names("instance", "instances", "inst", "insts", "app-instance", "app-instances"),
        _instances,
        (
            Column("NAME", lambda one: one.name),
            Column("APP", lambda one: one.app_slug),
            Column("VERSION", lambda one: one.app_version),
            Column("STATUS", lambda one: one.status),
            Column("TOPOLOGY", lambda one: one.topology),
            Column("AGE", lambda one: age(one.created_at)),
            Column("INSTANCE", lambda one: one.instance_id),
            Column("OPERATION", lambda one: one.last_operation_id, wide=True),
            Column("CORRELATION", lambda one: one.correlation_id, wide=True),
            Column("REASON", lambda one: one.status_reason),
        ),
        lambda one: one.name,
        lambda one: (one.name, one.instance_id),
        find=lookup.instance,
    ),
    Kind(
        "members",
        names("member", "members", "mem"),
        _members,
        (
            Column("MEMBER", lambda one: one.member_id),
            Column("ROLE", lambda one: one.component_key),
            Column("STATUS", lambda one: one.status),
            Column("NODE", lambda one: one.node_name),
            Column("ALLOCATION", lambda one: one.allocation_id),
            Column("OPERATION", lambda one: one.last_operation_id),
            Column("CORRELATION", lambda one: one.correlation_id),
            Column("INSTANCE", lambda one: one.instance_id, wide=True),
            Column("VERSION", lambda one: one.observed_version, wide=True),
            Column("ADDRESS", lambda one: one.address, wide=True),
            Column("DETAIL", lambda one: one.status_reason),
        ),
        lambda one: one.member_id,
        lambda one: (one.member_id, one.node_name),
    ),
    Kind(
        "roles",
        names("role", "roles"),
        _roles,
        (
            Column("ROLE", lambda one: one.component_key),
            Column("HEALTH", lambda one: one.health),
            Column("DESIRED", lambda one: str(one.desired)),
            Column("CURRENT", lambda one: str(one.current)),
            Column("READY", lambda one: str(one.ready)),
            Column("FAILED_LATELY", lambda one: str(one.breaker.failures)),
            Column("BREAKER", lambda one: states.of_breaker(one.breaker)),
        ),
        lambda one: one.component_key,
        lambda one: (one.component_key,),
        of_instance=True,
    ),
    Kind(
        "holds",
        names("hold", "holds"),
        _holds,
        (
            Column("HOLD", lambda one: one.hold_id),
            Column("NAME", lambda one: one.name),
            Column("KIND", lambda one: one.kind),
            Column("STATE", states.of_hold),
            Column("MEMBER", lambda one: one.member_id),
            Column("OWNER", lambda one: one.owner),
            Column("UNTIL", lambda one: clock_time(one.expires_at)),
            Column("REASON", lambda one: one.reason),
        ),
        lambda one: one.hold_id,
        lambda one: (one.hold_id, one.name),
        of_instance=True,
    ),
    Kind(
        "operations",
        names("operation", "operations", "op", "ops"),
        _operations,
        (
            Column("OPERATION", lambda one: one.operation_id),
            Column("KIND", lambda one: one.kind),
            Column("INSTANCE", lambda one: one.instance_name),
            Column("STATUS", lambda one: one.status),
            Column("AGE", lambda one: age(one.created_at)),
            Column("CORRELATION", lambda one: one.correlation_id),
            Column("ROLE", lambda one: one.component_key, wide=True),
            Column("ATTEMPTS", lambda one: str(one.attempts), wide=True),
            Column("BY", lambda one: one.requested_by, wide=True),
            Column("ERROR", lambda one: f"{one.error.code}: {one.error.message}" if one.error else ""),
        ),
        lambda one: one.operation_id,
        lambda one: (one.operation_id,),
        find=lookup.operation,
    ),
    Kind(
        "controllers",
        names("controller", "controllers"),
        listed(CONTROLLER_LIST),
        (
            Column("CONTROLLER", lambda one: one.holder),
            Column("APP", lambda one: one.app_slug),
            Column("VERSION", lambda one: one.version),
            Column("ACTOR", lambda one: one.actor_id),
            Column("ID", lambda one: one.controller_id, wide=True),
            Column("LAST_SEEN", lambda one: f"{age(one.last_seen_at)} ago"),
        ),
        lambda one: one.holder,
        lambda one: (one.holder, one.controller_id),
    ),
    Kind(
        "secrets",
        names("secret", "secrets", "runtime-secret", "runtime-secrets"),
        _secrets,
        (
            Column("SECRET", lambda one: one.secret_id),
            Column("PURPOSE", lambda one: one.purpose),
            Column("NAME", lambda one: one.name),
            Column("VERSION", lambda one: str(one.version)),
            Column("STATE", lambda one: one.state),
            Column("OPENED", lambda one: f"{one.deliveries_opened}/{one.deliveries}"),
            Column("UNTIL", lambda one: clock_time(one.expires_at)),
            Column("FINGERPRINT", lambda one: one.fingerprint, wide=True),
            Column("BY", lambda one: one.issued_by, wide=True),
            Column("OPERATION", lambda one: one.operation_id),
        ),
        lambda one: one.secret_id,
        lambda one: (one.secret_id, one.name),
        of_instance=True,
    ),
)
