"""Nodes, for operators, and allocations: a project's claim on a node."""

from typing import Annotated, Any

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.lifecycles import AllocationStatus, NodeAdminState, NodeStatus, NodeTenancy
from gpuaas_contract.operations import Reason
from gpuaas_contract.paths import ADMIN, ALLOCATION, NODE, PROJECT
from gpuaas_contract.wire import (
    Id,
    Label,
    LongText,
    NoBody,
    OptionalLabel,
    PageQuery,
    Request,
    ShortText,
    Timestamp,
    Wire,
    json_bytes,
)

ALLOCATIONS_PER_REQUEST_MAX = 64
TokenSeconds = Annotated[int, msgspec.Meta(ge=60, le=86_400, description="From 60 to 86400 seconds.")]
INTEGRATION_METADATA_BYTES_MAX = 8192


class Gpu(Wire):
    """One GPU of a node, as the driver reports or operators declare."""

    index: int
    type: ShortText
    """Model of the GPU, as its driver reports it."""
    device: ShortText
    """Device file of the GPU on the node, such as /dev/nvidia0."""


class SharedMount(Wire):
    """A file system on a node that other machines have too, as the kernel reports or operators declare."""

    path: LongText
    source: LongText
    """The server and folder that is mounted, such as `10.0.0.5:/export/home`."""
    fstype: ShortText
    """Kind of the file system, such as `nfs4` or `lustre`."""


class Facts(Wire):
    """Hardware and system facts that a node reports."""

    hostname: Annotated[str, msgspec.Meta(max_length=255)]
    cpus: int
    memory_mb: int
    """In MiB."""
    gpus: Annotated[list[Gpu], msgspec.Meta(max_length=256, description="At most 256 GPUs.")] = []
    os: ShortText = ""
    kernel: ShortText = ""
    architecture: ShortText = ""
    disk_gb: int = 0
    """Size of the root file system, in units of 10⁹ bytes."""
    addresses: Annotated[list[Id], msgspec.Meta(max_length=256, description="At most 256 addresses.")] = []
    """Addresses that can be reached from other hosts."""
    ssh_port: int = 22
    shared_mounts: Annotated[list[SharedMount], msgspec.Meta(max_length=256, description="At most 256 mounts.")] = []
    """Network and cluster file systems, and those that operators declare as shared. Empty for agents before 0.3."""


class SanitiseAttempt(Wire):
    """An attempt of the provisioner to reinstall a machine. It succeeds if the provisioner reports success and the
    machine enrols again."""

    attempt_id: str
    reason: str
    """Why it began."""
    began_at: Timestamp
    ends_at: Timestamp
    """End of the attempt: if the node is not clean by then, it is quarantined."""
    is_installed: bool = False
    """Whether the provisioner reported that the machine is reinstalled."""
    is_enrolled: bool = False
    """Whether the machine enrolled again, with a new key and a token that only the provisioner got."""


