"""Pure: when a task ran, and its span."""

import datetime
import hashlib

import msgspec
from gpuaas_contract.agents import NodeTask
from gpuaas_contract.node import TaskResult

from gpuaas_platform.kit import traces
from gpuaas_platform.kit.traces import Span


def started_at(
    result: TaskResult, issued_at: datetime.datetime, ended_at: datetime.datetime
) -> datetime.datetime | None:
    """Return when the node began the task; None if it does not report it.

    The node's clock can be wrong, so the time is moved to between the issue of the task and its end."""
    if not result.started_at_s:
        return None
    latest_s = ended_at.timestamp() - result.took_s
    began_s = max(issued_at.timestamp(), min(result.started_at_s, latest_s))
    return datetime.datetime.fromtimestamp(min(began_s, ended_at.timestamp()), datetime.UTC)


def span(task: NodeTask, traceparent: str, result: TaskResult, now: datetime.datetime) -> Span:
    """Return the span of a task that ended now. A task has the same span id each time its result is sent."""
    began = started_at(result, task.issued_at, now) or task.issued_at
    ended = min(now, began + datetime.timedelta(seconds=result.took_s)) if result.took_s else now
    trace = msgspec.structs.replace(
        traces.trace_of(traceparent), span_id=hashlib.sha256(task.task_id.encode()).hexdigest()[:16]
    )
    return Span(
        name=f"node task {task.type}",
        trace=trace,
        kind="consumer",
        started_at=began,
        ended_at=ended,
        failed=result.status != "succeeded",
        attributes={
            "gpuaas.task_id": task.task_id,
            "gpuaas.node_id": task.node_id,
            "gpuaas.correlation_id": task.correlation_id,
            "gpuaas.status": result.status,
        },
    )
