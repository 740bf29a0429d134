"""App instances, their roles and members, the operations on them, and the access bundle."""

from typing import Annotated, Any, Literal

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.lifecycles import InstanceStatus, MemberStatus
from gpuaas_contract.operations import Operation, OptionalReason, Reason
from gpuaas_contract.paths import INSTANCE, MEMBER, PROJECT, ROLE
from gpuaas_contract.wire import (
    Id,
    Inputs,
    Label,
    LongText,
    OrderedQuery,
    PageQuery,
    Request,
    ShortText,
    Timestamp,
    Wire,
)

Baseline = Literal["new", "up", "stopped", "failed", "deleted"]
"""State of the instance after the last operation on the whole of it."""


class Condition(Wire):
    """A named statement about an instance, with a status and a reason."""

    type: str
    """`LastOperationSucceeded` and `Observed` are set by the platform, all others by the app. The first is about the
    last operation on the whole instance; a failed operation on members shows in the members."""
    status: Literal["true", "false", "unknown"]
    reason: str
    """A code for programs."""
    message: str
    """The condition's state as a sentence for people."""
    observed_revision: int
    """Revision of the instance when this was first observed."""
    changed_at: Timestamp
    """When `status` last changed."""


class Steward(Wire):
    """The controller that looks after an instance between operations, and its lease."""

    holder: str
    """Name of the controller process; empty after the lease was withdrawn."""
    actor_id: str
    """The service account that the controller signs in as."""
    epoch: int
    """Grows each time the stewardship is taken; a report with an older epoch is refused."""
    expires_at: Timestamp
    """If not renewed by then, another controller may take the stewardship."""
    observed_at: Timestamp | None = None
    """When a controller last looked at the instance; none: not yet."""


class Instance(Wire):
    """An app that is deployed in a project."""

    instance_id: str
    resource_name: str
    """Unique on the platform: region, organisation, project and id."""
    org_id: str
    project_id: str
    app_slug: str
    app_version: str
    name: str
    """Unique among the project's instances that are not deleted; accepted wherever an id is."""
    status: InstanceStatus
    """Status of the instance, derived from its members, its conditions and the running operation."""
    status_reason: str
    """What is wrong with the instance, if it is degraded or failed."""
    topology: str
    """Layout of the roles; one that the app's manifest offers."""
    operating_mode: str
    """The value that the deploy request selected from the app's manifest."""
    control_plane_scope: str
    """The value that the deploy request selected from the app's manifest."""
    runtime_backend: str
    """Text from the app's manifest; the platform never interprets it."""
    placement: dict[str, list[str]]
    """component_key -> allocation ids, as requested at deploy."""
    inputs: dict[str, Any]
    """Values for the inputs that the app's manifest declares."""
    operator_service_account_id: str
    """The only service account that may claim operations of the instance; empty: any of the project that operates the
    app."""
    requested_by: str
    """Who deployed it."""
    correlation_id: str
    """Correlation id of the request that created the instance; each operation has its own."""
    last_operation_id: str
    revision: int
    """Number of the resource's version; it grows with every change."""
    created_at: Timestamp
    updated_at: Timestamp
    previous_version: str = ""
    """The app version before the last upgrade; empty when there was none."""
    previous_inputs: dict[str, Any] = {}
    """The inputs before the last upgrade; a rollback restores them."""
    inputs_before: dict[str, Any] = {}
    """The inputs before the last reconfigure; empty if there was none since the deploy or the last upgrade."""
    baseline: Baseline = "up"
    """State of the instance after the last operation on the whole of it; `status` is derived from this."""
    conditions: list[Condition] = []
    """Conditions reported by the platform and the app's controller, by type."""
    artifacts: dict[str, str] = {}
    """Name in the manifest -> digest, as resolved at deploy or upgrade."""
    steward: Steward | None = None
    """The controller that looks after the instance between operations, and when it last did; none if no controller ever
    did. Only in answers to a read of one instance and in lists; a change of it does not change the revision."""