class Node(Wire):
    """A machine with the platform's agent; projects can claim it."""

    node_id: str
    name: str
    """Set when the node was admitted; unique among nodes that are not retired."""
    region: str
    """Location of the node. All nodes of one request are in one region."""
    sku: str
    """Product name: projects ask for nodes by SKU."""
    status: NodeStatus
    """`lost` after four missed heartbeats; `ready` again with the next heartbeat."""
    address: str
    """Address for SSH: the address the agent connects from."""
    ssh_host_public_key: str
    """Host key to pin when logging in; empty until sshd has one."""
    facts: Facts
    agent_version: str
    boot_id: str
    """Id of the node's current boot; it changes when the machine restarts."""
    enrolled_at: Timestamp
    """When the node enrolled with its present key."""
    last_seen_at: Timestamp
    """When the platform last received a heartbeat of the node."""
    allocation_id: str | None
    """The allocation on the node; none if the node is free."""
    admin_state: NodeAdminState = "active"
    """State that operators set. Only `active` nodes get new allocations."""
    admin_reason: str = ""
    """Why an operator set `admin_state`, as text for people."""
    gpus_by_type: dict[str, int] = {}
    """Number of GPUs by model, counted from the facts."""
    agent_sha256: str = ""
    """SHA-256 of the agent's file; empty when the agent runs from source."""
    tenancy: NodeTenancy = "clean"
    """Which projects may get the node. `clean`: every project. `used`: only the project that has or had it last.
    `sanitising` and `quarantined`: no project."""
    tenancy_reason: str = ""
    """Why it is sanitised or quarantined, or the operator's reason to call it clean."""
    used_by_project_id: str = ""
    """The project that used it since it was clean. Empty: none, or, for a `used` node of an older release, several."""
    released_at: Timestamp | None = None
    """When the last allocation on the node was released."""
    sanitised_at: Timestamp | None = None
    sanitised_by: str = ""
    """Who made the node clean: `provisioner:HOST`, or `operator:USER_ID` if an operator declared it clean."""
    sanitising: SanitiseAttempt | None = None
    """The attempt to sanitise the node that is in progress; none otherwise."""
    revision: int = 1
    """Number of the node's version: it grows with every change by an operator, not with heartbeats."""


class NodeQuery(PageQuery):
    status: NodeStatus | None = None
    tenancy: NodeTenancy | None = None
    admin_state: NodeAdminState | None = None
    """Only nodes in this state; none: all nodes that are not retired."""
    name: str = ""
    region: str = ""
    sku: str = ""


class SetNode(Request):
    """Sets a node's SKU and region."""

    sku: Label
    region: Label
    reason: Reason
    """Why the caller wants this change, as text for people; stored in the audit trail."""


class ChangeNode(Request):
    """Cordons, drains, uncordons, retires or sanitises a node."""

    reason: Reason
    """Shown with the node and stored in the audit trail."""


class NodeAllocation(Wire):
    """An allocation on a node, with its owner."""

    allocation_id: str
    org_id: str
    project_id: str
    status: AllocationStatus
    requested_by: str
    used_by_instance_ids: list[str]


class NodeAllocations(Wire):
    """Allocations on a node, failed ones included."""

    items: list[NodeAllocation]


class NodeDrain(Wire):
    """A draining node and the allocations still on it."""

    node: Node
    allocations: list[NodeAllocation]
    """Allocations that are still on the node. Their owners get the event `capacity.allocation.draining`. The node is
    empty when no allocation is left."""


class CreateEnrolmentToken(Request):
    """Admits a machine as a node."""

    name: Label
    """The node's name; unique. A node that enrols again under its name keeps its id."""
    sku: OptionalLabel = ""
    """Empty: the SKU that a node of this name already has, else `standard`."""
    region: OptionalLabel = ""
    """Empty: the region that a node of this name already has, else `local`."""
    ttl_s: TokenSeconds = 3600
    """How many seconds the enrolment token can be used."""


class EnrolmentToken(Wire):
    """A token with which one machine joins, once."""

    token: str
    """The secret token with which the node enrols. Shown once; the platform stores only a digest."""
    name: str
    """Name of the node that may enrol with the token."""
    ca_sha256: str
    """Fingerprint of the certificate authority that the node must check when it joins over TLS."""
    expires_at: Timestamp


class ReleaseEvidence(Wire):
    """What the agent removed from a node when an allocation was released, and what was left when it checked. The node
    is clean when `left_behind` is empty."""

    user: str = ""
    """Unix user that was removed; empty when it did not exist."""
    home: str = ""
    """Home directory that was removed; empty when it did not exist."""
    units: list[str] = []
    """systemd services that ran as the allocation's user and were stopped."""
    processes_ended: int = 0
    keys: list[str] = []
    """Files with public keys of people and of the platform's authority."""
    principals: list[str] = []
    """Files that listed the principals that may log in."""
    files: list[str] = []
    """Other files that were removed: sudo rules, schedules, and files of the user outside its home; the first 100."""
    left_behind: list[str] = []
    """Processes, files and other traces of the user that still existed when the agent checked."""
    reported_at: Timestamp | None = None


