"""SQL of nodes, their keys, tasks, enrolment tokens and allocations."""

from collections.abc import Sequence

from gpuaas_contract.capacity import Allocation, Node

from gpuaas_platform.kit import clock, db
from gpuaas_platform.kit.tables import Table

NODES = Table(
    "nodes",
    Node,
    "node_id",
    name=lambda node: node.name,
    status=lambda node: node.status,
    last_seen_at=lambda node: clock.micros(node.last_seen_at),
)
ALLOCATIONS = Table(
    "allocations",
    Allocation,
    "allocation_id",
    project_id=lambda allocation: allocation.project_id,
    node_id=lambda allocation: allocation.node_id,
    status=lambda allocation: allocation.status,
)


async def unreleased_count(reader: db.Reader, project_id: str) -> int:
    """Allocations that hold a node, failed ones included: those hold it until they are released."""
    row = await reader.one(
        "SELECT COUNT(*) FROM allocations WHERE project_id = $1 AND status <> 'released'", project_id
    )
    return int(row[0]) if row is not None else 0


async def add_enrolment_token(tx: db.Tx, digest: str, name: str, sku: str, region: str, expires_at: int) -> None:
    await tx.run(
        """INSERT INTO enrolment_tokens (digest, name, sku, region, expires_at, used_by, node_id)
           VALUES ($1, $2, $3, $4, $5, '', '')""",
        digest,
        name,
        sku,
        region,
        expires_at,
    )


async def enrolment_token(reader: db.Reader, digest: str) -> db.Row | None:
    return await reader.one(
        "SELECT name, sku, region, expires_at, used_by, node_id FROM enrolment_tokens WHERE digest = $1", digest
    )


async def use_enrolment_token(tx: db.Tx, digest: str, public_key_pem: str, node_id: str) -> None:
    await tx.run(
        "UPDATE enrolment_tokens SET used_by = $2, node_id = $3 WHERE digest = $1", digest, public_key_pem, node_id
    )


async def set_node_key(tx: db.Tx, node_id: str, public_key_pem: str) -> None:
    await tx.run(
        """INSERT INTO node_keys (node_id, public_key_pem, last_login) VALUES ($1, $2, '')
           ON CONFLICT (node_id) DO UPDATE SET public_key_pem = excluded.public_key_pem""",
        node_id,
        public_key_pem,
    )


async def node_key(reader: db.Reader, node_id: str) -> db.Row | None:
    return await reader.one("SELECT public_key_pem, last_login FROM node_keys WHERE node_id = $1", node_id)


async def note_login(tx: db.Tx, node_id: str, login: str) -> None:
    await tx.run("UPDATE node_keys SET last_login = $2 WHERE node_id = $1", node_id, login)


async def add_task(
    tx: db.Tx,
    task_id: str,
    *,
    node_id: str,
    kind: str,
    subject_id: str,
    expires_at: int,
    payload: str,
    signature: str,
) -> None:
    await tx.run(
        """INSERT INTO node_tasks (task_id, node_id, type, subject_id, state, expires_at, payload, signature, result)
           VALUES ($1, $2, $3, $4, 'queued', $5, $6, $7, '')""",
        task_id,
        node_id,
        kind,
        subject_id,
        expires_at,
        payload,
        signature,
    )


async def next_task(reader: db.Reader, node_id: str, now: int) -> db.Row | None:
    return await reader.one(
        """SELECT payload, signature FROM node_tasks
           WHERE node_id = $1 AND state = 'queued' AND expires_at > $2 ORDER BY task_id LIMIT 1""",
        node_id,
        now,
    )


async def task(reader: db.Reader, task_id: str) -> db.Row | None:
    return await reader.one("SELECT node_id, type, subject_id, state FROM node_tasks WHERE task_id = $1", task_id)


async def end_task(tx: db.Tx, task_id: str, state: str, result: str) -> None:
    await tx.run("UPDATE node_tasks SET state = $2, result = $3 WHERE task_id = $1", task_id, state, result)


async def expired_tasks(reader: db.Reader, now: int) -> Sequence[db.Row]:
    return await reader.all(
        "SELECT task_id, type, subject_id FROM node_tasks WHERE state = 'queued' AND expires_at <= $1 LIMIT 100", now
    )
