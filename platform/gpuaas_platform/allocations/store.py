"""SQL of nodes, their keys, tasks, enrolment tokens and allocations."""

from collections.abc import Sequence
from typing import Any

from gpuaas_contract.capacity import Allocation, AllocationQuery, Node, NodeQuery
from gpuaas_contract.node import URGENT_TASKS

from gpuaas_platform.kit import clock, db
from gpuaas_platform.kit.tables import Table

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
)
ALLOCATIONS = Table(
    "allocations",
    Allocation,
    "allocation_id",
    project_id=lambda allocation: allocation.project_id,
    node_id=lambda allocation: allocation.node_id,
    status=lambda allocation: allocation.status,
    sku=lambda allocation: allocation.sku,
    region=lambda allocation: allocation.region,
    is_used=lambda allocation: int(bool(allocation.used_by_instance_ids)),
    provision_retry_at=lambda allocation: clock.micros(allocation.provision_retry_at or clock.EPOCH),
    release_retry_at=lambda allocation: clock.micros(allocation.release_retry_at or clock.EPOCH),
)
LOOP = "capacity"
"""Woken by whoever puts something on record that the loop of this domain has to bring about."""
_RETRIED_AT_ONCE = 100
_IS_URGENT = f"type IN ({', '.join(repr(kind) for kind in sorted(URGENT_TASKS))})"
_READY_TASKS = f"""
    SELECT payload, signature, {_IS_URGENT} AS is_urgent FROM node_tasks task
    WHERE node_id = $1 AND state = 'queued' AND expires_at > $2
    AND NOT EXISTS (SELECT 1 FROM node_tasks earlier
                    WHERE earlier.node_id = $1 AND earlier.state = 'queued' AND earlier.expires_at > $2
                    AND earlier.subject_id = task.subject_id AND earlier.task_id < task.task_id)"""  # noqa: S608
_NEXT_TASK = f"{_READY_TASKS} ORDER BY is_urgent DESC, task_id LIMIT 1"
_NEXT_URGENT_TASK = f"{_READY_TASKS} AND {_IS_URGENT} ORDER BY task_id LIMIT 1"


def node_filter(query: NodeQuery) -> tuple[str, list[Any]]:
    """Retired nodes are history: shown only to those who ask for them."""
    wanted = {name: getattr(query, name) for name in ("status", "admin_state", "name", "region", "sku")}
    asked = [(name, value) for name, value in wanted.items() if value]
    parts = [f"{name} = ${position}" for position, (name, _) in enumerate(asked, 1)]
    if query.admin_state is None:
        parts.append("admin_state <> 'retired'")
    return " AND ".join(parts), [value for _, value in asked]


def allocation_filter(project_id: str, query: AllocationQuery) -> tuple[str, list[Any]]:
    wanted = {name: getattr(query, name) for name in ("status", "sku", "region")}
    asked = [("project_id", project_id), *((name, value) for name, value in wanted.items() if value)]
    parts = [f"{name} = ${position}" for position, (name, _) in enumerate(asked, 1)]
    if query.free:
        parts.append("status = 'active' AND is_used = 0")
    return " AND ".join(parts), [value for _, value in asked]


async def node_named(reader: db.Reader, name: str) -> Node | None:
    """A retired node has given its name up."""
    found = await NODES.find(reader, "name = $1 AND admin_state <> 'retired'", name)
    return found[0] if found else None


async def allocation_on(reader: db.Reader, node_name: str) -> Allocation | None:
    """The allocation that holds the node of this name."""
    found = await ALLOCATIONS.find(
        reader,
        """status <> 'released'
           AND node_id = (SELECT node_id FROM nodes WHERE name = $1 AND admin_state <> 'retired')""",
        node_name,
    )
    return found[0] if found else None


async def provisions_due(reader: db.Reader, now: int) -> list[Allocation]:
    """Those whose node was installed anew and is heard, when their time has come."""
    return await _due(reader, "provision_retry_at", now)


async def releases_due(reader: db.Reader, now: int) -> list[Allocation]:
    """Those whose node could not be cleaned and is heard, when their time has come."""
    return await _due(reader, "release_retry_at", now)


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
        """INSERT INTO node_keys (node_id, public_key_pem) VALUES ($1, $2)
           ON CONFLICT (node_id) DO UPDATE SET public_key_pem = excluded.public_key_pem""",
        node_id,
        public_key_pem,
    )


async def node_key(reader: db.Reader, node_id: str) -> db.Row | None:
    return await reader.one("SELECT public_key_pem FROM node_keys WHERE node_id = $1", node_id)


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


async def next_task(reader: db.Reader, node_id: str, now: int, *, urgent_only: bool) -> db.Row | None:
    """The urgent ones first. What is about one subject keeps its order: nothing overtakes what it builds on."""
    return await reader.one(_NEXT_URGENT_TASK if urgent_only else _NEXT_TASK, node_id, now)


async def is_queued(reader: db.Reader, node_id: str, task_id: str) -> bool:
    found = await task(reader, task_id)
    return found is not None and found["node_id"] == node_id and found["state"] == "queued"


async def task(reader: db.Reader, task_id: str) -> db.Row | None:
    return await reader.one(
        "SELECT task_id, node_id, type, subject_id, state FROM node_tasks WHERE task_id = $1", task_id
    )


async def end_task(tx: db.Tx, task_id: str, state: str, result: str) -> None:
    await tx.run("UPDATE node_tasks SET state = $2, result = $3 WHERE task_id = $1", task_id, state, result)
    tx.wake(task_topic(task_id))


async def withdraw_task(tx: db.Tx, node_id: str, subject_id: str) -> None:
    """Whatever this node was to do about it is not wanted any more."""
    wanted = "SELECT task_id FROM node_tasks WHERE node_id = $1 AND state = 'queued' AND subject_id = $2"
    for task in await tx.all(wanted, node_id, subject_id):
        await end_task(tx, task["task_id"], "expired", "")


def task_topic(task_id: str) -> str:
    """Woken when the task has ended."""
    return f"task:{task_id}"


async def expired_tasks(reader: db.Reader, now: int) -> Sequence[db.Row]:
    return await reader.all(
        "SELECT task_id, type, subject_id FROM node_tasks WHERE state = 'queued' AND expires_at <= $1 LIMIT 100", now
    )


async def _due(reader: db.Reader, column: str, now: int) -> list[Allocation]:
    return await ALLOCATIONS.find(
        reader,
        f"""{column} > 0 AND {column} <= $1
            AND EXISTS (SELECT 1 FROM nodes WHERE nodes.node_id = allocations.node_id AND nodes.status = 'ready'
                        AND nodes.admin_state <> 'retired')
            ORDER BY {column} LIMIT $2""",  # noqa: S608 - the column is ours
        now,
        _RETRIED_AT_ONCE,
    )
