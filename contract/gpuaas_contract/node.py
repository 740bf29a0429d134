"""What a node's agent says to the platform. The agent has no third-party package, so these stay plain JSON."""

from typing import Any, Literal

from gpuaas_contract import errors
from gpuaas_contract.capacity import Facts
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.wire import NoBody, Query, Request, WaitSeconds, Wire


class Trust(Wire):
    ca_pem: str
    task_public_key_pem: str


class Enrol(Request):
    token: str
    name: str
    public_key_pem: str
    ssh_host_public_key: str
    facts: Facts


class Enrolled(Wire):
    node_id: str


class NodeLogin(Request):
    node_id: str
    timestamp_s: int
    nonce: str
    signature: str
    """Ed25519 by the node's key over `gpuaas-node-token\\n{node_id}\\n{timestamp_s}\\n{nonce}`, base64."""


class NodeToken(Wire):
    access_token: str
    expires_in_s: int


class NodeStatusReport(Request):
    agent_version: str
    boot_id: str
    facts: Facts
    agent_sha256: str = ""
    trial: bool = False
    """Sent by an agent that has yet to prove itself: the node is heard, and nothing else of it changes."""


class HeartbeatAnswer(Wire):
    heartbeat_interval_s: float


FETCH_TASK = "artifact.fetch"
URGENT_TASKS = frozenset({"ssh.trust", "allocation.install_authorized_keys", "allocation.release"})
"""They take access away: a node does them beside whatever else it is at, however long that takes."""


class TaskQuery(Query):
    wait_s: WaitSeconds = 0
    busy_with: str = ""
    """The task the node is at. Only urgent ones are handed out then, and the wait is over when this one has ended."""


class SignedTask(Wire):
    payload: str
    """JSON text of the task; the signature covers exactly these bytes."""
    signature: str


class NextTask(Wire):
    task: SignedTask | None
    is_urgent: bool = False


class TaskError(Request):
    code: str
    message: str


class TaskResult(Request):
    status: Literal["succeeded", "failed", "refused"]
    result: dict[str, Any] = {}
    error: TaskError | None = None


class TaskReceipt(Wire):
    task_id: str


class AgentFile(Wire):
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
