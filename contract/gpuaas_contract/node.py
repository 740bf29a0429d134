"""The API of the node agent. The agent has no third-party packages, so the types are plain JSON."""

from typing import Annotated, Any, Literal

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.capacity import Facts
from gpuaas_contract.paths import AGENT_API, AGENT_RELEASE, AGENT_TASK
from gpuaas_contract.wire import Id, LongText, Query, Request, ShortText, WaitSeconds, Wire


class Trust(Wire):
    """Keys of the platform that a machine stores before it joins: the certificate authority and the key of tasks."""

    ca_pem: str
    """The certificate authority behind the platform's TLS certificate."""
    task_public_key_pem: str
    """Public key of the platform: a node accepts only tasks that this key signed."""


class Enrol(Request):
    """Joins a machine as a node."""

    token: ShortText
    name: Id
    """Name of the node, for which the enrolment token was made."""
    public_key_pem: LongText
    """Ed25519 public key. The node signs in with the private key, which it made itself."""
    ssh_host_public_key: LongText
    facts: Facts


class Enrolled(Wire):
    """The identity of a new node."""

    node_id: str


class NodeLogin(Request):
    """Signs a node in with its key."""

    node_id: Id
    timestamp_s: int
    """Seconds since 1970 by the node's clock; at most five minutes off."""
    nonce: ShortText
    """Random value in the signed sign-in request, so that the signature works only once."""
    signature: ShortText
    """Ed25519 by the node's key over `gpuaas-node-token\\n{node_id}\\n{timestamp_s}\\n{nonce}`, base64."""


class NodeToken(Wire):
    """A token to send as bearer until it expires."""

    access_token: str
    expires_in_s: int


class NodeStatusReport(Request):
    """A heartbeat with the node's facts."""

    agent_version: ShortText
    boot_id: ShortText
    facts: Facts
    agent_sha256: ShortText = ""
    """SHA-256 of the agent's file; empty when the agent runs from source."""
    trial: bool = False
    """Sent by an agent on trial after an upgrade: it counts as a heartbeat and changes nothing else."""


FETCH_TASK = "artifact.fetch"
UNPLACE_TASK = "artifact.remove"
URGENT_TASKS = frozenset({"ssh.trust", "allocation.install_authorized_keys", "allocation.people", "allocation.release"})
"""Tasks that remove access: a node does them at once, beside its running task."""


class TaskQuery(Query):
    wait_s: WaitSeconds = 0
    """How many seconds the platform may wait for a task before it answers."""
    busy_with: str = ""
    """The running task of the node. Then only urgent tasks are sent, and the wait ends with that task."""


class SignedTask(Wire):
    """A task as the platform signed it."""

    payload: str
    """JSON text of the task; the signature covers exactly these bytes."""
    signature: str
    """Ed25519 signature of the task by the platform's task key, base64."""


class NextTask(Wire):
    """The next task, if there is one."""

    task: SignedTask | None
    is_urgent: bool = False
    """True: the node does the task at once, beside its running task."""


class HeartbeatAnswer(Wire):
    """The answer to a heartbeat."""

    heartbeat_interval_s: float
    """Seconds after which the node sends the next heartbeat."""
    task: SignedTask | None = None
    """The next task, if the heartbeat waited for one and there is one."""
    is_urgent: bool = False
    """The task is done at once, beside the running task."""


class TaskError(Request):
    """Why a task failed or was refused."""

    code: ShortText
    """A code for programs."""
    message: Annotated[str, msgspec.Meta(max_length=65_536)]


class TaskResult(Request):
    """The result of a task."""

    status: Literal["succeeded", "failed", "refused"]
    """`refused`: the node did not accept the task and did nothing."""
    result: dict[str, Any] = {}
    error: TaskError | None = None
    started_at_s: float = 0
    """When the node began the task, in seconds since 1970 by its clock; 0 if it does not report it."""
    took_s: Annotated[float, msgspec.Meta(ge=0)] = 0
    """How long the task took."""


class TaskReceipt(Wire):
    """Confirms to a node that the platform stored the result of its task."""

    task_id: str


class AgentFile(Wire):
    """A release of the agent, for a node that upgrades."""

    sha256: str
    content: bytes
    """Content of the agent's file."""
    version: str
    """Version of the agent; the signature covers it too."""
    signature: str
    """Signature of the agent's file by an offline release key. The node verifies it with the keys that its operator
    pinned on it."""


TRUST = AGENT_API.row(
    "/trust", "node.trust", "Get the certificate authority and the public key of tasks, which a node must pin"
).get(Trust, audience="public")
ENROL = AGENT_API.row("/enrol", "node.enrol", "Join as a node, with a token that works once").post(
    Enrol, Enrolled, audience="public", errors=(errors.CredentialsInvalid,)
)
NODE_TOKEN = AGENT_API.row("/token", "node.token", "Sign in with the node's key").post(
    NodeLogin,
    NodeToken,
    subject="",
    audience="public",
    audited=False,
    secret_answer=True,
    errors=(errors.CredentialsInvalid,),
)
STATUS = AGENT_API.row(
    "/status",
    "node.status",
    "Send a heartbeat and wait for the next task",
    "The status is recorded at once. With `wait_s`, the answer comes with the next task or when the time is over.",
).put(NodeStatusReport, HeartbeatAnswer, query=TaskQuery, subject="", audience="node", audited=False)
TASK_NEXT = AGENT_API.row(
    "/tasks",
    "node.task.next",
    "Wait for the next task",
    "For agents before 0.2; later ones wait with their heartbeat. While the node is busy, only urgent tasks are sent.",
).get(NextTask, query=TaskQuery, audience="node")
TASK_RESULT = AGENT_TASK.row("/result", "node.task.result", "Report the result of a task").post(
    TaskResult, TaskReceipt, audience="node", audited=False
)
AGENT_FILE = AGENT_RELEASE.row("", "node.agent.file", "Download a release of the agent").get(AgentFile, audience="node")
