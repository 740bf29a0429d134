"""Nodes as operators see them, and allocations: a project's claim on a node."""

from typing import Annotated, Any

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.lifecycles import AllocationStatus, NodeAdminState, NodeStatus
from gpuaas_contract.operations import Reason
from gpuaas_contract.wire import Label, NoBody, OptionalLabel, Page, PageQuery, Request, Timestamp, Wire

ALLOCATIONS_PER_REQUEST_MAX = 64
TokenSeconds = Annotated[int, msgspec.Meta(ge=60, le=86_400, description="From 60 to 86400 seconds.")]
INTEGRATION_METADATA_BYTES_MAX = 8192


class Gpu(Wire):
    """One GPU of a node, as its driver shows it or its operators declared it."""

    index: int
    type: str
    """The model, as the driver names it."""
    device: str
    """Its file on the node: /dev/nvidia0."""


class Facts(Wire):
    """What a node says of itself."""

    hostname: str
    cpus: int
    memory_mb: int
    """In MiB."""
    gpus: list[Gpu] = []
    os: str = ""
    kernel: str = ""
    architecture: str = ""
    disk_gb: int = 0
    """Size of the root file system, in units of 10⁹ bytes."""
    addresses: list[str] = []
    """Every address that is good beyond the host."""
    ssh_port: int = 22


class Node(Wire):
    """A machine with the platform's agent, for projects to claim."""

    node_id: str
    name: str
    """Chosen when it was admitted; unique among nodes that are not retired."""
    region: str
    """Where it stands; the nodes of one request stand in one region."""
    sku: str
    """What it is sold as: projects ask for nodes by this word."""
    status: NodeStatus
    """Whether its agent is heard; `lost` after four missed heartbeats, `ready` again with the next."""
    address: str
    """Where it is reached over SSH: the address its agent calls from."""
    ssh_host_public_key: str
    """What whoever enters the machine pins; empty until its sshd has one."""
    facts: Facts
    agent_version: str
    boot_id: str
    """Changes with every boot."""
    enrolled_at: Timestamp
    last_seen_at: Timestamp
    """When the platform last received a heartbeat."""
    allocation_id: str | None
    """The claim that holds it; none when it is free."""
    admin_state: NodeAdminState = "active"
    """New allocations go to active nodes only."""
    admin_reason: str = ""
    """Why operators put it into this state."""
    gpus_by_type: dict[str, int] = {}
    """How many of each type, counted from the facts."""
    agent_sha256: str = ""
    """Of the file the agent runs from; empty for one that runs from its source."""
    revision: int = 1
    """Counts what operators changed; a heartbeat leaves it alone."""


class NodeQuery(PageQuery):
    status: NodeStatus | None = None
    admin_state: NodeAdminState | None = None
    """None shows all but retired nodes."""
    name: str = ""
    region: str = ""
    sku: str = ""


class SetNode(Request):
    """Says what a node is sold as and where it stands."""

    sku: Label
    region: Label
    reason: Reason
    """Why; kept in the audit trail."""


class ChangeNode(Request):
    """Cordons, drains, frees or retires a node."""

    reason: Reason
    """Shown with the node and kept in the audit trail."""


class NodeAllocation(Wire):
    """Whose work is on a node."""

    allocation_id: str
    org_id: str
    project_id: str
    status: AllocationStatus
    requested_by: str
    used_by_instance_ids: list[str]


class NodeAllocations(Wire):
    """Every claim that holds a node, failed ones included."""

    items: list[NodeAllocation]


class NodeDrain(Wire):
    """A node that is being emptied, and what is still on it."""

    node: Node
    allocations: list[NodeAllocation]
    """Their owners have been told by `capacity.allocation.draining`; the node is empty when none is left."""


class CreateEnrolmentToken(Request):
    """Admits a machine as a node."""

    name: Label
    """The node's name; unique. A node that enrols again under its name keeps its id."""
    sku: OptionalLabel = ""
    """Empty: as a node of that name has it already; else `standard`."""
    region: OptionalLabel = ""
    """Empty: as a node of that name has it already; else `local`."""
    ttl_s: TokenSeconds = 3600
    """How long the token can be used."""


class EnrolmentToken(Wire):
    """What a machine joins with, once."""

    token: str
    """Shown once; the platform keeps a digest only."""
    name: str
    """The node that may use it."""
    ca_sha256: str
    """Fingerprint of the certificate authority the node must find when it joins over TLS."""
    expires_at: Timestamp


