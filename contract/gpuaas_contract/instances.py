"""App instances, their roles and members, what people ask of them, and the access bundle people read."""

from typing import Annotated, Any, Literal

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.lifecycles import InstanceStatus, MemberStatus
from gpuaas_contract.operations import Operation, OptionalReason, Reason
from gpuaas_contract.wire import Label, NoBody, Page, PageQuery, Request, Timestamp, Wire

Baseline = Literal["new", "up", "stopped", "failed", "deleted"]
"""How the last operation on the whole instance left it."""


class Condition(Wire):
    """One named statement about an instance: what is so, why, and which state of it was looked at."""

    type: str
    """What is spoken of: `LastOperationSucceeded` is the platform's, all others the app's."""
    status: Literal["true", "false", "unknown"]
    reason: str
    """One word for machines."""
    message: str
    """The same for people."""
    observed_revision: int
    """Revision of the instance that was looked at when this was first seen."""
    changed_at: Timestamp
    """When `status` last changed."""


class Instance(Wire):
    """An app that was deployed in a project, on machines of its own."""

    instance_id: str
    resource_name: str
    """Names it among everything on the platform: region, organisation, project and id."""
    org_id: str
    project_id: str
    app_slug: str
    app_version: str
    name: str
    """Unique among the project's instances that are not deleted; it can be given wherever an id can."""
    status: InstanceStatus
    """Derived from its members, its conditions and the operation that works on it."""
    status_reason: str
    """What is wrong while it is degraded or failed."""
    topology: str
    """The arrangement of roles, out of those the manifest offers."""
    operating_mode: str
    """Chosen at deploy from the manifest; a word of the app's own."""
    control_plane_scope: str
    """Chosen at deploy from the manifest; a word of the app's own."""
    runtime_backend: str
    """As the manifest says; a word of the app's own."""
    placement: dict[str, list[str]]
    """component_key -> allocation ids, as asked for at deploy."""
    inputs: dict[str, Any]
    """What the deploy form was filled in with."""
    operator_service_account_id: str
    """Whose controller works on it, and nobody else's; empty: any of the project."""
    requested_by: str
    """Who deployed it."""
    correlation_id: str
    """Of the request that created it; each operation has its own."""
    last_operation_id: str
    revision: int
    """Grows with every change: what was seen of an older one can be told apart."""
    created_at: Timestamp
    updated_at: Timestamp
    previous_version: str = ""
    """The app version before the last upgrade; empty when there was none."""
    previous_inputs: dict[str, Any] = {}
    """The inputs before the last upgrade; a rollback brings them back."""
    baseline: Baseline = "up"
    """How the last operation on the whole instance left it; its status is derived from it."""
    conditions: list[Condition] = []
    """What the platform and the app's controller say about it, by type."""
    artifacts: dict[str, str] = {}
    """Name in the manifest -> digest, as resolved at deploy or upgrade."""


class BreakerState(Wire):
    """Whether a role takes new members, or too many failed lately."""

    open: bool = False
    failures: int = 0
    """Failed adds inside the window."""
    closes_at: Timestamp | None = None
    """When adding is allowed again by itself."""


class Role(Wire):
    """The members of an instance that play one part, counted."""

    component_key: str
    """The role's name in the manifest."""
    desired: int
    """Members that are not removed or given up."""
    current: int
    """Of these, those that have not failed."""
    ready: int
    health: Literal["healthy", "degraded", "failed", "empty"]
    """Healthy when every member is ready, failed when every one has, empty without any."""
    breaker: BreakerState = BreakerState()


class Roles(Wire):
    """Every role of an instance, empty ones included."""

    items: list[Role]


class Member(Wire):
    """One machine's part in an app instance."""

    member_id: str
    instance_id: str
    org_id: str
    project_id: str
    component_key: str
    """The role it plays."""
    status: MemberStatus
    """`drained`: there, but takes no work. `tombstoned`: given up, and nobody knows what is left of it."""
    status_reason: str
    """Why it is so, in the words of whoever moved it."""
    allocation_id: str
    node_id: str
    node_name: str
    address: str
    """Where its machine is reached over SSH."""
    last_operation_id: str
    """The operation that last asked something of it."""
    correlation_id: str
    """Of that operation."""
    adapter_detail: dict[str, Any]
    """Words of the app's own, for people; the platform never reads them."""
    observed_version: str
    """Of the app's software on the machine, as its controller saw it."""
    was_ready: bool
    """Has been ready or degraded on this machine, so it may have run work."""
    revision: int
    """Grows with every change: what was seen of an older one is refused."""
    created_at: Timestamp
    updated_at: Timestamp


