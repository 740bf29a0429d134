"""SQL of node tasks."""

from collections.abc import Sequence

import msgspec
from gpuaas_contract.agents import NodeTask
from gpuaas_contract.correlations import CorrelatedTask
from gpuaas_contract.node import URGENT_TASKS, TaskResult
from gpuaas_contract.wire import Page

from gpuaas_platform.kit import batches, clock, db, paging, structs
from gpuaas_platform.kit.paging import PageRequest
from gpuaas_platform.nodes.tasks import rules

_STORED = "task_id, node_id, type, subject_id, state, project_id, correlation_id"
_SHOWN = f"SELECT {_STORED}, payload, result FROM node_tasks WHERE"  # noqa: S608 - columns are ours
_OLD = "state IN ('succeeded', 'failed', 'refused', 'expired') AND expires_at < $1"
_EXPIRED_BATCH = 100
_IS_URGENT = f"type IN ({', '.join(repr(kind) for kind in sorted(URGENT_TASKS))})"
_READY = f"""
    SELECT payload, signature, {_IS_URGENT} AS is_urgent FROM node_tasks task
    WHERE node_id = $1 AND state = 'queued' AND expires_at > $2
    AND NOT EXISTS (SELECT 1 FROM node_tasks earlier
                    WHERE earlier.node_id = $1 AND earlier.state = 'queued' AND earlier.expires_at > $2
                    AND earlier.subject_id = task.subject_id AND earlier.task_id < task.task_id)"""  # noqa: S608
_NEXT = f"{_READY} ORDER BY is_urgent DESC, task_id LIMIT 1"
_NEXT_URGENT = f"{_READY} AND {_IS_URGENT} ORDER BY task_id LIMIT 1"
_IS_EXPIRED = "state = 'queued' AND expires_at <= $1"


class Stored(msgspec.Struct, frozen=True):
    """The columns of a task that the platform needs to handle it, without payload, signature and result."""

    task_id: str
    node_id: str
    type: str
    subject_id: str
    state: str
    project_id: str = ""
    """The project that the task is for; empty: tasks of the node itself."""
    correlation_id: str = ""


async def add(tx: db.Tx, task: Stored, *, expires_at: int, payload: str, signature: str) -> None:
    sql = f"INSERT INTO node_tasks ({_STORED}, expires_at, payload, signature, result) VALUES ({db.marks(10)}, '')"  # noqa: S608
    await tx.run(sql, *msgspec.structs.astuple(task), expires_at, payload, signature)


async def are_queued(database: db.Database, node_ids: Sequence[str]) -> list[bool]:
    """Return for each of these nodes whether it has a queued task, with one query: nearly all have none."""
    asked = batches.padded(node_ids)
    sql = f"SELECT DISTINCT node_id FROM node_tasks WHERE state = 'queued' AND node_id IN ({db.marks(len(asked))})"  # noqa: S608
    busy = {row[0] for row in await database.reader.all(sql, *asked)}
    return [node_id in busy for node_id in node_ids]


async def next_ready(reader: db.Reader, node_id: str, now: int, *, urgent_only: bool) -> db.Row | None:
    """Return the node's next task, urgent tasks first. Tasks about the same subject stay in order."""
    return await reader.one(_NEXT_URGENT if urgent_only else _NEXT, node_id, now)


async def get(reader: db.Reader, task_id: str) -> Stored | None:
    return (await many(reader, [task_id])).get(task_id)


async def many(reader: db.Reader, task_ids: Sequence[str]) -> dict[str, Stored]:
    """Return these tasks by id, with one query. Ids without a task are left out."""
    if not task_ids:
        return {}
    sql = f"SELECT {_STORED} FROM node_tasks WHERE task_id IN ({db.marks(len(task_ids))})"  # noqa: S608 - marks only
    return {row[0]: _stored(row) for row in await reader.all(sql, *task_ids)}


async def queued_about(reader: db.Reader, node_id: str, subject_id: str) -> list[str]:
    """Return the ids of the node's queued tasks about this subject."""
    sql = "SELECT task_id FROM node_tasks WHERE node_id = $1 AND state = 'queued' AND subject_id = $2"
    return [row[0] for row in await reader.all(sql, node_id, subject_id)]


async def undelivered(reader: db.Reader, node_id: str, subject_id: str, kind: str, now: int) -> list[str]:
    """Return the ids of tasks of a type about this subject that the node cannot have received yet: all but the first
    one about the subject, of any type, because the next is delivered after the result of the one before."""
    sql = """SELECT task_id, type FROM node_tasks
             WHERE node_id = $1 AND state = 'queued' AND subject_id = $2 AND expires_at > $3 ORDER BY task_id"""
    tasks = await reader.all(sql, node_id, subject_id, now)
    return [row[0] for row in tasks[1:] if row[1] == kind]