class ReleaseEvidence(Wire):
    """What the node's agent removed, and what it saw when it looked again; without `left_behind` the node is clean."""

    user: str = ""
    """The Unix user that went; empty when it was gone before."""
    home: str = ""
    """The user's home that went; empty when it was gone before."""
    units: list[str] = []
    """Services that ran as the user."""
    processes_ended: int = 0
    keys: list[str] = []
    """Files with public keys, of people and of the platform's authority."""
    principals: list[str] = []
    """Files that said whose certificates may log in."""
    files: list[str] = []
    """Everything else: rights, schedules, and what the user owned outside its home; the first hundred."""
    left_behind: list[str] = []
    """What was still there when the agent looked again."""
    reported_at: Timestamp | None = None


class Allocation(Wire):
    """A project's claim on a node, until the node is clean again."""

    allocation_id: str
    org_id: str
    project_id: str
    status: AllocationStatus
    """`release_failed`: the node could not be cleaned; it is tried again until it is, or until it is given up. An
    active one whose node was installed anew is `provisioning` again."""
    status_reason: str
    """Why it failed, waits or was given up, for people."""
    node_id: str
    node_name: str
    address: str
    """Where its machine is reached over SSH."""
    sku: str
    region: str
    gpus: int
    """How many the node has."""
    username_on_node: str
    """A Unix user of the allocation's own; it goes when the node is given back."""
    requested_by: str
    correlation_id: str
    used_by_instance_ids: list[str]
    """While an app instance uses it, it is released only by override."""
    created_at: Timestamp
    updated_at: Timestamp
    scheduler_type: str = ""
    """As the request said; carried, never interpreted."""
    integration_metadata: dict[str, Any] = {}
    """As the request said; carried, never interpreted."""
    provision_retry_at: Timestamp | None = None
    """Its node was installed anew: from then on the platform has it prepared again, as soon as it hears the node."""
    release_attempts: int = 0
    """How often the node was told to clean up."""
    release_retry_at: Timestamp | None = None
    """The node could not be cleaned: from then on the platform tries again, as soon as it hears the node."""
    release_evidence: ReleaseEvidence | None = None
    """What the agent said of the last attempt; none while that runs, and when it never answered."""


class Allocations(Wire):
    """All that one request claimed."""

    items: list[Allocation]


class AllocationQuery(PageQuery):
    status: AllocationStatus | None = None
    """None shows all, released ones included."""
    free: bool = False
    """True: only those an app can be put on: active, and used by none."""
    sku: str = ""
    region: str = ""


class CreateAllocation(Request):
    """Claims nodes for a project."""

    sku: OptionalLabel = ""
    """Empty: whatever is free."""
    region: OptionalLabel = ""
    """Empty: any; all nodes of one request stand in one region."""
    node_name: OptionalLabel = ""
    """This very node; needs `capacity.allocation.place`. Empty: the platform chooses."""
    count: Annotated[int, msgspec.Meta(ge=1, le=ALLOCATIONS_PER_REQUEST_MAX)] = 1
    """So many allocations, or none."""
    scheduler_type: OptionalLabel = ""
    """A word of whoever integrates; carried, never interpreted."""
    integration_metadata: dict[str, Any] = {}
    """Of whoever integrates: at most 8192 bytes as JSON, never interpreted."""


class OverrideRelease(Request):
    """Gives a node back against what speaks for keeping it."""

    reason: Reason
    """Kept with the allocation, in its event and in the audit trail."""