class DeployInstance(Request):
    """Deploys an app on allocations of the project."""

    name: Label
    """Unique among the project's instances that are not deleted."""
    app_slug: str
    topology: str
    """One that the manifest offers."""
    version: str = ""
    """Empty takes the newest published version."""
    inputs: dict[str, Any] = {}
    """The deploy form, filled in; it also says which allocations play which role."""
    operator_service_account_id: str = ""
    """Whose controller works on it, and nobody else's; empty: the calling service account, or any of the project."""
    operating_mode: str = ""
    """Empty takes the first of the manifest."""
    control_plane_scope: str = ""
    """Empty takes the first of the manifest."""


class Deployed(Wire):
    """A deploy that was accepted: the instance as it is now and the operation to follow."""

    instance: Instance
    operation: Operation
    members: list[Member] = []


class ChangeInstance(Request):
    """Stops, starts, restarts or rolls back a whole instance."""

    reason: OptionalReason = ""
    """Why; kept with the operation."""
    force: bool = False
    """Go on against holds, the disruption budget and missing evidence. Needs `apps.operation.force` and a reason."""


class Decommission(ChangeInstance):
    """Tears a whole instance down."""


class UpgradeInstance(Request):
    """Moves an instance to another version of its app."""

    version: str
    """Empty takes the newest published version."""
    inputs: dict[str, Any] | None = None
    """New inputs; none keeps the present ones."""
    reason: OptionalReason = ""
    """Why; kept with the operation."""
    force: bool = False
    """As for stop: against holds, the disruption budget and missing evidence."""


class LiveQuery(PageQuery):
    live: bool = False
    """Leave out what is gone: deleted instances, removed and tombstoned members."""


BULK_MAX = 1024


class MemberOperationRequest(Request):
    """`add` names allocations and a role, `replace` members and as many allocations, the others members."""

    kind: Literal["add", "drain", "resume", "remove", "replace"]
    component_key: str = ""
    """`add`: the role of the new members."""
    allocation_ids: Annotated[list[str], msgspec.Meta(max_length=BULK_MAX)] = []
    """Machines that members are made on, or move to; by id, or by the name of the node."""
    member_ids: Annotated[list[str], msgspec.Meta(max_length=BULK_MAX)] = []
    """By id, by node, or as `node/role` where a node carries several members."""
    reason: OptionalReason = ""
    """Why; kept with the operation."""
    force: bool = False
    """Go on against holds, the disruption budget and missing evidence. Needs `apps.operation.force` and a reason."""
    stop_after_failures: Annotated[int, msgspec.Meta(ge=0)] = 0
    """As soon as this many members failed, the ones not begun are skipped; 0 goes on to the end."""


class SetOperator(Request):
    """Says whose controller works on an instance from now on."""

    operator_service_account_id: str
    """An active service account of the project; empty: any of the project."""
    reason: Reason
    """Why; told as an event and kept in the audit trail."""


class ResetBreaker(Request):
    """Lets a role take new members again before its breaker closes by itself."""

    reason: Reason
    """Why; told as an event."""


class Connection(Wire):
    """An address the app is reached at."""

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
    """What lies where on the machines, by a name of the app's own."""
    commands: list[Command] = []
    notes: list[str] = []
    """What else people should know."""


