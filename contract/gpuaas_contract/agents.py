"""The node agent, for operators: its releases, and the tasks of each node."""

from typing import Annotated, Any, Literal

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.lifecycles import AgentReleaseStatus
from gpuaas_contract.node import TaskError
from gpuaas_contract.operations import Reason
from gpuaas_contract.paths import ADMIN, NODE, NODE_TASK, REGISTERED_RELEASE
from gpuaas_contract.wire import Label, Query, Request, Timestamp, WaitSeconds, Wire

Sha256 = Annotated[
    str,
    msgspec.Meta(max_length=64, pattern=r"^[0-9a-f]{64}(?!\n)$", description="A digest has 64 lower-case hex digits."),
]
ReleaseSignature = Annotated[
    str,
    msgspec.Meta(
        max_length=88,
        pattern=r"^[A-Za-z0-9+/]{86}==(?!\n)$",
        description="An Ed25519 signature in base64 has 88 characters.",
    ),
]
TaskState = Literal["queued", "succeeded", "failed", "refused", "expired"]


def release_message(version: str, sha256: str) -> bytes:
    """Return what a release key signs. The first line makes signatures for other purposes invalid for a release."""
    return f"gpuaas-agent-release-v1\n{version}\n{sha256}".encode()


class RegisterAgentRelease(Request):
    """Registers a signed build of the node agent, so that it can be installed on nodes."""

    version: Label
    """Version of the agent's build. The signature covers the version too."""
    content: Annotated[bytes, msgspec.Meta(min_length=1)]
    """The built agent, one .pyz file, base64."""
    signature: ReleaseSignature
    """Ed25519 by an offline release key over `gpuaas-agent-release-v1\\n{version}\\n{sha256}`, base64."""


class AgentRelease(Wire):
    """A signed build of the node agent."""

    sha256: str
    """Identifies the release: a node runs exactly these bytes or keeps its present agent."""
    version: str
    size_bytes: int
    signature: str
    """Signature of the release by its release key. Nodes verify it with the public keys that are pinned on them."""
    key_id: str
    """The release key that signed it: the first 16 digits of the SHA-256 of its public key (DER)."""
    status: AgentReleaseStatus
    """`registered`: the release cannot be installed before another person approves it."""
    registered_by: str
    registered_at: Timestamp
    approved_by: str = ""
    """Who approved the release. If the server's policy requires no second person: who registered it."""
    approved_at: Timestamp | None = None


class ApproveAgentRelease(Request):
    """Approves a release that another person registered."""

    reason: Reason
    """Why the caller wants this change, as text for people; stored in the audit trail."""


class UpgradeAgent(Request):
    """Installs an approved build of the agent on a node."""

    sha256: Sha256
    reason: Reason
    """Why the caller wants this change, as text for people; stored in the audit trail."""


class InspectNode(Request):
    """Asks a node for its hardware facts or its health."""

    type: Literal["host.facts", "host.health"]
    """`host.facts`: its hardware and system. `host.health`: checks of disk, memory, sshd and GPUs."""


class NodeTask(Wire):
    """A signed instruction of the platform to a node, with its state and result."""

    task_id: str
    node_id: str
    type: str
    """Kind of task: `allocation.provision`, `agent.upgrade` and others."""
    subject_id: str
    """The allocation or artifact placement that the task is for; empty for tasks of the node itself."""
    state: TaskState
    """`queued` until the node answers; `refused`: the node did not accept it; `expired`: the node never answered."""
    result: dict[str, Any]
    """What the node reported when the task ended; empty before."""
    error: TaskError | None
    """Why the node's task failed or was refused; empty otherwise."""
    correlation_id: str
    issued_at: Timestamp
    expires_at: Timestamp
    """Latest time at which the node may start the task. After it, the node does not start it."""


class TaskWaitQuery(Query):
    wait_s: WaitSeconds = 0
    """How long to wait for the task to end."""


AGENT_RELEASE_REGISTER = ADMIN.row(
    "/agent-releases",
    "capacity.agent_release.register",
    "Register a signed build of the node agent",
    "Refused unless a release key that the server was configured with signed it. The same bytes again change nothing; "
    "with a signature by another key, they get that signature.",
).post(
    RegisterAgentRelease,
    AgentRelease,
    "capacity.agent.release",
    subject="sha256",
    status=201,
    errors=(errors.AgentNoReleaseKey, errors.AgentSignatureInvalid),
)
AGENT_RELEASE_APPROVE = REGISTERED_RELEASE.row(
    "/approve",
    "capacity.agent_release.approve",
    "Approve a release of the node agent",
    "The caller must be another person than the one who registered the release, unless the server was started with "
    "`--agent-release-approvals 0`.",
).post(ApproveAgentRelease, AgentRelease, "capacity.agent.release", subject="sha256")
AGENT_RELEASE_LIST = ADMIN.row(
    "/agent-releases", "capacity.agent_release.list", "List releases of the node agent"
).list(AgentRelease, "capacity.node.read")
NODE_UPGRADE_AGENT = NODE.row(
    "/upgrade-agent",
    "capacity.node.upgrade_agent",
    "Install a release of the agent on a node",
    "The node verifies the signature before it runs anything of the release. If the new agent does not report, the "
    "node keeps the present one.",
).post(UpgradeAgent, NodeTask, "capacity.agent.release", status=202, errors=(errors.AgentReleaseUnapproved,))
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