ENROLMENT_CREATE = Endpoint(
    "capacity.enrolment.create",
    "POST",
    "/api/v1/admin/enrolment-tokens",
    "Admit one node: a token that works once",
    permission="capacity.enrolment.create",
    request=CreateEnrolmentToken,
    response=EnrolmentToken,
    subject="name",
    status=201,
    secret_answer=True,
    errors=(errors.SecretAlreadyDelivered,),
    example={"name": "gpu-1"},
)
NODE_LIST = Endpoint(
    "capacity.node.list",
    "GET",
    "/api/v1/admin/nodes",
    "Nodes of the platform; retired ones only when asked for",
    permission="capacity.node.read",
    request=NoBody,
    query=NodeQuery,
    response=Page[Node],
)
NODE_GET = Endpoint(
    "capacity.node.get",
    "GET",
    "/api/v1/admin/nodes/{node_id}",
    "One node",
    permission="capacity.node.read",
    request=NoBody,
    response=Node,
)
NODE_SET = Endpoint(
    "capacity.node.set",
    "PUT",
    "/api/v1/admin/nodes/{node_id}",
    "Say what a node is sold as and where it stands; allocations it carries keep what they were given",
    permission="capacity.node.change",
    request=SetNode,
    response=Node,
    subject="node_id",
    repeat="natural",
    guarded=True,
)
NODE_CORDON = Endpoint(
    "capacity.node.cordon",
    "POST",
    "/api/v1/admin/nodes/{node_id}/cordon",
    "Keep new allocations away from a node",
    permission="capacity.node.change",
    request=ChangeNode,
    response=Node,
    subject="node_id",
)
NODE_UNCORDON = Endpoint(
    "capacity.node.uncordon",
    "POST",
    "/api/v1/admin/nodes/{node_id}/uncordon",
    "Let a cordoned or draining node take allocations again",
    permission="capacity.node.change",
    request=ChangeNode,
    response=Node,
    subject="node_id",
)
NODE_DRAIN = Endpoint(
    "capacity.node.drain",
    "POST",
    "/api/v1/admin/nodes/{node_id}/drain",
    "Cordon a node and ask the owners of its allocations to move",
    permission="capacity.node.change",
    request=ChangeNode,
    response=NodeDrain,
    subject="node_id",
)
NODE_RETIRE = Endpoint(
    "capacity.node.retire",
    "POST",
    "/api/v1/admin/nodes/{node_id}/retire",
    "End a node's identity for good; refused while an allocation is on it",
    permission="capacity.node.retire",
    request=ChangeNode,
    response=Node,
    subject="node_id",
)
NODE_ALLOCATIONS = Endpoint(
    "capacity.node.allocations",
    "GET",
    "/api/v1/admin/nodes/{node_id}/allocations",
    "Whose work is on a node",
    permission="capacity.node.read",
    request=NoBody,
    response=NodeAllocations,
)
ALLOCATION_CREATE = Endpoint(
    "capacity.allocation.create",
    "POST",
    "/api/v1/projects/{project_id}/allocations",
    "Claim nodes for a project: as many as asked for, or none",
    permission="capacity.allocation.create",
    request=CreateAllocation,
    response=Allocations,
    subject="project_id",
    status=202,
    errors=(errors.NoCapacity, errors.PolicyDenied),
    example={"sku": "standard"},
)
ALLOCATION_LIST = Endpoint(
    "capacity.allocation.list",
    "GET",
    "/api/v1/projects/{project_id}/allocations",
    "Allocations of a project",
    permission="capacity.allocation.read",
    request=NoBody,
    query=AllocationQuery,
    response=Page[Allocation],
)
ALLOCATION_GET = Endpoint(
    "capacity.allocation.get",
    "GET",
    "/api/v1/projects/{project_id}/allocations/{allocation_id}",
    "One allocation",
    permission="capacity.allocation.read",
    request=NoBody,
    response=Allocation,
)
ALLOCATION_RELEASE = Endpoint(
    "capacity.allocation.release",
    "POST",
    "/api/v1/projects/{project_id}/allocations/{allocation_id}/release",
    "Give the node back, or try again to; refused while an app instance uses it",
    permission="capacity.allocation.release",
    request=NoBody,
    response=Allocation,
    subject="allocation_id",
    status=202,
)
ALLOCATION_RELEASE_USED = Endpoint(
    "capacity.allocation.release_used",
    "POST",
    "/api/v1/projects/{project_id}/allocations/{allocation_id}/release-used",
    "Give the node back although an app instance uses it; its work there is lost",
    permission="capacity.allocation.release_used",
    request=OverrideRelease,
    response=Allocation,
    subject="allocation_id",
    status=202,
)
ALLOCATION_FORCE_RELEASE = Endpoint(
    "capacity.allocation.force_release",
    "POST",
    "/api/v1/projects/{project_id}/allocations/{allocation_id}/force-release",
    "Give up an allocation whose release failed; its node is cordoned, for nobody knows that it is clean",
    permission="capacity.allocation.force_release",
    request=OverrideRelease,
    response=Allocation,
    subject="allocation_id",
)
ENDPOINTS = (
    ENROLMENT_CREATE,
    NODE_LIST,
    NODE_GET,
    NODE_SET,
    NODE_CORDON,
    NODE_UNCORDON,
    NODE_DRAIN,
    NODE_RETIRE,
    NODE_ALLOCATIONS,
    ALLOCATION_CREATE,
    ALLOCATION_LIST,
    ALLOCATION_GET,
    ALLOCATION_RELEASE,
    ALLOCATION_RELEASE_USED,
    ALLOCATION_FORCE_RELEASE,
)
