"""App instances, their roles and members, and the access bundle people read."""

import datetime
from typing import Any, Literal

from gpuaas_contract import errors
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.lifecycles import InstanceStatus, MemberStatus
from gpuaas_contract.operations import Operation
from gpuaas_contract.wire import Label, NoBody, Page, PageQuery, Request, Wire


class Instance(Wire):
    instance_id: str
    resource_name: str
    org_id: str
    project_id: str
    app_slug: str
    app_version: str
    name: str
    status: InstanceStatus
    status_reason: str
    topology: str
    operating_mode: str
    control_plane_scope: str
    runtime_backend: str
    placement: dict[str, list[str]]
    """component_key -> allocation ids, as asked for at deploy."""
    inputs: dict[str, Any]
    operator_service_account_id: str
    requested_by: str
    correlation_id: str
    """Of the request that created it; each operation has its own."""
    last_operation_id: str
    revision: int
    created_at: datetime.datetime
    updated_at: datetime.datetime


class Role(Wire):
    component_key: str
    desired: int
    current: int
    ready: int
    health: Literal["healthy", "degraded", "failed", "empty"]


class Roles(Wire):
    items: list[Role]


class Member(Wire):
    member_id: str
    instance_id: str
    org_id: str
    project_id: str
    component_key: str
    status: MemberStatus
    status_reason: str
    allocation_id: str
    node_id: str
    node_name: str
    address: str
    last_operation_id: str
    correlation_id: str
    adapter_detail: dict[str, Any]
    """Words of the app's own, for people; the platform never reads them."""
    observed_version: str
    was_ready: bool
    """Has been ready at least once, so it may have run work."""
    revision: int
    created_at: datetime.datetime
    updated_at: datetime.datetime


class DeployInstance(Request):
    name: Label
    app_slug: str
    topology: str
    version: str = ""
    """Empty takes the newest published version."""
    inputs: dict[str, Any] = {}
    operator_service_account_id: str = ""


class Deployed(Wire):
    instance: Instance
    operation: Operation


class Decommission(Request):
    reason: str = ""
    force: bool = False


class MemberOperationRequest(Request):
    """`add` names allocations and a role; the others name members."""

    kind: Literal["add", "drain", "resume", "remove"]
    component_key: str = ""
    allocation_ids: list[str] = []
    member_ids: list[str] = []
    reason: str = ""
    force: bool = False


class Connection(Wire):
    name: str
    url: str


class Command(Wire):
    """A line to type on a machine of the instance."""

    title: str
    line: str
    allocation_id: str = ""
    """The machine to type it on."""
    user: str = ""
    """The user to type it as; empty for whoever logs in."""


class AccessBundle(Wire):
    """How people reach the app, written by its controller."""

    endpoints: list[Connection] = []
    paths: dict[str, str] = {}
    commands: list[Command] = []
    notes: list[str] = []


INSTANCE_CREATE = Endpoint(
    "apps.instance.create",
    "POST",
    "/api/v1/projects/{project_id}/app-instances",
    "Deploy an app the project is entitled to",
    permission="apps.instance.create",
    request=DeployInstance,
    response=Deployed,
    status=202,
    errors=(errors.NotEntitled, errors.PolicyDenied),
)
INSTANCE_LIST = Endpoint(
    "apps.instance.list",
    "GET",
    "/api/v1/projects/{project_id}/app-instances",
    "App instances of a project",
    permission="apps.instance.read",
    request=NoBody,
    query=PageQuery,
    response=Page[Instance],
)
INSTANCE_GET = Endpoint(
    "apps.instance.get",
    "GET",
    "/api/v1/projects/{project_id}/app-instances/{instance_id}",
    "One app instance",
    permission="apps.instance.read",
    request=NoBody,
    response=Instance,
)
ROLE_LIST = Endpoint(
    "apps.role.list",
    "GET",
    "/api/v1/projects/{project_id}/app-instances/{instance_id}/roles",
    "Roles with desired and current counts",
    permission="apps.instance.read",
    request=NoBody,
    response=Roles,
)
MEMBER_LIST = Endpoint(
    "apps.member.list",
    "GET",
    "/api/v1/projects/{project_id}/app-instances/{instance_id}/members",
    "Members of an instance, removed ones included",
    permission="apps.instance.read",
    request=NoBody,
    query=PageQuery,
    response=Page[Member],
)
ACCESS_BUNDLE_GET = Endpoint(
    "apps.access_bundle.get",
    "GET",
    "/api/v1/projects/{project_id}/app-instances/{instance_id}/access-bundle",
    "How to use the app: endpoints, paths, commands",
    permission="apps.instance.read",
    request=NoBody,
    response=AccessBundle,
)
DECOMMISSION = Endpoint(
    "apps.instance.decommission",
    "POST",
    "/api/v1/projects/{project_id}/app-instances/{instance_id}/decommission",
    "Tear the app down on every machine",
    permission="apps.instance.decommission",
    request=Decommission,
    response=Operation,
    status=202,
    errors=(errors.OperationInProgress,),
)
MEMBER_OPERATION_CREATE = Endpoint(
    "apps.member.operate",
    "POST",
    "/api/v1/projects/{project_id}/app-instances/{instance_id}/member-operations",
    "Add, drain, resume or remove members",
    permission="apps.member.operate",
    request=MemberOperationRequest,
    response=Operation,
    status=202,
    errors=(errors.OperationInProgress, errors.PolicyDenied),
)
ENDPOINTS = (
    INSTANCE_CREATE,
    INSTANCE_LIST,
    INSTANCE_GET,
    ROLE_LIST,
    MEMBER_LIST,
    ACCESS_BUNDLE_GET,
    DECOMMISSION,
    MEMBER_OPERATION_CREATE,
)