class BreakerState(Wire):
    """Whether members can be added to a role, or too many failed recently."""

    open: bool = False
    failures: int = 0
    """How many new members of the role failed within the breaker's time window."""
    closes_at: Timestamp | None = None
    """When the breaker closes without a reset: from then on, members can be added to the role."""


class Role(Wire):
    """A role of an instance, with the number of its members."""

    component_key: str
    """The role's name in the manifest."""
    desired: int
    """How many members were asked for: those that are there, and those that were given up and not replaced since. A
    remove lowers it."""
    current: int
    """How many members of the role have not failed."""
    ready: int
    health: Literal["healthy", "degraded", "failed", "empty"]
    """`healthy`: as many as `desired` are ready; `failed`: every member failed; `empty`: no members."""
    breaker: BreakerState = BreakerState()
    by_status: dict[str, int] = {}
    """Status -> number of the role's members with it, without removed and tombstoned ones."""


class InstanceCount(Wire):
    """How many instances of an app have a status."""

    app_slug: str
    status: InstanceStatus
    instances: int


class InstanceCounts(Wire):
    """How many instances a project has, by app and status, without deleted ones."""

    items: list[InstanceCount]


class Roles(Wire):
    """Every role of an instance, empty ones included."""

    items: list[Role]


class Member(Wire):
    """One runtime unit of an instance, on one machine."""

    member_id: str
    instance_id: str
    org_id: str
    project_id: str
    component_key: str
    """Its role."""
    status: MemberStatus
    """`drained`: takes no work. `tombstoned`: given up; what is left on the machine is unknown."""
    status_reason: str
    """Why the member has this status, as the app's controller reported."""
    allocation_id: str
    node_id: str
    node_name: str
    address: str
    """Address of the member's machine for SSH."""
    last_operation_id: str
    """Id of the last operation on the member."""
    correlation_id: str
    """Correlation id of the last operation on the member."""
    adapter_detail: dict[str, Any]
    """Details from the app; the platform never interprets them."""
    observed_version: str
    """Version of the app's software on the machine, as its controller reported."""
    was_ready: bool
    """True if the member was ever ready or degraded on this machine: work may have run on it."""
    revision: int
    """Grows with every change; an observation of an older revision is refused."""
    created_at: Timestamp
    updated_at: Timestamp


class DeployInstance(Request):
    """Deploys an app on allocations of the project."""

    name: Label
    """Unique among the project's instances that are not deleted."""
    app_slug: Id
    topology: Id
    """Layout of the roles; one that the app's manifest offers."""
    version: Id = ""
    """Version of the app; empty: the newest published version."""
    inputs: Inputs = {}
    """Values for the inputs that the app's manifest declares. They also name the allocations of each role."""
    operator_service_account_id: Id = ""
    """The only service account that may claim operations of the instance; empty: the calling service account if it
    operates the app, else any of the project that does."""
    operating_mode: Id = ""
    """One of the values that the app's manifest offers; empty: the first of them."""
    control_plane_scope: Id = ""
    """One of the values that the app's manifest offers; empty: the first of them."""


class Deployed(Wire):
    """An accepted deploy: the instance and the operation to follow."""

    instance: Instance
    operation: Operation
    members: list[Member] = []


class ChangeInstance(Request):
    """Stops, starts, restarts or rolls back a whole instance."""

    reason: OptionalReason = ""
    """Why the caller wants this change, as text for people; stored with the operation."""
    force: bool = False
    """Ignore holds, the disruption budget and missing evidence. Needs `apps.operation.force` and a reason."""


class Decommission(ChangeInstance):
    """Removes an instance from all its machines."""


class UpgradeInstance(Request):
    """Upgrades an instance to another version of its app."""

    version: Id
    """Version of the app; empty: the newest published version."""
    inputs: Inputs | None = None
    """New inputs; none: the present inputs stay."""
    reason: OptionalReason = ""
    """Why the caller wants this change, as text for people; stored with the operation."""
    force: bool = False
    """Ignore holds, the disruption budget and missing evidence. Needs `apps.operation.force` and a reason."""


