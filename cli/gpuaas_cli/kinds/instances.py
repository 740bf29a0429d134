"""App instances, and all that belongs to one: members, roles, holds, operations, controllers, secrets."""

from collections.abc import Iterable, Sequence
from typing import Any

from gpuaas_contract import holds, instances, operations, runtime, secrets
from gpuaas_contract.lifecycles import GONE_MEMBER

from gpuaas_cli.client.session import Session
from gpuaas_cli.kinds.kind import AnyEndpoint, Filters, Kind
from gpuaas_cli.output import age
from gpuaas_cli.show import states


async def _members(session: Session, endpoint: AnyEndpoint, filters: Filters) -> Sequence[Any]:
    """Of one instance, else of all."""
    query = dict(filters.query)
    if filters.instance:
        return in_order(await session.every(endpoint, query=query, instance_id=filters.instance))
    result = await session.every(instances.INSTANCE_LIST, query=query)
    rows = [await session.every(endpoint, query=query, instance_id=item.instance_id) for item in result]
    return in_order(member for part in rows for member in part)


def in_order(members: Iterable[instances.Member]) -> list[instances.Member]:
    """As people count: by role, then gpu-2 before gpu-10."""
    return sorted(members, key=lambda item: (item.instance_id, item.component_key, len(item.node_name), item.node_name))


KINDS = (
    Kind(
        "instances",
        instances.INSTANCE_LIST,
        "name",
        "NAME APP=app_slug VERSION=app_version STATUS TOPOLOGY AGE=created_at INSTANCE=instance_id "
        "OPERATION=last_operation_id* CORRELATION=correlation_id* REASON=status_reason",
        words="inst insts app-instance app-instances",
        getting=instances.INSTANCE_GET,
        live={"live": "true"},
    ),
    Kind(
        "members",
        instances.MEMBER_LIST,
        "member_id",
        "MEMBER=member_id ROLE=component_key STATUS NODE=node_name ALLOCATION=allocation_id "
        "OPERATION=last_operation_id CORRELATION=correlation_id INSTANCE=instance_id* VERSION=observed_version* "
        "ADDRESS* DETAIL=status_reason",
        words="mem",
        known_by=("member_id", "node_name"),
        is_gone=lambda member: member.status in GONE_MEMBER,
        live={"live": "true"},
        fetch_rows=_members,
    ),
    Kind(
        "roles",
        instances.ROLE_LIST,
        "component_key",
        "ROLE=component_key HEALTH DESIRED CURRENT READY FAILED_LATELY=breaker.failures BREAKER",
        {"BREAKER": lambda role: states.of_breaker(role.breaker)},
        known_by=("component_key",),
    ),
    Kind(
        "holds",
        holds.HOLD_LIST,
        "hold_id",
        "HOLD=hold_id NAME KIND STATE MEMBER=member_id OWNER UNTIL=expires_at REASON",
        {"STATE": states.of_hold},
        known_by=("hold_id", "name"),
        is_gone=lambda hold: states.of_hold(hold) != "active",
    ),
    Kind(
        "operations",
        operations.OPERATION_LIST,
        "operation_id",
        "OPERATION=operation_id KIND INSTANCE=instance_name STATUS AGE=created_at CORRELATION=correlation_id "
        "ROLE=component_key* ATTEMPTS* BY=requested_by* ERROR",
        {"ERROR": lambda operation: f"{operation.error.code}: {operation.error.message}" if operation.error else ""},
        words="op ops",
        getting=operations.OPERATION_GET,
        is_gone=lambda operation: operation.kind == "preview",
        by_instance="instance_id",
    ),
    Kind(
        "controllers",
        runtime.CONTROLLER_LIST,
        "holder",
        "CONTROLLER=holder APP=app_slug VERSION ACTOR=actor_id ID=controller_id* LAST_SEEN",
        {"LAST_SEEN": lambda controller: f"{age(controller.last_seen_at)} ago"},
        known_by=("holder", "controller_id"),
    ),
    Kind(
        "secrets",
        secrets.SECRET_LIST,
        "secret_id",
        "SECRET=secret_id PURPOSE NAME VERSION STATE OPENED UNTIL=expires_at FINGERPRINT* BY=issued_by* "
        "OPERATION=operation_id",
        {"OPENED": lambda secret: f"{secret.deliveries_opened}/{secret.deliveries}"},
        words="runtime-secret runtime-secrets",
        known_by=("secret_id", "name"),
        is_gone=lambda secret: secret.state != "issued",
    ),
)
