"""The node agent, for operators: its releases, and the tasks of each node."""

from typing import Annotated, Any, Literal

import msgspec

from gpuaas_contract.node import TaskError
from gpuaas_contract.operations import Reason
from gpuaas_contract.paths import ADMIN, NODE, NODE_TASK
from gpuaas_contract.wire import Label, Query, Request, Timestamp, WaitSeconds, Wire

Sha256 = Annotated[
    str,
    msgspec.Meta(max_length=64, pattern=r"^[0-9a-f]{64}(?!\n)$", description="A digest has 64 lower-case hex digits."),
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


AGENT_RELEASE_REGISTER = ADMIN.row(
    "/agent-releases",
    "capacity.agent_release.register",
    "Register a build of the node agent",
    "The same bytes again change nothing.",
).post(RegisterAgentRelease, AgentRelease, "capacity.agent.release", subject="sha256", status=201)
AGENT_RELEASE_LIST = ADMIN.row(
    "/agent-releases", "capacity.agent_release.list", "List releases of the node agent"
).list(AgentRelease, "capacity.node.read")
NODE_UPGRADE_AGENT = NODE.row(
    "/upgrade-agent",
    "capacity.node.upgrade_agent",
    "Install a release of the agent on a node",
    "If the new agent does not report, the node keeps the present one.",
).post(UpgradeAgent, NodeTask, "capacity.agent.release", status=202)
NODE_INSPECT = NODE.row(
    "/inspect",
    "capacity.node.inspect",
    "Ask a node for its facts or its health",
    "The answer is a task; read it with `wait_s` to get its result.",
).post(InspectNode, NodeTask, "capacity.node.change", status=202)
NODE_TASK_LIST = NODE.row("/tasks", "capacity.node_task.list", "List recent tasks of a node, newest first").list(
    NodeTask, "capacity.node.read"
)
NODE_TASK_GET = NODE_TASK.row("", "capacity.node_task.get", "Get one task of a node, with its result").get(
    NodeTask, "capacity.node.read", query=TaskWaitQuery
)