class ReconfigureInstance(Request):
    """Changes inputs of a running instance."""

    inputs: Inputs = {}
    """Name of an input -> its new value, or null for the default. Inputs that are not named stay as they are."""
    previous: bool = False
    """Return to the inputs before the last reconfigure, instead of `inputs`."""
    reason: OptionalReason = ""
    """Why the caller wants this change, as text for people; stored with the operation."""
    force: bool = False
    """Ignore holds, the disruption budget and missing evidence. Needs `apps.operation.force` and a reason."""


class InstanceListQuery(OrderedQuery):
    live: bool = False
    """True: without deleted instances."""
    status: InstanceStatus | None = None
    """Only instances with this status; none: all."""
    search: ShortText = ""
    """Only instances whose name or app contains this text, in upper or lower case; empty: all."""


class MemberListQuery(PageQuery):
    live: bool = False
    """True: without removed and tombstoned members."""
    status: MemberStatus | None = None
    """Only members with this status; none: all."""
    component_key: Id = ""
    """Only members of this role; empty: all."""
    search: ShortText = ""
    """Only members on nodes whose name contains this text, in upper or lower case; empty: all."""


BULK_MAX = 1024


class MemberOperationRequest(Request):
    """Adds, drains, resumes, removes, replaces or repairs members. `add` needs allocations and a role, `replace`
    members and the same number of allocations, the others members."""

    kind: Literal["add", "drain", "resume", "remove", "replace", "repair"]
    component_key: Id = ""
    """`add`: the role of the new members."""
    allocation_ids: Annotated[list[Id], msgspec.Meta(max_length=BULK_MAX)] = []
    """Allocations for new or replaced members; by id, or by the name of the node."""
    member_ids: Annotated[list[Id], msgspec.Meta(max_length=BULK_MAX)] = []
    """By id, by node, or as `node/role` if a node has several members."""
    reason: OptionalReason = ""
    """Why the caller wants this change, as text for people; stored with the operation."""
    force: bool = False
    """Ignore holds, the disruption budget and missing evidence. Needs `apps.operation.force` and a reason."""
    stop_after_failures: Annotated[int, msgspec.Meta(ge=0)] = 0
    """After this many failures, members that have not started are skipped; 0: no limit."""


class SetOperator(Request):
    """Sets which service account's controller works on an instance."""

    operator_service_account_id: Id
    """An active service account of the project that operates the app; empty: any of these."""
    reason: Reason
    """Reason; sent as an event and stored in the audit trail."""


class ResetBreaker(Request):
    """Allows adding members to a role again, although too many failed."""

    reason: Reason
    """Why the breaker is reset, as text for people; sent with the event about it."""


class Connection(Wire):
    """An address at which an app instance can be reached."""

    name: ShortText
    url: LongText


class Command(Wire):
    """A command line to run on a machine of the instance."""

    title: ShortText
    line: LongText
    allocation_id: Id = ""
    """The allocation on whose machine the command is run."""
    user: Id = ""
    """Unix user to run the command as; empty: the user who logs in."""


class AccessBundle(Wire):
    """How people use an app instance: its addresses, paths and commands, as its controller published them."""

    endpoints: list[Connection] = []
    paths: dict[str, str] = {}
    """Name -> path on the machines, chosen by the app."""
    commands: list[Command] = []
    notes: list[str] = []
    """More remarks from the app, as text for people."""


