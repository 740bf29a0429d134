"""SQL of nodes, enrolment tokens, node keys, the record of presence, and the agent's releases."""

import base64
import datetime
from collections.abc import Mapping, Sequence

import msgspec
from gpuaas_contract.agents import AgentRelease
from gpuaas_contract.capacity import Node, NodeQuery

from gpuaas_platform.kit import batches, clock, db
from gpuaas_platform.kit.tables import SplitTable, Table
from gpuaas_platform.nodes.rules import FreeNodes, NodeSummary

NODES = SplitTable(
    "nodes",
    Node,
    "node_id",
    "node_heartbeats",
    ("last_seen_at",),
    name=lambda node: node.name,
    status=lambda node: node.status,
    admin_state=lambda node: node.admin_state,
    region=lambda node: node.region,
    sku=lambda node: node.sku,
    allocation_id=lambda node: node.allocation_id or "",
    tenancy=lambda node: node.tenancy,
    used_by_project_id=lambda node: node.used_by_project_id,
    released_at=lambda node: clock.micros(node.released_at or clock.EPOCH),
    gpus=lambda node: len(node.facts.gpus),
    cpus=lambda node: node.facts.cpus,
    memory_mb=lambda node: node.facts.memory_mb,
)
AGENT_RELEASES = Table("agent_releases", AgentRelease, "sha256")
_LISTED_BY = ("status", "admin_state", "tenancy", "name", "region", "sku")
_FREE = "admin_state = 'active' AND status = 'ready' AND allocation_id = ''"
_OPEN = "(tenancy = 'clean' OR (tenancy = 'used' AND used_by_project_id <> '' AND used_by_project_id = ${at}))"
"""Whether a project may get a node. `at` is the number of the project's placeholder."""
_SILENT = """status = 'ready' AND admin_state <> 'retired'
    AND node_id IN (SELECT node_id FROM node_heartbeats WHERE received_at < $1)"""
# PostgreSQL finds the rows by `node_ids`; with the pairs alone it reads the whole table.
_REPEAT = """UPDATE node_heartbeats SET received_at = $1, document = $2
             WHERE node_id IN ({node_ids}) AND (node_id, report) IN (VALUES {pairs}) RETURNING node_id"""


def list_filter(query: NodeQuery) -> tuple[str, list[str]]:
    """Return the SQL condition for a list of nodes, and its values. Retired nodes are listed only on request."""
    where, values = db.equal({name: getattr(query, name) for name in _LISTED_BY})
    return where if query.admin_state else f"{where} AND admin_state <> 'retired'", values


async def insert(tx: db.Tx, node: Node) -> None:
    await NODES.insert(tx, node)
    await _note_heartbeat(tx, node, "")


async def save(tx: db.Tx, before: Node, after: Node, report: str = "") -> None:
    """Save `after` in place of `before`, the node as it was read in this transaction.

    `report` is the digest of the heartbeat whose values the node has now. Any other change of the node removes it, so
    that the next heartbeat is compared with the whole node again."""
    await NODES.change(tx, before, after)
    await _note_heartbeat(tx, after, report)


async def _note_heartbeat(tx: db.Tx, node: Node, report: str) -> None:
    sql = "UPDATE node_heartbeats SET received_at = $2, report = $3 WHERE node_id = $1"
    await tx.run(sql, node.node_id, clock.micros(node.last_seen_at), report)


async def note_repeated(tx: db.Tx, reports: Mapping[str, str], now: datetime.datetime) -> set[str]:
    """Record the heartbeats that repeat the last report of their node, with one statement, and return those nodes.

    `reports` has the digest of each node's report. The others changed something, or their node did since."""
    pairs = batches.padded(list(reports.items()))
    places = range(3, 3 + 2 * len(pairs), 2)
    sql = _REPEAT.format(
        node_ids=", ".join(f"${place}" for place in places),
        pairs=", ".join(f"(${place}, ${place + 1})" for place in places),
    )
    values = [value for pair in pairs for value in pair]
    document = msgspec.json.encode({"last_seen_at": now}).decode()
    return {row[0] for row in await tx.all(sql, clock.micros(now), document, *values)}


