"""Nodes and their agent, what they were told to do, and the claims of projects on them."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuaas_contract.agents import AGENT_RELEASE_LIST
from gpuaas_contract.capacity import ALLOCATION_LIST, NODE_LIST

from gpuaas_cli.client.session import Session
from gpuaas_cli.kinds.kind import Filters, Kind, listed, names
from gpuaas_cli.output import Column, age
from gpuaas_cli.show import states


async def _nodes(session: Session, filters: Filters) -> Sequence[Any]:
    found = await session.every(NODE_LIST)
    if filters.everything:
        found += await session.every(NODE_LIST, query={"admin_state": "retired"})
    return sorted(found, key=lambda node: node.name)


async def _allocations(session: Session, filters: Filters) -> Sequence[Any]:
    found = await session.every(ALLOCATION_LIST)
    return [one for one in found if filters.everything or one.status != "released"]


def task_columns(node_names: Mapping[str, str]) -> tuple[Column, ...]:
    """A task knows its node by id; people by name."""
    return (
        Column("TASK", lambda one: one.task_id),
        Column("NODE", lambda one: node_names.get(one.node_id, one.node_id)),
        Column("TYPE", lambda one: one.type),
        Column("STATE", lambda one: one.state),
        Column("AGE", lambda one: age(one.issued_at)),
        Column("FOR", lambda one: one.subject_id, wide=True),
        Column("CORRELATION", lambda one: one.correlation_id, wide=True),
        Column("WHY", states.why_not),
    )


KINDS: tuple[Kind, ...] = (
    Kind(
        "nodes",
        names("node", "nodes"),
        _nodes,
        (
            Column("NAME", lambda one: one.name),
            Column("STATUS", lambda one: one.status),
            Column("STATE", lambda one: one.admin_state),
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
            Column("WHY", lambda one: one.admin_reason),
        ),
        lambda one: one.name,
        lambda one: (one.name, one.node_id),
    ),
    Kind(
        "allocations",
        names("allocation", "allocations", "alloc", "allocs"),
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
            Column("REGION", lambda one: one.region, wide=True),
            Column("USER", lambda one: one.username_on_node, wide=True),
            Column("CORRELATION", lambda one: one.correlation_id, wide=True),
            Column("REASON", lambda one: one.status_reason),
        ),
        lambda one: one.allocation_id,
        lambda one: (one.allocation_id, one.node_name),
    ),
    Kind(
        "agent-releases",
        names("agent-release", "agent-releases"),
        listed(AGENT_RELEASE_LIST),
        (
            Column("VERSION", lambda one: one.version),
            Column("BYTES", lambda one: str(one.size_bytes)),
            Column("AGE", lambda one: age(one.registered_at)),
            Column("BY", lambda one: one.registered_by, wide=True),
            Column("SHA256", lambda one: one.sha256),
        ),
        lambda one: one.sha256,
        lambda one: (one.sha256, one.version),
    ),
)
