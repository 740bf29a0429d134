"""Nodes as operators see them, and allocations: a project's claim on a node."""

import datetime

from gpuaas_contract import errors
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.lifecycles import AllocationStatus, NodeStatus
from gpuaas_contract.wire import Label, NoBody, Page, PageQuery, Request, Wire


class Gpu(Wire):
    index: int
    type: str
    device: str


class Facts(Wire):
    """What a node says of itself."""

    hostname: str
    cpus: int
    memory_mb: int
    gpus: list[Gpu] = []
    os: str = ""
    kernel: str = ""
    architecture: str = ""
    disk_gb: int = 0
    addresses: list[str] = []
    ssh_port: int = 22


class Node(Wire):
    node_id: str
    name: str
    region: str
    sku: str
    status: NodeStatus
    address: str
    ssh_host_public_key: str
    facts: Facts
    agent_version: str
    boot_id: str
    enrolled_at: datetime.datetime
    last_seen_at: datetime.datetime
    allocation_id: str | None


class CreateEnrolmentToken(Request):
    name: Label
    """The node's name; unique. A node that enrols again under its name keeps its id."""
    sku: Label = "standard"
    region: Label = "local"
    ttl_s: int = 3600


class EnrolmentToken(Wire):
    token: str
    name: str
    ca_sha256: str
    """Fingerprint of the certificate authority the node must find, empty on a loopback server."""
    expires_at: datetime.datetime


class Allocation(Wire):
    allocation_id: str
    org_id: str
    project_id: str
    status: AllocationStatus
    status_reason: str
    node_id: str
    node_name: str
    address: str
    sku: str
    region: str
    gpus: int
    username_on_node: str
    requested_by: str
    correlation_id: str
    used_by_instance_ids: list[str]
    created_at: datetime.datetime
    updated_at: datetime.datetime


class CreateAllocation(Request):
    sku: str = ""
    region: str = ""
    node_name: str = ""
    """Ask for one node by name; empty takes any free node that fits."""


ENROLMENT_CREATE = Endpoint(
    "capacity.enrolment.create",
    "POST",
    "/api/v1/admin/enrolment-tokens",
    "Admit one node: a token that works once",
    permission="capacity.enrolment.create",
    request=CreateEnrolmentToken,
    response=EnrolmentToken,
    status=201,
    secret_answer=True,
    errors=(errors.SecretAlreadyDelivered,),
    example={"name": "gpu-1"},
)
NODE_LIST = Endpoint(
    "capacity.node.list",
    "GET",
    "/api/v1/admin/nodes",
    "Every node",
    permission="capacity.node.read",
    request=NoBody,
    query=PageQuery,
    response=Page[Node],
)
ALLOCATION_CREATE = Endpoint(
    "capacity.allocation.create",
    "POST",
    "/api/v1/projects/{project_id}/allocations",
    "Claim a node for a project",
    permission="capacity.allocation.create",
    request=CreateAllocation,
    response=Allocation,
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
    query=PageQuery,
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
    "Give the node back; refused while an app instance uses it",
    permission="capacity.allocation.release",
    request=NoBody,
    response=Allocation,
    status=202,
)
ENDPOINTS = (
    ENROLMENT_CREATE,
    NODE_LIST,
    ALLOCATION_CREATE,
    ALLOCATION_LIST,
    ALLOCATION_GET,
    ALLOCATION_RELEASE,
)