async def by_name(reader: db.Reader, name: str) -> Node | None:
    """Return the node with this name that is not retired."""
    nodes = await NODES.find(reader, "name = $1 AND admin_state <> 'retired'", name)
    return nodes[0] if nodes else None


async def free(reader: db.Reader, reuser: str, *, region: str, sku: str, name: str) -> list[FreeNodes]:
    """Count the nodes that can be allocated, by region and SKU. An empty filter matches all.

    `reuser` is the project that gets nodes again which it used before; empty: only clean nodes count."""
    where, values = db.equal({"region": region, "sku": sku, "name": name})
    is_open = _OPEN.format(at=len(values) + 1)
    sql = f"SELECT region, sku, COUNT(*) FROM nodes WHERE {_FREE} AND {where} AND {is_open} GROUP BY region, sku"  # noqa: S608
    return [FreeNodes(row[0], row[1], int(row[2])) for row in await reader.all(sql, *values, reuser)]


async def smallest_free(
    reader: db.Reader, reuser: str, region: str, skus: Sequence[str], *, name: str, limit: int
) -> list[Node]:
    """Return nodes of these SKUs that can be allocated in the region: smallest first, then those of the reuser."""
    where = f"{_FREE} AND region = $1 AND ($2 = '' OR name = $2) AND sku IN ({db.marks(len(skus), 5)})"
    order = f"{where} AND {_OPEN.format(at=4)} ORDER BY gpus, cpus, memory_mb, tenancy DESC, name LIMIT $3"
    return await NODES.find(reader, order, region, name, limit, reuser, *skus)


async def summaries(reader: db.Reader, reuser: str) -> list[NodeSummary]:
    """Return a summary of each node that is not retired, ordered by name."""
    sql = f"""SELECT name, region, sku, admin_state, status, allocation_id <> '' AS is_allocated, tenancy,
                     {_OPEN.format(at=1)} AS is_open
              FROM nodes WHERE admin_state <> 'retired' ORDER BY name"""  # noqa: S608
    return [
        NodeSummary(row[0], row[1], row[2], row[3], row[4], bool(row[5]), row[6], bool(row[7]))
        for row in await reader.all(sql, reuser)
    ]


async def unallocated(reader: db.Reader) -> list[Node]:
    """Return the nodes that belong to no allocation, whether they respond or not."""
    return await NODES.find(reader, "admin_state <> 'retired' AND allocation_id = '' ORDER BY node_id")


async def enrolled_ids(reader: db.Reader) -> list[str]:
    """Return the ids of all nodes that are not retired."""
    return await NODES.keys(reader, "admin_state <> 'retired' ORDER BY node_id")


async def is_any_silent(reader: db.Reader, silent_since: int) -> bool:
    return await reader.one(f"SELECT 1 FROM nodes WHERE {_SILENT} LIMIT 1", silent_since) is not None  # noqa: S608


async def silent(reader: db.Reader, silent_since: int) -> list[Node]:
    """Return the nodes with status `ready` that sent no heartbeat since this time."""
    return await NODES.find(reader, f"{_SILENT} ORDER BY node_id", silent_since)


async def is_any_enrolled(reader: db.Reader) -> bool:
    return await reader.one("SELECT 1 FROM nodes WHERE admin_state <> 'retired' LIMIT 1") is not None


async def presence(reader: db.Reader) -> tuple[int, int] | None:
    """Return since when heartbeats could be received without interruption, and when this was last recorded."""
    row = await reader.one("SELECT since, noted_at FROM node_hearing")
    return (row[0], row[1]) if row is not None else None


async def set_presence(tx: db.Tx, since: int, noted_at: int) -> None:
    sql = """INSERT INTO node_hearing (place, since, noted_at) VALUES (1, $1, $2)
             ON CONFLICT (place) DO UPDATE SET since = excluded.since, noted_at = excluded.noted_at"""
    await tx.run(sql, since, noted_at)


