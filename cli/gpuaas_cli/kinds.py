"""What `gpuaas get` can list: names of each kind, how it is fetched, and its columns."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpuaas_contract.capacity import ALLOCATION_LIST, NODE_LIST
from gpuaas_contract.catalog import PROJECT_APP_LIST, VERSION_LIST
from gpuaas_contract.events import AUDIT_LIST, EVENT_LIST
from gpuaas_contract.identity import ORG_LIST, PROJECT_LIST, SERVICE_ACCOUNT_LIST
from gpuaas_contract.instances import INSTANCE_LIST
from gpuaas_contract.lifecycles import GONE_MEMBER
from gpuaas_contract.operations import OPERATION_LIST

from gpuaas_cli import lookup
from gpuaas_cli.output import Column, age, clock_time
from gpuaas_cli.session import Session

RECORD_LIMIT = 500


@dataclass(frozen=True)
class Filters:
    instance: str = ""
    correlation: str = ""
    everything: bool = False
    """Also what is gone: deleted instances, removed members, released allocations."""


Fetch = Callable[[Session, Filters], Awaitable[Sequence[Any]]]


@dataclass(frozen=True)
class Kind:
    plural: str
    names: frozenset[str]
    fetch: Fetch
    columns: tuple[Column, ...]
    name: Callable[[Any], str]
    """What other commands take for one of these."""
    answers_to: Callable[[Any], tuple[str, ...]]
    """What NAME may be in `gpuaas get KIND NAME`."""


async def _projects(session: Session, _: Filters) -> Sequence[Any]:
    return await session.every(PROJECT_LIST)


async def _orgs(session: Session, _: Filters) -> Sequence[Any]:
    return await session.every(ORG_LIST)


async def _nodes(session: Session, _: Filters) -> Sequence[Any]:
    return sorted(await session.every(NODE_LIST), key=lambda node: node.name)


async def _allocations(session: Session, filters: Filters) -> Sequence[Any]:
    found = await session.every(ALLOCATION_LIST)
    return [one for one in found if filters.everything or one.status != "released"]


async def _apps(session: Session, filters: Filters) -> Sequence[Any]:
    return await session.every(VERSION_LIST if filters.everything else PROJECT_APP_LIST)


async def _instances(session: Session, filters: Filters) -> Sequence[Any]:
    found = await session.every(INSTANCE_LIST)
    return [one for one in found if filters.everything or one.status != "deleted"]


async def _members(session: Session, filters: Filters) -> Sequence[Any]:
    found = await lookup.all_members(session, filters.instance)
    return [one for one in found if filters.everything or one.status not in GONE_MEMBER]


async def _operations(session: Session, filters: Filters) -> Sequence[Any]:
    query = {"instance_id": (await lookup.instance(session, filters.instance)).instance_id} if filters.instance else {}
    found = await session.every(OPERATION_LIST, query=query)
    return [one for one in found if filters.correlation in ("", one.correlation_id)]


async def _service_accounts(session: Session, _: Filters) -> Sequence[Any]:
    return await session.every(SERVICE_ACCOUNT_LIST)


async def _events(session: Session, filters: Filters) -> Sequence[Any]:
    query: dict[str, Any] = {"limit": RECORD_LIMIT, "correlation_id": filters.correlation, "after": 0}
    if filters.instance:
        query["app_instance_id"] = (await lookup.instance(session, filters.instance)).instance_id
    found: list[Any] = []
    while True:
        page = await session.call(EVENT_LIST, query=query)
        found += page.items
        if len(page.items) < RECORD_LIMIT:
            return found
        query["after"] = page.cursor


async def _audit(session: Session, filters: Filters) -> Sequence[Any]:
    query = {"limit": RECORD_LIMIT, "correlation_id": filters.correlation}
    return (await session.call(AUDIT_LIST, query=query)).items


def find(word: str) -> Kind | None:
    return next((kind for kind in KINDS if word.lower() in kind.names), None)


def get(plural: str) -> Kind:
    return next(kind for kind in KINDS if kind.plural == plural)


def _names(*words: str) -> frozenset[str]:
    return frozenset(words)


def payload_text(payload: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in payload.items() if value not in ("", None, [], {}))


KINDS: tuple[Kind, ...] = (
    Kind(
        "orgs",
        _names("org", "orgs", "organisation", "organisations"),
        _orgs,
        (
            Column("NAME", lambda one: one.name),
            Column("ORG", lambda one: one.org_id),
            Column("AGE", lambda one: age(one.created_at)),
        ),
        lambda one: one.name,
        lambda one: (one.name, one.org_id),
    ),
    Kind(
        "projects",
        _names("project", "projects", "proj"),
        _projects,
        (
            Column("NAME", lambda one: one.name),
            Column("PROJECT", lambda one: one.project_id),
            Column("ORG", lambda one: one.org_id),
            Column("AGE", lambda one: age(one.created_at)),
        ),
        lambda one: one.name,
        lambda one: (one.name, one.project_id),
    ),
    Kind(
        "nodes",
        _names("node", "nodes"),
        _nodes,
        (
            Column("NAME", lambda one: one.name),
            Column("STATUS", lambda one: one.status),
            Column("GPUS", lambda one: str(len(one.facts.gpus))),
            Column("CPUS", lambda one: str(one.facts.cpus)),
            Column("MEMORY_MB", lambda one: str(one.facts.memory_mb)),
            Column("ADDRESS", lambda one: one.address),
            Column("SEEN", lambda one: age(one.last_seen_at)),
            Column("SKU", lambda one: one.sku, wide=True),
            Column("REGION", lambda one: one.region, wide=True),
            Column("AGENT", lambda one: one.agent_version, wide=True),
            Column("NODE", lambda one: one.node_id, wide=True),
            Column("ALLOCATION", lambda one: one.allocation_id or ""),
        ),
        lambda one: one.name,
        lambda one: (one.name, one.node_id),
    ),
    Kind(
        "allocations",
        _names("allocation", "allocations", "alloc", "allocs"),
        _allocations,
        (
            Column("ALLOCATION", lambda one: one.allocation_id),
            Column("STATUS", lambda one: one.status),
            Column("NODE", lambda one: one.node_name),
            Column("GPUS", lambda one: str(one.gpus)),
            Column("ADDRESS", lambda one: one.address),
            Column("USED_BY", lambda one: ",".join(one.used_by_instance_ids)),
            Column("AGE", lambda one: age(one.created_at)),
            Column("SKU", lambda one: one.sku, wide=True),
            Column("USER", lambda one: one.username_on_node, wide=True),
            Column("CORRELATION", lambda one: one.correlation_id, wide=True),
            Column("REASON", lambda one: one.status_reason),
        ),
        lambda one: one.allocation_id,
        lambda one: (one.allocation_id, one.node_name),
    ),
    Kind(
        "apps",
        _names("app", "apps"),
        _apps,
        (
            Column("APP", lambda one: one.app_slug),
            Column("VERSION", lambda one: one.version),
            Column("STATE", lambda one: one.state),
            Column("TOPOLOGIES", lambda one: ",".join(one.manifest.topologies)),
            Column("ROLES", lambda one: ",".join(role.component_key for role in one.manifest.roles), wide=True),
            Column("AGE", lambda one: age(one.created_at), wide=True),
            Column("SUMMARY", lambda one: one.summary or one.display_name),
        ),
        lambda one: one.app_slug,
        lambda one: (one.app_slug, f"{one.app_slug}@{one.version}"),
    ),
    Kind(
        "instances",
        _names("instance", "instances", "inst", "insts", "app-instance", "app-instances"),
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
    ),
    Kind(
        "members",
        _names("member", "members", "mem"),
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
        "operations",
        _names("operation", "operations", "op", "ops"),
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
    ),
    Kind(
        "service-accounts",
        _names("service-account", "service-accounts", "serviceaccount", "serviceaccounts", "sa"),
        _service_accounts,
        (
            Column("NAME", lambda one: one.name),
            Column("STATE", lambda one: one.state),
            Column("AGE", lambda one: age(one.created_at)),
            Column("SERVICE_ACCOUNT", lambda one: one.service_account_id),
        ),
        lambda one: one.name,
        lambda one: (one.name, one.service_account_id),
    ),
    Kind(
        "events",
        _names("event", "events", "ev"),
        _events,
        (
            Column("TIME", lambda one: clock_time(one.occurred_at)),
            Column("CURSOR", lambda one: str(one.cursor)),
            Column("TYPE", lambda one: one.type),
            Column("CORRELATION", lambda one: one.correlation_id),
            Column("INSTANCE", lambda one: one.app_instance_id, wide=True),
            Column("EVENT", lambda one: one.event_id, wide=True),
            Column("PAYLOAD", lambda one: payload_text(one.payload)),
        ),
        lambda one: one.event_id,
        lambda one: (one.event_id,),
    ),
    Kind(
        "audit",
        _names("audit", "audits", "audit-rows"),
        _audit,
        (
            Column("TIME", lambda one: clock_time(one.occurred_at)),
            Column("ACTOR", lambda one: f"{one.actor_type}:{one.actor_id}" if one.actor_id else one.actor_type),
            Column("ACTION", lambda one: one.action),
            Column("RESULT", lambda one: one.result),
            Column("CORRELATION", lambda one: one.correlation_id),
            Column("AUDIT", lambda one: one.audit_id, wide=True),
            Column("TARGET", lambda one: one.target),
        ),
        lambda one: one.audit_id,
        lambda one: (one.audit_id,),
    ),
)
