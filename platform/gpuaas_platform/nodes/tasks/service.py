"""Queue signed tasks for nodes, send them to agents, and record their results.

The domain that queues a task declares a reaction to `nodes.facts.TaskEnded`, which runs when the task has ended.
"""

import base64
import datetime
from collections.abc import Mapping, Sequence

import msgspec
from gpuaas_contract import errors, node
from gpuaas_contract.agents import InspectNode, NodeTask, TaskWaitQuery
from gpuaas_contract.correlations import CorrelatedTask
from gpuaas_contract.node import TaskError, TaskQuery, TaskResult
from gpuaas_contract.paths import NodePath, NodeTaskPath, Path, TaskPath
from gpuaas_contract.wire import NoBody, Page

from gpuaas_platform.call import Call, Origin, Site
from gpuaas_platform.kit import clock, db, ids
from gpuaas_platform.nodes import presence
from gpuaas_platform.nodes import service as nodes
from gpuaas_platform.nodes.facts import TaskEnded
from gpuaas_platform.nodes.tasks import rules, store
from gpuaas_platform.nodes.tasks.store import Stored


async def queue(
    tx: db.Tx,
    site: Site,
    origin: Origin,
    node_id: str,
    kind: str,
    subject_id: str,
    params: Mapping[str, object],
    *,
    project_id: str = "",
    ttl_s: int | None = None,
) -> str:
    """Sign a task for the node, add it to the node's queue, and return its id.

    With `project_id`, people of the project find the task by its correlation id."""
    task_id = ids.new("task")
    expires_at = origin.now + datetime.timedelta(seconds=site.settings.task_ttl_s if ttl_s is None else ttl_s)
    payload = msgspec.json.encode(
        {
            "task_id": task_id,
            "node_id": node_id,
            "type": kind,
            "params": params,
            "issued_at_s": origin.now.timestamp(),
            "expires_at_s": int(expires_at.timestamp()),
            "correlation_id": origin.correlation_id,
            "traceparent": origin.traceparent,
        }
    )
    signature = base64.b64encode(site.keys.tasks.sign(payload)).decode()
    task = Stored(task_id, node_id, kind, subject_id, "queued", project_id, origin.correlation_id)
    await store.add(tx, task, expires_at=clock.micros(expires_at), payload=payload.decode(), signature=signature)
    tx.wake(queue_topic(node_id))
    return task_id


async def queue_for_operator(
    tx: db.Tx, call: Call[NodePath], kind: str, params: Mapping[str, object], *, ttl_s: int | None = None
) -> NodeTask:
    """Queue a task about the node that the route names."""
    target = await nodes.get(tx, call)
    if target.admin_state == "retired":
        raise errors.Conflict(f"Node {target.name} is retired and takes no tasks.")
    task_id = await queue(tx, call.site, call.origin, target.node_id, kind, "", params, ttl_s=ttl_s)
    return await _shown(tx, target.node_id, task_id)


async def inspect(tx: db.Tx, call: Call[NodePath], body: InspectNode) -> NodeTask:
    return await queue_for_operator(tx, call, body.type, {})


async def list_tasks(reader: db.Reader, call: Call[NodePath]) -> Page[NodeTask]:
    return await store.page(reader, (await nodes.get(reader, call)).node_id, call.query)


async def wait_for_end(call: Call[NodeTaskPath, TaskWaitQuery], _: NoBody) -> NodeTask:
    """Return the task that the route names when it has ended or when the long poll times out."""
    reader, task_id = call.site.database.reader, call.path.task_id
    node_id = (await nodes.get(reader, call)).node_id

    async def look() -> NodeTask:
        return await _shown(reader, node_id, task_id)

    return await call.poll(_end_topic(task_id), call.query.wait_s, look, lambda task: task.state != "queued")


async def wait_for_next(call: Call[Path, TaskQuery], _: NoBody) -> node.NextTask:
    """Return the calling node's next task, for agents that send heartbeats separately."""
    row = await _next(call)
    if row is None:
        return node.NextTask(task=None)
    return node.NextTask(task=_signed(row), is_urgent=bool(row["is_urgent"]))


async def heartbeat(call: Call[Path, TaskQuery], body: node.NodeStatusReport) -> node.HeartbeatAnswer:
    """Record a heartbeat, and add the calling node's next task to the answer if the heartbeat waits for one."""
    await presence.receive(call, body)
    del body  # thousands of heartbeats wait here; the facts are recorded
    answer = node.HeartbeatAnswer(heartbeat_interval_s=call.site.settings.heartbeat_interval_s)
    row = await _next(call) if call.query.wait_s else None
    if row is None:
        return answer
    return msgspec.structs.replace(answer, task=_signed(row), is_urgent=bool(row["is_urgent"]))