async def add_token(
    tx: db.Tx, digest: str, name: str, sku: str, region: str, expires_at: int, *, attempt_id: str = ""
) -> None:
    """Store a token. `attempt_id` is the attempt to sanitise the node that the token was made for."""
    sql = """INSERT INTO enrolment_tokens (digest, name, sku, region, expires_at, used_by, node_id, attempt_id)
             VALUES ($1, $2, $3, $4, $5, '', '', $6)"""
    await tx.run(sql, digest, name, sku, region, expires_at, attempt_id)


async def enrolment_token(reader: db.Reader, digest: str) -> db.Row | None:
    sql = """SELECT name, sku, region, expires_at, used_by, node_id, attempt_id FROM enrolment_tokens
             WHERE digest = $1"""
    return await reader.one(sql, digest)


async def use_token(tx: db.Tx, digest: str, public_key_pem: str, node_id: str) -> None:
    sql = "UPDATE enrolment_tokens SET used_by = $2, node_id = $3 WHERE digest = $1"
    await tx.run(sql, digest, public_key_pem, node_id)


async def set_key(tx: db.Tx, node_id: str, public_key_pem: str) -> None:
    sql = """INSERT INTO node_keys (node_id, public_key_pem) VALUES ($1, $2)
             ON CONFLICT (node_id) DO UPDATE SET public_key_pem = excluded.public_key_pem, is_ended = 0"""
    await tx.run(sql, node_id, public_key_pem)


async def node_key(reader: db.Reader, node_id: str) -> str | None:
    """Return the public key that the node may sign in with, in PEM form."""
    row = await reader.one("SELECT public_key_pem FROM node_keys WHERE node_id = $1 AND is_ended = 0", node_id)
    return str(row[0]) if row is not None else None


async def last_key(reader: db.Reader, node_id: str) -> str | None:
    """Return the public key that the node has or had last, even if it has ended."""
    row = await reader.one("SELECT public_key_pem FROM node_keys WHERE node_id = $1", node_id)
    return str(row[0]) if row is not None else None


async def end_key(tx: db.Tx, node_id: str) -> None:
    await tx.run("UPDATE node_keys SET is_ended = 1 WHERE node_id = $1", node_id)


async def use_proof(tx: db.Tx, node_id: str, nonce: str, *, now: int, expires_at: int) -> bool:
    """Record a sign-in proof; return False if it was used before. Proofs are kept for as long as they are valid."""
    await tx.run("DELETE FROM node_proofs WHERE node_id = $1 AND expires_at < $2", node_id, now)
    sql = "INSERT INTO node_proofs (node_id, nonce, expires_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
    return await tx.run(sql, node_id, nonce, expires_at) == 1


async def end_tokens(tx: db.Tx) -> None:
    await tx.run("DELETE FROM enrolment_tokens")


async def is_old_token(reader: db.Reader, before: int) -> bool:
    return await reader.one("SELECT 1 FROM enrolment_tokens WHERE expires_at < $1 LIMIT 1", before) is not None


async def forget_tokens(tx: db.Tx, before: int, limit: int) -> None:
    old = "SELECT digest FROM enrolment_tokens WHERE expires_at < $1 LIMIT $2"
    await tx.run(f"DELETE FROM enrolment_tokens WHERE digest IN ({old})", before, limit)  # noqa: S608


async def add_file(tx: db.Tx, sha256: str, content: bytes) -> None:
    encoded = base64.b64encode(content).decode()
    await tx.run("INSERT INTO agent_files (sha256, content) VALUES ($1, $2)", sha256, encoded)


async def file(reader: db.Reader, sha256: str) -> bytes | None:
    row = await reader.one("SELECT content FROM agent_files WHERE sha256 = $1", sha256)
    return base64.b64decode(row[0]) if row is not None else None