async def end(tx: db.Tx, task_id: str, state: str, result: str, ended_at: int) -> None:
    sql = "UPDATE node_tasks SET state = $2, result = $3, ended_at = $4 WHERE task_id = $1"
    await tx.run(sql, task_id, state, result, ended_at)


async def traceparent(reader: db.Reader, task_id: str) -> str:
    """Return the trace context of the request that queued the task; empty if there is none."""
    row = await reader.one("SELECT payload FROM node_tasks WHERE task_id = $1", task_id)
    return msgspec.json.decode(row[0], type=_Payload).traceparent if row is not None else ""


async def under(reader: db.Reader, project_id: str, correlation_id: str, limit: int) -> list[CorrelatedTask]:
    """Return the tasks of a project with this correlation id, oldest first."""
    columns = ", ".join(f"task.{name}" for name in _STORED.split(", "))
    sql = f"""SELECT {columns}, task.payload, task.result, task.ended_at, nodes.name FROM node_tasks task
              LEFT JOIN nodes ON nodes.node_id = task.node_id
              WHERE task.correlation_id = $1 AND task.project_id = $2 AND task.project_id <> ''
              ORDER BY task.task_id LIMIT $3"""  # noqa: S608 - columns are ours
    return [_correlated(row) for row in await reader.all(sql, correlation_id, project_id, limit)]


async def expired(reader: db.Reader, now: int) -> list[Stored]:
    """Return a batch of queued tasks whose time is over."""
    sql = f"SELECT {_STORED} FROM node_tasks WHERE {_IS_EXPIRED} LIMIT {_EXPIRED_BATCH}"  # noqa: S608 - columns are ours
    return [_stored(row) for row in await reader.all(sql, now)]


async def is_any_expired(reader: db.Reader, now: int) -> bool:
    return await reader.one(f"SELECT 1 FROM node_tasks WHERE {_IS_EXPIRED} LIMIT 1", now) is not None  # noqa: S608


async def is_old(reader: db.Reader, before: int) -> bool:
    return await reader.one(f"SELECT 1 FROM node_tasks WHERE {_OLD} LIMIT 1", before) is not None  # noqa: S608


async def forget(tx: db.Tx, before: int, limit: int) -> None:
    old = f"SELECT task_id FROM node_tasks WHERE {_OLD} LIMIT $2"  # noqa: S608
    await tx.run(f"DELETE FROM node_tasks WHERE task_id IN ({old})", before, limit)  # noqa: S608


async def shown(reader: db.Reader, node_id: str, task_id: str) -> NodeTask | None:
    row = await reader.one(f"{_SHOWN} task_id = $1 AND node_id = $2", task_id, node_id)
    return _node_task(row) if row is not None else None


async def page(reader: db.Reader, node_id: str, query: PageRequest) -> Page[NodeTask]:
    """Return one page of the node's tasks, newest first."""

    async def read(before: str, limit: int) -> list[NodeTask]:
        sql = f"{_SHOWN} node_id = $1 AND task_id < $2 ORDER BY task_id DESC LIMIT $3"
        return [_node_task(row) for row in await reader.all(sql, node_id, before, limit)]

    return await paging.page("node_tasks", query, read, lambda task: task.task_id, start="~")


class _Payload(msgspec.Struct):
    """The fields of a signed task that operators can see. The parameters are only for the node."""

    issued_at_s: float
    expires_at_s: int
    correlation_id: str
    traceparent: str = ""


def _stored(row: db.Row) -> Stored:
    return Stored(row[0], row[1], row[2], row[3], row[4], row[5], row[6])


def _node_task(row: db.Row) -> NodeTask:
    payload = msgspec.json.decode(row["payload"], type=_Payload)
    ended = msgspec.json.decode(row["result"], type=TaskResult) if row["result"] else None
    return structs.pick(
        NodeTask,
        _stored(row),
        result=ended.result if ended else {},
        error=ended.error if ended else None,
        correlation_id=payload.correlation_id,
        issued_at=clock.moment(round(payload.issued_at_s * 1_000_000)),
        expires_at=clock.moment(payload.expires_at_s * 1_000_000),
    )


def _correlated(row: db.Row) -> CorrelatedTask:
    task, ended_at = _node_task(row), clock.moment(row["ended_at"]) if row["ended_at"] else None
    ended = msgspec.json.decode(row["result"], type=TaskResult) if row["result"] else None
    started_at = rules.started_at(ended, task.issued_at, ended_at) if ended and ended_at else None
    return structs.pick(CorrelatedTask, task, node_name=row["name"] or "", started_at=started_at, ended_at=ended_at)
