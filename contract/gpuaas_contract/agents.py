"""The node agent as operators see it: its releases, and the tasks nodes were given."""

from typing import Annotated, Any, Literal

import msgspec

from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.node import TaskError
from gpuaas_contract.operations import Reason
from gpuaas_contract.wire import Label, NoBody, Page, PageQuery, Query, Request, Timestamp, WaitSeconds, Wire

Sha256 = Annotated[
    str, msgspec.Meta(pattern=r"^[0-9a-f]{64}(?!\n)$", description="A digest has 64 lower-case hex digits.")
]
TaskState = Literal["queued", "succeeded", "failed", "refused", "expired"]


class RegisterAgentRelease(Request):
    """Makes a build of the node agent known, so that nodes can be told to run it."""

    version: Label
    """What the build is called, for people; nodes go by the digest."""
    content: Annotated[bytes, msgspec.Meta(min_length=1)]
    """The built agent, one .pyz file, base64."""


class AgentRelease(Wire):
    """A build of the node agent that nodes can be told to run."""

    sha256: str
    """Names the release: nodes run exactly these bytes or keep what they have."""
    version: str
    size_bytes: int
    registered_by: str
    registered_at: Timestamp


class UpgradeAgent(Request):
    """Puts a registered build of the agent on a node."""

    sha256: Sha256
    reason: Reason
    """Why; kept in the audit trail."""


class InspectNode(Request):
    """Asks a node what it is or how it is."""

    type: Literal["host.facts", "host.health"]
    """`host.facts`: what it is made of. `host.health`: how it does."""


class NodeTask(Wire):
    """One thing a node was told to do."""

    task_id: str
    node_id: str
    type: str
    """What it is to do: `allocation.provision`, `agent.upgrade` and so on."""
    subject_id: str
    """The allocation or placement it serves; empty for tasks of the node itself."""
    state: TaskState
    """`queued` until the node answers; `refused` when it would not do it, `expired` when it never answered."""
    result: dict[str, Any]
    """What the node answered; empty until then."""
    error: TaskError | None
    """Why it failed or was refused."""
    correlation_id: str
    issued_at: Timestamp
    expires_at: Timestamp
    """A node that has not begun by then leaves it."""


class TaskWaitQuery(Query):
    wait_s: WaitSeconds = 0
    """How long to wait for the task to end."""


AGENT_RELEASE_REGISTER = Endpoint(
    "capacity.agent_release.register",
    "POST",
    "/api/v1/admin/agent-releases",
    "Make a build of the node agent known; the same bytes again change nothing",
    permission="capacity.agent.release",
    request=RegisterAgentRelease,
    response=AgentRelease,
    subject="sha256",
    status=201,
)
AGENT_RELEASE_LIST = Endpoint(
    "capacity.agent_release.list",
    "GET",
    "/api/v1/admin/agent-releases",
    "Releases of the node agent",
    permission="capacity.node.read",
    request=NoBody,
    query=PageQuery,
    response=Page[AgentRelease],
)
NODE_UPGRADE_AGENT = Endpoint(
    "capacity.node.upgrade_agent",
    "POST",
    "/api/v1/admin/nodes/{node_id}/upgrade-agent",
    "Put a release of the agent on a node; one that does not report never takes its place",
    permission="capacity.agent.release",
    request=UpgradeAgent,
    response=NodeTask,
    subject="task_id",
    status=202,
)
NODE_INSPECT = Endpoint(
    "capacity.node.inspect",
    "POST",
    "/api/v1/admin/nodes/{node_id}/inspect",
    "Have a node say what it is or how it is",
    permission="capacity.node.change",
    request=InspectNode,
    response=NodeTask,
    subject="task_id",
    status=202,
)
NODE_TASK_LIST = Endpoint(
    "capacity.node_task.list",
    "GET",
    "/api/v1/admin/nodes/{node_id}/tasks",
    "What a node was told to do lately",
    permission="capacity.node.read",
    request=NoBody,
    query=PageQuery,
    response=Page[NodeTask],
)
NODE_TASK_GET = Endpoint(
    "capacity.node_task.get",
    "GET",
    "/api/v1/admin/nodes/{node_id}/tasks/{task_id}",
    "One task of a node, with its result",
    permission="capacity.node.read",
    request=NoBody,
    query=TaskWaitQuery,
    response=NodeTask,
)
ENDPOINTS = (
    AGENT_RELEASE_REGISTER,
    AGENT_RELEASE_LIST,
    NODE_UPGRADE_AGENT,
    NODE_INSPECT,
    NODE_TASK_LIST,
    NODE_TASK_GET,
)
