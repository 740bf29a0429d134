"""SQL of nodes, of when the platform could receive heartbeats, and of the public half of the SSH authority."""

from collections.abc import Sequence
from typing import Any

from gpuaas_contract.capacity import Node, NodeQuery

from gpuaas_platform.kit import clock, db
from gpuaas_platform.kit.tables import Table
from gpuaas_platform.nodes.rules import FreeNodes, NodeSummary

NODES = Table(
    "nodes",
    Node,
    "node_id",
    name=lambda node: node.name,
    status=lambda node: node.status,
    admin_state=lambda node: node.admin_state,
    region=lambda node: node.region,
    sku=lambda node: node.sku,
    last_seen_at=lambda node: clock.micros(node.last_seen_at),
    allocation_id=lambda node: node.allocation_id or "",
    gpus=lambda node: len(node.facts.gpus),
    cpus=lambda node: node.facts.cpus,
    memory_mb=lambda node: node.facts.memory_mb,
)
_FREE = "admin_state = 'active' AND status = 'ready' AND allocation_id = ''"
_SILENT = "status = 'ready' AND admin_state <> 'retired' AND last_seen_at < $1"


def list_filter(query: NodeQuery) -> tuple[str, list[Any]]:
    """The condition of a list of nodes. Retired nodes are listed only if the query asks for them."""
    wanted = {name: getattr(query, name) for name in ("status", "admin_state", "name", "region", "sku")}
    asked = [(name, value) for name, value in wanted.items() if value]
    parts = [f"{name} = ${position}" for position, (name, _) in enumerate(asked, 1)]
    if query.admin_state is None:
        parts.append("admin_state <> 'retired'")
    return " AND ".join(parts), [value for _, value in asked]


async def by_name(reader: db.Reader, name: str) -> Node | None:
    """The node of this name that is not retired."""
    nodes = await NODES.find(reader, "name = $1 AND admin_state <> 'retired'", name)
    return nodes[0] if nodes else None


async def ready_ids(reader: db.Reader, node_ids: Sequence[str]) -> set[str]:
    """Those of these nodes that send heartbeats and are not retired."""
    if not node_ids:
        return set()
    rows = await reader.all(
        f"""SELECT node_id FROM nodes WHERE status = 'ready' AND admin_state <> 'retired'
            AND node_id IN ({db.marks(len(node_ids))})""",  # noqa: S608 - marks only
        *node_ids,
    )
    return {row[0] for row in rows}


async def free(reader: db.Reader, *, region: str, sku: str, name: str) -> list[FreeNodes]:
    """How many nodes can be allocated, by region and SKU. An empty filter matches all."""
    wanted = [(column, value) for column, value in (("region", region), ("sku", sku), ("name", name)) if value]
    parts = [_FREE, *(f"{column} = ${position}" for position, (column, _) in enumerate(wanted, 1))]
    rows = await reader.all(
        f"SELECT region, sku, COUNT(*) FROM nodes WHERE {' AND '.join(parts)} GROUP BY region, sku",  # noqa: S608
        *(value for _, value in wanted),
    )
    return [FreeNodes(row[0], row[1], int(row[2])) for row in rows]


async def smallest_free(reader: db.Reader, region: str, skus: Sequence[str], *, name: str, limit: int) -> list[Node]:
    """The smallest nodes of these SKUs that can be allocated in the region."""
    where = f"{_FREE} AND region = $1 AND ($2 = '' OR name = $2) AND sku IN ({db.marks(len(skus), 4)})"
    order = f"{where} ORDER BY gpus, cpus, memory_mb, name LIMIT $3"
    return await NODES.find(reader, order, region, name, limit, *skus)


async def summaries(reader: db.Reader) -> list[NodeSummary]:
    """Every node that is not retired, by name."""
    rows = await reader.all(
        """SELECT name, region, sku, admin_state, status, allocation_id FROM nodes
           WHERE admin_state <> 'retired' ORDER BY name"""
    )
    return [NodeSummary(row[0], row[1], row[2], row[3], row[4], bool(row[5])) for row in rows]


async def is_any_silent(reader: db.Reader, silent_since: int) -> bool:
    return await reader.one(f"SELECT 1 FROM nodes WHERE {_SILENT} LIMIT 1", silent_since) is not None  # noqa: S608


async def silent(reader: db.Reader, silent_since: int) -> list[Node]:
    """Nodes that count as ready and sent no heartbeat since then."""
    return await NODES.find(reader, f"{_SILENT} ORDER BY node_id", silent_since)


async def is_any_enrolled(reader: db.Reader) -> bool:
    return await reader.one("SELECT 1 FROM nodes WHERE admin_state <> 'retired' LIMIT 1") is not None


async def presence(reader: db.Reader) -> tuple[int, int] | None:
    """Since when heartbeats could be received without a break, and when that was noted last."""
    row = await reader.one("SELECT since, noted_at FROM node_hearing")
    return (row[0], row[1]) if row is not None else None


async def set_presence(tx: db.Tx, since: int, noted_at: int) -> None:
    await tx.run(
        """INSERT INTO node_hearing (place, since, noted_at) VALUES (1, $1, $2)
           ON CONFLICT (place) DO UPDATE SET since = excluded.since, noted_at = excluded.noted_at""",
        since,
        noted_at,
    )


async def ssh_authority(reader: db.Reader) -> tuple[str, str] | None:
    """The public key, and the id of the secret that holds the private one."""
    row = await reader.one("SELECT public_key, secret_id FROM ssh_authority")
    return (row[0], row[1]) if row is not None else None


async def set_ssh_authority(tx: db.Tx, public_key: str, secret_id: str) -> None:
    """There is one row; the store refuses a second."""
    sql = "INSERT INTO ssh_authority (only_row, public_key, secret_id) VALUES (1, $1, $2)"
    await tx.run(sql, public_key, secret_id)
