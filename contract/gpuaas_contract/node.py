"""What a node's agent says to the platform. The agent has no third-party package, so these stay plain JSON."""

from typing import Any, Literal

from gpuaas_contract import errors
from gpuaas_contract.capacity import Facts
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.wire import NoBody, Query, Request, WaitSeconds, Wire


class Trust(Wire):
    """What a machine pins before it joins: whose certificate, whose tasks."""

    ca_pem: str
    """The certificate authority behind the platform's TLS certificate."""
    task_public_key_pem: str
    """A task counts only when this key signed it."""


class Enrol(Request):
    """A machine joins as a node."""

    token: str
    name: str
    """The one its token was made for."""
    public_key_pem: str
    """Ed25519: from here on the node proves itself with the private half, which it made itself."""
    ssh_host_public_key: str
    facts: Facts


class Enrolled(Wire):
    """The machine is a node now."""

    node_id: str


class NodeLogin(Request):
    """A node proves its key."""

    node_id: str
    timestamp_s: int
    """Seconds since 1970 by the node's clock; five minutes off at the most."""
    nonce: str
    """Random; a proof works once."""
    signature: str
    """Ed25519 by the node's key over `gpuaas-node-token\\n{node_id}\\n{timestamp_s}\\n{nonce}`, base64."""


class NodeToken(Wire):
    """What a node sends as bearer until it expires."""

    access_token: str
    expires_in_s: int


class NodeStatusReport(Request):
    """A heartbeat: the node is there, and this is what it is."""

    agent_version: str
    boot_id: str
    facts: Facts
    agent_sha256: str = ""
    """Of the file the agent runs from; empty for one that runs from its source."""
    trial: bool = False
    """Sent by an agent that has yet to prove itself: the node is heard, and nothing else of it changes."""


class HeartbeatAnswer(Wire):
    """The platform has heard the node."""

    heartbeat_interval_s: float
    """When to send the next one."""


FETCH_TASK = "artifact.fetch"
URGENT_TASKS = frozenset({"ssh.trust", "allocation.install_authorized_keys", "allocation.release"})
"""They take access away: a node does them beside whatever else it is at, however long that takes."""


class TaskQuery(Query):
    wait_s: WaitSeconds = 0
    """How long to wait for a task."""
    busy_with: str = ""
    """The task the node is at. Only urgent ones are handed out then, and the wait is over when this one has ended."""


class SignedTask(Wire):
    """A task as the platform signed it."""

    payload: str
    """JSON text of the task; the signature covers exactly these bytes."""
    signature: str
    """Ed25519 by the platform's task key, base64."""


class NextTask(Wire):
    """The task to do next, if there is one."""

    task: SignedTask | None
    is_urgent: bool = False
    """It is done beside whatever else the node is at."""


class TaskError(Request):
    """Why a node could not, or would not, do what it was told."""

    code: str
    """One word for machines."""
    message: str


class TaskResult(Request):
    """How a task went on the node."""

    status: Literal["succeeded", "failed", "refused"]
    """`refused`: the node would not do it, and did nothing."""
    result: dict[str, Any] = {}
    error: TaskError | None = None


class TaskReceipt(Wire):
    """The platform has the result."""

    task_id: str


class AgentFile(Wire):
    """A release of the agent, for the node that was told to run it."""

    sha256: str
    content: bytes
    """The agent, one file."""


TRUST = Endpoint(
    "node.trust",
    "GET",
    "/node/v1/trust",
    "The authority to pin and the key that signs tasks",
    audience="public",
    request=NoBody,
    response=Trust,
)
ENROL = Endpoint(
    "node.enrol",
    "POST",
    "/node/v1/enrol",
    "Join with a token that works once",
    audience="public",
    repeat="natural",
    request=Enrol,
    response=Enrolled,
    subject="node_id",
    errors=(errors.CredentialsInvalid,),
)
NODE_TOKEN = Endpoint(
    "node.token",
    "POST",
    "/node/v1/token",
    "Prove the node's key, get a short token",
    audience="public",
    audited=False,
    repeat="natural",
    request=NodeLogin,
    response=NodeToken,
    secret_answer=True,
    errors=(errors.CredentialsInvalid,),
)
STATUS = Endpoint(
    "node.status",
    "PUT",
    "/node/v1/status",
    "Heartbeat with facts",
    audience="node",
    audited=False,
    repeat="natural",
    request=NodeStatusReport,
    response=HeartbeatAnswer,
)
TASK_NEXT = Endpoint(
    "node.task.next",
    "GET",
    "/node/v1/tasks",
    "Wait for this node's next task",
    audience="node",
    request=NoBody,
    query=TaskQuery,
    response=NextTask,
)
TASK_RESULT = Endpoint(
    "node.task.result",
    "POST",
    "/node/v1/tasks/{task_id}/result",
    "Report a task's result",
    audience="node",
    audited=False,
    repeat="natural",
    request=TaskResult,
    response=TaskReceipt,
    subject="task_id",
)
AGENT_FILE = Endpoint(
    "node.agent.file",
    "GET",
    "/node/v1/agent-releases/{sha256}",
    "A release of the agent, for a node that was told to upgrade",
    audience="node",
    request=NoBody,
    response=AgentFile,
)
ENDPOINTS = (TRUST, ENROL, NODE_TOKEN, STATUS, TASK_NEXT, TASK_RESULT, AGENT_FILE)
