"""SQL of what only nodes need: used proofs, releases of the agent, and the history of tasks."""

import base64
import datetime

import msgspec
from gpuaas_contract.agents import AgentRelease, NodeTask
from gpuaas_contract.capacity import Allocation
from gpuaas_contract.node import TaskResult

from gpuaas_platform.allocations import store
from gpuaas_platform.kit import clock, db, tables
from gpuaas_platform.kit.tables import Table

AGENT_RELEASES = Table("agent_releases", AgentRelease, "sha256")
_TASK = "task_id, node_id, type, subject_id, state, payload, result"
_TASKS = "node_tasks"
_ENDED = "'succeeded', 'failed', 'refused', 'expired'"
_FORGOTTEN_AT_ONCE = 500


async def forget_node_key(tx: db.Tx, node_id: str) -> None:
    await tx.run("DELETE FROM node_keys WHERE node_id = $1", node_id)


async def use_proof(tx: db.Tx, node_id: str, nonce: str, *, now: int, expires_at: int) -> bool:
    """Whether the proof is new; a used one is kept for as long as its time would still be accepted."""
    await tx.run("DELETE FROM node_proofs WHERE node_id = $1 AND expires_at < $2", node_id, now)
    sql = "INSERT INTO node_proofs (node_id, nonce, expires_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
    return await tx.run(sql, node_id, nonce, expires_at) == 1


async def allocations_on(reader: db.Reader, node_id: str) -> list[Allocation]:
    """Those that hold the node, failed ones included."""
    return await store.ALLOCATIONS.find(reader, "node_id = $1 AND status <> 'released' ORDER BY allocation_id", node_id)


async def add_agent_file(tx: db.Tx, sha256: str, content: bytes) -> None:
    encoded = base64.b64encode(content).decode()
    await tx.run("INSERT INTO agent_files (sha256, content) VALUES ($1, $2)", sha256, encoded)


async def agent_file(reader: db.Reader, sha256: str) -> bytes | None:
    row = await reader.one("SELECT content FROM agent_files WHERE sha256 = $1", sha256)
    return base64.b64decode(row[0]) if row is not None else None


async def task_of(reader: db.Reader, node_id: str, task_id: str) -> NodeTask | None:
    row = await reader.one(f"SELECT {_TASK} FROM node_tasks WHERE task_id = $1", task_id)  # noqa: S608 - columns are ours
    return _shown_task(row) if row is not None and row["node_id"] == node_id else None


async def tasks_of(reader: db.Reader, node_id: str, *, size: int, token: str) -> tuple[list[NodeTask], str | None]:
    """The newest first: what was done long ago is seldom asked for."""
    before = tables.read_token(_TASKS, token) if token else "~"
    rows = await reader.all(
        f"SELECT {_TASK} FROM node_tasks WHERE node_id = $1 AND task_id < $2 ORDER BY task_id DESC LIMIT $3",  # noqa: S608
        node_id,
        before,
        size + 1,
    )
    found = [_shown_task(row) for row in rows[:size]]
    return found, tables.write_token(_TASKS, found[-1].task_id) if len(rows) > size else None


async def forget_tasks(tx: db.Tx, expired_before: int) -> None:
    await tx.run(
        f"""DELETE FROM node_tasks WHERE task_id IN
            (SELECT task_id FROM node_tasks WHERE state IN ({_ENDED}) AND expires_at < $1 LIMIT $2)""",  # noqa: S608
        expired_before,
        _FORGOTTEN_AT_ONCE,
    )


class _Payload(msgspec.Struct):
    """The part of a signed task that operators see; its parameters stay between platform and node."""

    issued_at_s: int
    expires_at_s: int
    correlation_id: str


def _shown_task(row: db.Row) -> NodeTask:
    payload = msgspec.json.decode(row["payload"], type=_Payload)
    ended = msgspec.json.decode(row["result"], type=TaskResult) if row["result"] else None
    return NodeTask(
        task_id=row["task_id"],
        node_id=row["node_id"],
        type=row["type"],
        subject_id=row["subject_id"],
        state=row["state"],
        result=ended.result if ended else {},
        error=ended.error if ended else None,
        correlation_id=payload.correlation_id,
        issued_at=_moment(payload.issued_at_s),
        expires_at=_moment(payload.expires_at_s),
    )


def _moment(seconds: int) -> datetime.datetime:
    return clock.moment(seconds * 1_000_000)