class Allocation(Wire):
    """A project's claim on a node, until the node is clean again."""

    allocation_id: str
    org_id: str
    project_id: str
    status: AllocationStatus
    """`release_failed`: the node could not be cleaned; the platform tries again until it succeeds or a person gives the
    allocation up. When the node of an active allocation is reinstalled, the allocation is `provisioning` again."""
    status_reason: str
    """Why the allocation failed, waits or was given up."""
    node_id: str
    node_name: str
    address: str
    """Address of the allocation's machine for SSH."""
    sku: str
    region: str
    gpus: int
    """Number of GPUs of the node."""
    username_on_node: str
    """Unix user of this allocation; it is removed on release."""
    requested_by: str
    correlation_id: str
    used_by_instance_ids: list[str]
    """App instances that use the allocation. While there is one, only `release-used` releases the allocation."""
    created_at: Timestamp
    updated_at: Timestamp
    scheduler_type: str = ""
    """Text from the request that created the allocation; the platform stores it and never interprets it."""
    integration_metadata: dict[str, Any] = {}
    """Text from the request that created the allocation; the platform stores it and never interprets it."""
    observer_on_node: str = ""
    """Unix user of app controllers between operations, which can only read; empty until the agent has made it."""
    observer_asked_at: Timestamp | None = None
    """When the agent was last asked to make that user on a machine that was prepared before."""
    provision_retry_at: Timestamp | None = None
    """When its node was reinstalled: time from which the platform prepares it again, once the node responds."""
    release_attempts: int = 0
    """Number of attempts to clean the node."""
    release_retry_at: Timestamp | None = None
    """When the node could not be cleaned: time from which the platform tries again, once the node responds."""
    release_evidence: ReleaseEvidence | None = None
    """The agent's report of the last attempt; none while it runs, or when the agent did not answer."""


class Allocations(Wire):
    """The allocations that one request made."""

    items: list[Allocation]


class AllocationQuery(PageQuery):
    status: AllocationStatus | None = None
    """Only allocations with this status; none: all, also released ones."""
    free: bool = False
    """True: only active allocations that no app instance uses."""
    sku: str = ""
    region: str = ""


class CreateAllocation(Request):
    """Claims nodes for a project."""

    sku: OptionalLabel = ""
    """Empty: any SKU."""
    region: OptionalLabel = ""
    """Region of the nodes; empty: any. All nodes of one request are in one region."""
    node_name: OptionalLabel = ""
    """A particular node; needs `capacity.allocation.place`. Empty: the platform chooses."""
    count: Annotated[int, msgspec.Meta(ge=1, le=ALLOCATIONS_PER_REQUEST_MAX)] = 1
    """Number of allocations; all of them are made, or none."""
    scheduler_type: OptionalLabel = ""
    """Free text for integrations; stored, never interpreted."""
    integration_metadata: Annotated[dict[str, Any], json_bytes(INTEGRATION_METADATA_BYTES_MAX)] = {}
    """Free data for integrations: at most 8192 bytes as JSON, never interpreted."""


class OverrideRelease(Request):
    """Releases an allocation although something prevents a normal release."""

    reason: Reason
    """Why the caller wants this; stored with the allocation, in its event and in the audit trail."""