INSTANCE_CREATE = Endpoint(
    "apps.instance.create",
    "POST",
    "/api/v1/projects/{project_id}/app-instances",
    "Deploy an app the project is entitled to",
    permission="apps.instance.create",
    request=DeployInstance,
    response=Deployed,
    subject="instance.instance_id",
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
    query=LiveQuery,
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
    "Members of an instance, removed ones included unless told otherwise",
    permission="apps.instance.read",
    request=NoBody,
    query=LiveQuery,
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
_REFUSALS = (
    errors.OperationInProgress,
    errors.PolicyDenied,
    errors.MemberHeld,
    errors.DisruptionBudget,
    errors.CircuitOpen,
)
_INSTANCE = "/api/v1/projects/{project_id}/app-instances/{instance_id}"

DECOMMISSION = Endpoint(
    "apps.instance.decommission",
    "POST",
    f"{_INSTANCE}/decommission",
    "Tear the app down on every machine",
    permission="apps.instance.decommission",
    request=Decommission,
    response=Operation,
    subject="operation_id",
    status=202,
    errors=_REFUSALS,
)
STOP = Endpoint(
    "apps.instance.stop",
    "POST",
    f"{_INSTANCE}/stop",
    "Stop the app on every machine; members, machines and data stay",
    permission="apps.instance.stop",
    request=ChangeInstance,
    response=Operation,
    subject="operation_id",
    status=202,
    errors=_REFUSALS,
)
START = Endpoint(
    "apps.instance.start",
    "POST",
    f"{_INSTANCE}/start",
    "Start a stopped app",
    permission="apps.instance.start",
    request=ChangeInstance,
    response=Operation,
    subject="operation_id",
    status=202,
    errors=_REFUSALS,
)
RESTART = Endpoint(
    "apps.instance.restart",
    "POST",
    f"{_INSTANCE}/restart",
    "Stop and start the app",
    permission="apps.instance.restart",
    request=ChangeInstance,
    response=Operation,
    subject="operation_id",
    status=202,
    errors=_REFUSALS,
)
UPGRADE = Endpoint(
    "apps.instance.upgrade",
    "POST",
    f"{_INSTANCE}/upgrade",
    "Move the app to another version the project may deploy",
    permission="apps.instance.upgrade",
    request=UpgradeInstance,
    response=Operation,
    subject="operation_id",
    status=202,
    errors=(*_REFUSALS, errors.NotEntitled),
)
ROLLBACK = Endpoint(
    "apps.instance.rollback",
    "POST",
    f"{_INSTANCE}/rollback",
    "Go back to the version before the last upgrade, where the app allows it",
    permission="apps.instance.rollback",
    request=ChangeInstance,
    response=Operation,
    subject="operation_id",
    status=202,
    errors=_REFUSALS,
)
MEMBER_OPERATION_CREATE = Endpoint(
    "apps.member.operate",
    "POST",
    f"{_INSTANCE}/member-operations",
    "Add, drain, resume, remove or replace members",
    permission="apps.member.operate",
    request=MemberOperationRequest,
    response=Operation,
    subject="operation_id",
    status=202,
    errors=_REFUSALS,
)
MEMBER_GET = Endpoint(
    "apps.member.get",
    "GET",
    f"{_INSTANCE}/members/{{member_id}}",
    "One member",
    permission="apps.instance.read",
    request=NoBody,
    response=Member,
)
OPERATOR_SET = Endpoint(
    "apps.instance.set_operator",
    "PUT",
    f"{_INSTANCE}/operator",
    "Say whose controller works on the instance; open operations go with it",
    permission="apps.instance.set_operator",
    request=SetOperator,
    response=Instance,
    subject="instance_id",
    repeat="natural",
)
BREAKER_RESET = Endpoint(
    "apps.role.reset_breaker",
    "POST",
    f"{_INSTANCE}/roles/{{component_key}}/reset-breaker",
    "Allow adding to a role again after too many failures",
    permission="apps.role.reset_breaker",
    request=ResetBreaker,
    response=Role,
    subject="component_key",
    example={"reason": "the image is repaired"},
)
ENDPOINTS = (
    INSTANCE_CREATE,
    INSTANCE_LIST,
    INSTANCE_GET,
    ROLE_LIST,
    MEMBER_LIST,
    MEMBER_GET,
    ACCESS_BUNDLE_GET,
    DECOMMISSION,
    STOP,
    START,
    RESTART,
    UPGRADE,
    ROLLBACK,
    MEMBER_OPERATION_CREATE,
    OPERATOR_SET,
    BREAKER_RESET,
)