INSTANCE_CREATE = PROJECT.row(
    "/app-instances",
    "apps.instance.create",
    "Deploy an app the project is entitled to",
    "The project must be entitled to the app. The answer has the operation to follow; the app's "
    "controller does the work.",
).post(
    DeployInstance,
    Deployed,
    subject="instance.instance_id",
    status=202,
    errors=(errors.NotEntitled, errors.PolicyDenied),
)
INSTANCE_LIST = PROJECT.row("/app-instances", "apps.instance.list", "List the app instances of a project").list(
    Instance, "apps.instance.read", query=InstanceListQuery
)
INSTANCE_COUNTS = PROJECT.row(
    "/app-instance-counts", "apps.instance.counts", "Count the app instances of a project by app and status"
).get(InstanceCounts, "apps.instance.read")
INSTANCE_GET = INSTANCE.row("", "apps.instance.get", "Get one app instance").get(Instance, "apps.instance.read")
ROLE_LIST = INSTANCE.row("/roles", "apps.role.list", "List the roles of an instance, with member counts").get(
    Roles, "apps.instance.read"
)
MEMBER_LIST = INSTANCE.row(
    "/members", "apps.member.list", "List the members of an instance, by default with removed ones"
).list(Member, "apps.instance.read", query=MemberListQuery)
MEMBER_GET = MEMBER.row("", "apps.member.get", "Get one member").get(Member, "apps.instance.read")
_REFUSALS = (
    errors.OperationInProgress,
    errors.PolicyDenied,
    errors.MemberHeld,
    errors.DisruptionBudget,
    errors.CircuitOpen,
)
ACCESS_BUNDLE_GET = INSTANCE.row(
    "/access-bundle", "apps.access_bundle.get", "Get how to use the app: endpoints, paths, commands"
).get(AccessBundle, "apps.instance.read")
DECOMMISSION = INSTANCE.row(
    "/decommission",
    "apps.instance.decommission",
    "Decommission an instance: remove the app from every machine",
    "The app's controller removes the app from all machines of the instance. Its allocations stay.",
).post(Decommission, Operation, status=202, errors=_REFUSALS)
STOP = INSTANCE.row("/stop", "apps.instance.stop", "Stop an instance; its members, machines and data stay").post(
    ChangeInstance, Operation, status=202, errors=_REFUSALS
)
START = INSTANCE.row("/start", "apps.instance.start", "Start a stopped instance").post(
    ChangeInstance, Operation, status=202, errors=_REFUSALS
)
RESTART = INSTANCE.row("/restart", "apps.instance.restart", "Restart an instance").post(
    ChangeInstance, Operation, status=202, errors=_REFUSALS
)
UPGRADE = INSTANCE.row(
    "/upgrade",
    "apps.instance.upgrade",
    "Upgrade an instance to another version",
    "The project must be entitled to the version, and the manifest must allow the step.",
).post(UpgradeInstance, Operation, status=202, errors=(*_REFUSALS, errors.NotEntitled))
ROLLBACK = INSTANCE.row(
    "/rollback",
    "apps.instance.rollback",
    "Roll an instance back to the version before the last upgrade",
    "Only if the app's manifest allows it. The rollback restores the inputs from before the upgrade.",
).post(ChangeInstance, Operation, status=202, errors=_REFUSALS)
RECONFIGURE = INSTANCE.row(
    "/reconfigure",
    "apps.instance.reconfigure",
    "Change inputs of a running instance",
    "Only inputs that the app's manifest marks as changeable. With `dry_run=true` the app's controller is asked "
    "what would change, what restarts and which work would be affected.",
).post(
    ReconfigureInstance,
    Operation,
    status=202,
    errors=_REFUSALS,
    example={"inputs": {"default_time": "2-00:00:00"}, "reason": "long trainings"},
)
MEMBER_OPERATION_CREATE = INSTANCE.row(
    "/member-operations",
    "apps.member.operate",
    "Add, drain, resume, remove, replace or repair members",
    "One operation for up to 1024 members of one role. With `dry_run=true` the app's controller is asked "
    "which work would be affected.",
).post(MemberOperationRequest, Operation, status=202, errors=_REFUSALS)
OPERATOR_SET = INSTANCE.row(
    "/operator",
    "apps.instance.set_operator",
    "Set which service account works on an instance",
    "Open operations move to the new service account.",
).put(SetOperator, Instance)
BREAKER_RESET = ROLE.row(
    "/reset-breaker",
    "apps.role.reset_breaker",
    "Reset the breaker of a role",
    "Allows adding members to the role again after too many failed.",
).post(ResetBreaker, Role, subject="component_key", example={"reason": "the image is repaired"})