ENROLMENT_CREATE = ADMIN.row(
    "/enrolment-tokens",
    "capacity.enrolment.create",
    "Create a token that admits one node",
    "The token works once, for a node of this name.",
).post(
    CreateEnrolmentToken,
    EnrolmentToken,
    subject="name",
    status=201,
    secret_answer=True,
    errors=(errors.SecretAlreadyDelivered,),
    example={"name": "gpu-1"},
)
NODE_LIST = ADMIN.row("/nodes", "capacity.node.list", "List nodes; retired ones only with `admin_state=retired`").list(
    Node, "capacity.node.read", query=NodeQuery
)
NODE_GET = NODE.row("", "capacity.node.get", "Get one node").get(Node, "capacity.node.read")
NODE_SET = NODE.row(
    "",
    "capacity.node.set",
    "Set the SKU and region of a node",
    "Existing allocations on the node keep their SKU and region.",
).put(SetNode, Node, "capacity.node.change", guarded=True)
NODE_CORDON = NODE.row("/cordon", "capacity.node.cordon", "Cordon a node: it gets no new allocations").post(
    ChangeNode, Node, "capacity.node.change"
)
NODE_UNCORDON = NODE.row("/uncordon", "capacity.node.uncordon", "Uncordon a node: it gets allocations again").post(
    ChangeNode, Node, "capacity.node.change"
)
NODE_DRAIN = NODE.row(
    "/drain",
    "capacity.node.drain",
    "Drain a node: cordon it and ask the owners of its allocations to move",
    "Owners get the event `capacity.allocation.draining`. The answer lists the allocations that are still on the node.",
).post(ChangeNode, NodeDrain, "capacity.node.change", subject="node_id")
NODE_RETIRE = NODE.row(
    "/retire",
    "capacity.node.retire",
    "Retire a node permanently",
    "Ends the node's identity. Refused while an allocation is on the node.",
).post(ChangeNode, Node)
NODE_SANITISE = NODE.row(
    "/sanitise",
    "capacity.node.sanitise",
    "Have the provisioner reinstall a node now",
    "Ends the node's identity. The node is `clean` when the provisioner reports that it is reinstalled and the machine "
    "has enrolled again. Refused while an allocation is on the node, and if the platform has no provisioner.",
).post(ChangeNode, Node, status=202)
NODE_MARK_SANITISED = NODE.row(
    "/mark-sanitised",
    "capacity.node.mark_sanitised",
    "Declare that operators reinstalled a node",
    "Every project may get the node then. Refused while an allocation is on the node, and until the machine has "
    "enrolled with a new key after the last release: the last tenant may have a copy of the old one.",
).post(ChangeNode, Node, "capacity.node.sanitise")
NODE_ALLOCATIONS = NODE.row("/allocations", "capacity.node.allocations", "List the allocations on a node").get(
    NodeAllocations, "capacity.node.read"
)
ALLOCATION_CREATE = PROJECT.row(
    "/allocations",
    "capacity.allocation.create",
    "Claim nodes for a project",
    "All requested allocations are made, or none. An allocation is `active` when its node is prepared.",
).post(
    CreateAllocation,
    Allocations,
    subject="project_id",
    status=202,
    errors=(errors.NoCapacity, errors.PolicyDenied),
    example={"sku": "standard"},
)
ALLOCATION_LIST = PROJECT.row("/allocations", "capacity.allocation.list", "List the allocations of a project").list(
    Allocation, "capacity.allocation.read", query=AllocationQuery
)
ALLOCATION_GET = ALLOCATION.row("", "capacity.allocation.get", "Get one allocation").get(
    Allocation, "capacity.allocation.read"
)
ALLOCATION_RELEASE = ALLOCATION.row(
    "/release",
    "capacity.allocation.release",
    "Release an allocation",
    "The agent cleans the node. Call it again to retry a failed release at once. Refused while an app "
    "instance uses the allocation.",
).post(NoBody, Allocation, status=202)
ALLOCATION_RELEASE_USED = ALLOCATION.row(
    "/release-used",
    "capacity.allocation.release_used",
    "Release an allocation that an app instance uses",
    "The app instance loses the machine, and work on it is lost.",
).post(OverrideRelease, Allocation, status=202)
ALLOCATION_FORCE_RELEASE = ALLOCATION.row(
    "/force-release",
    "capacity.allocation.force_release",
    "Give up an allocation whose release failed",
    "The allocation ends without proof that its node is clean, so the node is cordoned.",
).post(OverrideRelease, Allocation)
