"""Everything recorded under one correlation id, in one document, to find the cause of a problem."""

from typing import Any, Literal

from gpuaas_contract.agents import TaskState
from gpuaas_contract.audit import AuditRow
from gpuaas_contract.events import Event
from gpuaas_contract.instances import Member
from gpuaas_contract.node import TaskError
from gpuaas_contract.operations import LogLine, Operation
from gpuaas_contract.paths import CORRELATION
from gpuaas_contract.wire import Timestamp, Wire

PART_MAX = 500


class RefusedRequest(Wire):
    """A request that was refused. The server keeps the last ones of each project in memory, until it restarts."""

    occurred_at: Timestamp
    route: str
    """Name of the endpoint that was called."""
    actor_type: str
    actor_id: str
    actor_name: str
    status: int
    """HTTP status of the answer."""
    code: str
    message: str
    fix: str
    trace_id: str = ""
    """Id of the request's trace, to search for it in the trace system."""


class CorrelatedTask(Wire):
    """A task of a node's agent for the project, and its result."""

    task_id: str
    node_id: str
    node_name: str
    type: str
    """Kind of task: `allocation.provision`, `artifact.fetch` and others."""
    subject_id: str
    """The allocation or artifact placement that the task is for; the node, for a task about all of its access."""
    state: TaskState
    """`queued` until the node answers; `refused`: the node did not accept it; `expired`: the node never answered."""
    result: dict[str, Any]
    """What the node reported when the task ended; empty before."""
    error: TaskError | None
    """Why the node's task failed or was refused; none otherwise."""
    issued_at: Timestamp
    started_at: Timestamp | None = None
    """When the node began the task, as it reports; none if it does not report it."""
    ended_at: Timestamp | None = None
    """When the platform received the result, or when the task expired; none while the task is queued."""


class Link(Wire):
    """A page of the log or trace system that the operator of the platform uses."""

    kind: Literal["log", "trace"]
    url: str


class Correlation(Wire):
    """What is recorded under one correlation id, up to 500 items each."""

    correlation_id: str
    operations: list[Operation]
    """Operations with the correlation id, with their steps and targets."""
    members: list[Member]
    """The targets of these operations as they are now, with the app's details."""
    events: list[Event]
    """Events with the correlation id that are still stored."""
    audit: list[AuditRow] | None
    """None if the caller may not read the audit trail."""
    withheld: dict[str, str]
    """Part that is not shown -> permission that is needed to see it."""
    truncated: list[str]
    """Names of the parts of this answer that have more items than are shown."""
    refused: list[RefusedRequest] = []
    """Requests that were refused, recently and by the server that answers: your own; of others, if you may read the
    audit trail."""
    node_tasks: list[CorrelatedTask] = []
    """Tasks of nodes' agents with the correlation id, with their results; deleted after a week."""
    log: list[LogLine] = []
    """The newest lines of the controllers' logs about these operations, in order; deleted after a week."""
    links: list[Link] = []
    """Where to read on: the log and trace systems, if the server was configured with them."""


CORRELATION_GET = CORRELATION.row(
    "",
    "record.correlation.get",
    "Get everything recorded under one correlation id: operations, events, audit rows, node tasks, log lines",
    "Start here to find the cause of a problem: each answer and event has a correlation id.",
).get(Correlation, "record.correlation.read")