async def _next(call: Call[Path, TaskQuery]) -> db.Row | None:
    """Wait for the calling node's next task. For a busy agent, wait only for urgent tasks and the end of its own."""
    node_id, busy_with, reader = call.caller.actor_id, call.query.busy_with, call.site.database.reader

    async def look() -> tuple[db.Row | None, bool]:
        """Return the next task, and whether to respond now."""
        if not busy_with and not await call.site.batches.ask(call.site.database, store.are_queued, node_id):
            return None, False
        now = clock.micros(call.site.clock())
        row = await store.next_ready(reader, node_id, now, urgent_only=bool(busy_with))
        if row is not None or not busy_with:
            return row, row is not None
        task = await store.get(reader, busy_with)
        return None, task is None or (task.node_id, task.state) != (node_id, "queued")

    row, _is_due = await call.poll(queue_topic(node_id), call.query.wait_s, look, lambda seen: seen[1])
    return row


def _signed(row: db.Row) -> node.SignedTask:
    return node.SignedTask(payload=row["payload"], signature=row["signature"])


async def take_result(tx: db.Tx, call: Call[TaskPath], body: TaskResult) -> node.TaskReceipt:
    """Record the calling node's result of a task. If the task has already ended, nothing changes."""
    task_id, node_id = call.path.task_id, call.caller.actor_id
    task = await store.get(tx, task_id)
    if task is None or task.node_id != node_id:
        raise errors.NotFound
    if task.state == "queued":
        await _end(tx, task_id, body.status, msgspec.json.encode(body).decode(), call.now)
        await _export_span(tx, call, task, body)
        await presence.note_host_key(tx, node_id, body.result)
        await _react(tx, call.site, call.origin, task, body)
    tx.wake(queue_topic(node_id))
    return node.TaskReceipt(task_id=task_id)


async def states(reader: db.Reader, task_ids: Sequence[str]) -> dict[str, str]:
    """Return the states of these tasks by id, with one query. Deleted tasks are left out."""
    return {task_id: task.state for task_id, task in (await store.many(reader, task_ids)).items()}


async def under(reader: db.Reader, project_id: str, correlation_id: str, limit: int) -> list[CorrelatedTask]:
    """Return the tasks of a project with this correlation id, oldest first."""
    return await store.under(reader, project_id, correlation_id, limit)


async def withdraw(tx: db.Tx, node_id: str, subject_id: str, now: datetime.datetime) -> None:
    """End the node's queued tasks about this subject as expired, without running reactions."""
    for task_id in await store.queued_about(tx, node_id, subject_id):
        await _end(tx, task_id, "expired", "", now)


async def supersede(tx: db.Tx, node_id: str, kind: str, subject_id: str, now: datetime.datetime) -> None:
    """End tasks of this type as expired that the node has not received yet, because a newer one has the whole set."""
    for task_id in await store.undelivered(tx, node_id, subject_id, kind, clock.micros(now)):
        await _end(tx, task_id, "expired", "", now)


async def is_due(reader: db.Reader, now: datetime.datetime) -> bool:
    """Return whether a node task has expired, so that `sweep` has something to write."""
    return await store.is_any_expired(reader, clock.micros(now))


async def sweep(tx: db.Tx, site: Site, origin: Origin) -> None:
    """End the tasks that have no result in time, and run their reactions."""
    silence = TaskError(code="no_answer", message="the node did not answer in time")
    for task in await store.expired(tx, clock.micros(origin.now)):
        await _end(tx, task.task_id, "expired", "", origin.now)
        await _react(tx, site, origin, task, TaskResult(status="failed", error=silence))


async def _react(tx: db.Tx, site: Site, origin: Origin, task: Stored, result: TaskResult) -> None:
    ended = TaskEnded(site, origin, task.task_id, task.node_id, task.subject_id, result)
    await site.reactions.react(tx, ended, task.type)


async def _export_span(tx: db.Tx, call: Call, task: Stored, result: TaskResult) -> None:
    """Send the span of a task, which its agent cannot send: it has no OpenTelemetry packages."""
    if call.site.spans is None:
        return
    shown = await _shown(tx, task.node_id, task.task_id)
    traceparent = await store.traceparent(tx, task.task_id)
    if traceparent:
        call.site.spans.export(rules.span(shown, traceparent, result, call.now))


async def _end(tx: db.Tx, task_id: str, state: str, result: str, now: datetime.datetime) -> None:
    await store.end(tx, task_id, state, result, clock.micros(now))
    tx.wake(_end_topic(task_id))


async def _shown(reader: db.Reader, node_id: str, task_id: str) -> NodeTask:
    task = await store.shown(reader, node_id, task_id)
    if task is None:
        raise errors.NotFound(f"Node {node_id} has no task {task_id}.")
    return task


def queue_topic(node_id: str) -> str:
    """Return the topic of the node's long poll: woken by a new task, the end of a task, and the end of its tokens."""
    return f"tasks:{node_id}"


def _end_topic(task_id: str) -> str:
    """Return the topic that is woken when the task has ended."""
    return f"task:{task_id}"
