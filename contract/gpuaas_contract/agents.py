"""The node agent, for operators: its releases, and the tasks of each node."""

from typing import Annotated, Any, Literal

import msgspec

from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.node import TaskError
from gpuaas_contract.operations import Reason
from gpuaas_contract.paths import NodePath, NodeTaskPath
from gpuaas_contract.wire import Label, NoBody, Page, PageQuery, Query, Request, Timestamp, WaitSeconds, Wire

Sha256 = Annotated[
    str, msgspec.Meta(pattern=r"^[0-9a-f]{64}(?!\n)$", description="A digest has 64 lower-case hex digits.")
]
TaskState = Literal["queued", "succeeded", "failed", "refused", "expired"]


class RegisterAgentRelease(Request):
    """Registers a build of the node agent, so that it can be installed on nodes."""

    version: Label
    """Name of the build, for people. Nodes use the digest."""
    content: Annotated[bytes, msgspec.Meta(min_length=1)]
    """The built agent, one .pyz file, base64."""


class AgentRelease(Wire):
    """A build of the node agent that can be installed on nodes."""

    sha256: str
    """Identifies the release: a node runs exactly these bytes or keeps its present agent."""
    version: str
    size_bytes: int
    registered_by: str
    registered_at: Timestamp


class UpgradeAgent(Request):
    """Installs a registered build of the agent on a node."""

    sha256: Sha256
    reason: Reason
    """Reason; stored in the audit trail."""


class InspectNode(Request):
    """Asks a node for its hardware facts or its health."""

    type: Literal["host.facts", "host.health"]
    """`host.facts`: its hardware and system. `host.health`: checks of disk, memory, sshd and GPUs."""


class NodeTask(Wire):
    """One task of a node."""

    task_id: str
    node_id: str
    type: str
    """Kind of task: `allocation.provision`, `agent.upgrade` and others."""
    subject_id: str
    """The allocation or placement it is for; empty for tasks of the node itself."""
    state: TaskState
    """`queued` until the node answers; `refused`: the node did not accept it; `expired`: the node never answered."""
    result: dict[str, Any]
    """The node's answer; empty until then."""
    error: TaskError | None
    """Why it failed or was refused."""
    correlation_id: str
    issued_at: Timestamp
    expires_at: Timestamp
    """A node that has not started it by then does not start it."""


class TaskWaitQuery(Query):
    wait_s: WaitSeconds = 0
    """How long to wait for the task to end."""


AGENT_RELEASE_REGISTER = Endpoint(
    "capacity.agent_release.register",
    "POST",
    "/api/v1/admin/agent-releases",
    "Register a build of the node agent",
    permission="capacity.agent.release",
    request=RegisterAgentRelease,
    response=AgentRelease,
    subject="sha256",
    status=201,
    description="The same bytes again change nothing.",
)
AGENT_RELEASE_LIST = Endpoint(
    "capacity.agent_release.list",
    "GET",
    "/api/v1/admin/agent-releases",
    "List releases of the node agent",
    permission="capacity.node.read",
    request=NoBody,
    query=PageQuery,
    response=Page[AgentRelease],
)
NODE_UPGRADE_AGENT = Endpoint(
    "capacity.node.upgrade_agent",
    "POST",
    "/api/v1/admin/nodes/{node_id}/upgrade-agent",
    "Install a release of the agent on a node",
    params=NodePath,
    permission="capacity.agent.release",
    request=UpgradeAgent,
    response=NodeTask,
    subject="task_id",
    status=202,
    description="If the new agent does not report, the node keeps the present one.",
)
NODE_INSPECT = Endpoint(
    "capacity.node.inspect",
    "POST",
    "/api/v1/admin/nodes/{node_id}/inspect",
    "Ask a node for its facts or its health",
    params=NodePath,
    permission="capacity.node.change",
    request=InspectNode,
    response=NodeTask,
    subject="task_id",
    status=202,
    description="The answer is a task; read it with `wait_s` to get its result.",
)
NODE_TASK_LIST = Endpoint(
    "capacity.node_task.list",
    "GET",
    "/api/v1/admin/nodes/{node_id}/tasks",
    "List recent tasks of a node, newest first",
    params=NodePath,
    permission="capacity.node.read",
    request=NoBody,
    query=PageQuery,
    response=Page[NodeTask],
)
NODE_TASK_GET = Endpoint(
    "capacity.node_task.get",
    "GET",
    "/api/v1/admin/nodes/{node_id}/tasks/{task_id}",
    "Get one task of a node, with its result",
    params=NodeTaskPath,
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
