"""The runtime API of app controllers: claim an operation, keep its lease, report, end it.

Every report carries the epoch its claim returned; the platform refuses a lower one."""

from typing import Annotated, Any, Literal

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.holds import Hold
from gpuaas_contract.instances import BULK_MAX, AccessBundle, Command, Connection, Instance, Member
from gpuaas_contract.lifecycles import MemberStatus, StepState
from gpuaas_contract.operations import Evidence, FailureClass, Operation, Preview, Receipt, Transcript
from gpuaas_contract.wire import NoBody, Page, PageQuery, Request, Timestamp, WaitSeconds, Wire

ShortText = Annotated[str, msgspec.Meta(max_length=200)]
"""A name. What is said for people may be longer; the platform keeps its first 2,000 characters."""
LEASE_S_MAX = 60
LeaseSeconds = Annotated[int, msgspec.Meta(ge=1, le=LEASE_S_MAX, description=f"From 1 to {LEASE_S_MAX} seconds.")]
STEPS_MAX = 8 * BULK_MAX
"""Steps of one operation: also the largest has room for eight of each member."""


class ClaimOperation(Request):
    """Asks for the next operation of an app that waits for a controller."""

    app_slug: str
    holder: ShortText
    """What the controller calls itself; people see it."""
    claim_id: ShortText
    """Chosen by the caller: the same id asks again for the same lease after a lost answer."""
    lease_s: LeaseSeconds = 15
    """How long the lease lasts without a heartbeat."""
    wait_s: WaitSeconds = 0
    """How long to wait for an operation."""
    controller_version: ShortText = ""
    """Of the caller's own program, for people."""


class Claim(Wire):
    """All a controller needs to start: the operation, its instance, its live members and the holds on them.

    Empty if nothing waits."""

    operation: Operation | None = None
    instance: Instance | None = None
    members: list[Member] = []
    holds: list[Hold] = []
    epoch: int = 0
    """Every report carries it; 0 when nothing waits."""


class Heartbeat(Request):
    """Renews the lease on an operation."""

    epoch: int
    """Of the claim."""
    lease_s: LeaseSeconds = 15
    """How long the lease lasts from now on without another heartbeat."""


class ReportStep(Request):
    """Says that a step of an operation runs, succeeded or failed."""

    epoch: int
    """Of the claim."""
    name: ShortText
    """A word of the app's own. The same name again is the same step, for each member apart."""
    state: StepState
    member_id: ShortText = ""
    """Empty for a step of the whole operation."""
    message: str = ""
    """For people."""
    transcript: Transcript | None = None


class ReportMember(Request):
    """Says how a member of the operation is."""

    epoch: int
    """Of the claim."""
    status: MemberStatus
    status_reason: str = ""
    """For people."""
    adapter_detail: dict[str, Any] | None = None
    """Words of the app's own, at most 16 KiB as JSON; none leaves what was said before."""
    observed_version: ShortText | None = None
    """Of the app's software on the machine; none leaves what was said before."""
    evidence: Evidence | None = None
    """Needed before a member that may have run work is taken away."""


class CompleteOperation(Request):
    """Every target is where it should be, failed, or undone; the platform says what that makes of the operation."""

    epoch: int
    """Of the claim."""
    result: dict[str, Any] | None = None
    """`action`: what it brought."""
    preview: Preview | None = None
    """`preview`: what would be hit."""
    undone: bool = False
    """The work was taken back, as a cancel asked. Members that are `ready` before and after an operation cannot show
    which it was; without this word it was done, and the cancel came too late."""


class FailOperation(Request):
    """Ends an operation that cannot go on, with the reason."""

    epoch: int
    """Of the claim."""
    code: ShortText
    """One word for machines, of the app's own."""
    message: str
    """For people."""
    failure_class: FailureClass
    """What can be done about it, as people read it with the operation's error."""
    fix: str = ""
    """What to do next, for people."""


class PublishAccess(Request):
    """Writes how people reach the app; it takes the place of what was written before."""

    epoch: int
    """Of the claim."""
    endpoints: list[Connection] = []
    paths: dict[str, str] = {}
    """What lies where on the machines, by a name of the app's own."""
    commands: list[Command] = []
    notes: list[str] = []
    """What else people should know."""


class ReportedCondition(Request):
    """One named statement about an instance, by its controller."""

    type: Annotated[str, msgspec.Meta(min_length=1, max_length=63, pattern=r"^[A-Za-z][A-Za-z0-9]*(?!\n)$")]
    """A word of the app's own: `QueueReachable`. Anything but `true` makes the instance degraded."""
    status: Literal["true", "false", "unknown"]
    reason: Annotated[str, msgspec.Meta(max_length=63)] = ""
    """One word for machines."""
    message: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    """For people."""


class ObservedMember(Request):
    """How a member is that no operation works on."""

    member_id: str
    revision: int
    """Of the member as the observer knew it: an observation of an older one is refused."""
    status: MemberStatus
    """One that a member can reach by itself: it neither comes nor goes this way."""
    status_reason: str = ""
    adapter_detail: dict[str, Any] | None = None
    observed_version: ShortText | None = None


class ReportRuntime(Request):
    """What a controller sees between operations."""

    holder: ShortText
    """What the controller calls itself."""
    observed_revision: int
    """Of the instance as the observer knew it."""
    conditions: Annotated[list[ReportedCondition], msgspec.Meta(max_length=32)] = []
    """Those named replace what was said of their type before; others stay."""
    members: Annotated[list[ObservedMember], msgspec.Meta(max_length=1024)] = []


class RefusedObservation(Wire):
    """Why what was said about a member did not count."""

    member_id: str
    code: Literal["not_found", "stale", "operation_in_progress", "illegal_move"]
    message: str


class RuntimeReported(Wire):
    """What became of a report."""

    instance: Instance
    members: list[Member]
    """As they are now, for the next report."""
    refused: list[RefusedObservation]


class Controller(Wire):
    """An app controller that asks for work in this project."""

    controller_id: str
    """Project, app and holder."""
    project_id: str
    app_slug: str
    holder: str
    """What it calls itself."""
    actor_id: str
    """The service account it signs in as."""
    version: str
    """Of its own program, as it says."""
    last_seen_at: Timestamp


_OPERATION = "/api/v1/projects/{project_id}/operations/{operation_id}"

CLAIM = Endpoint(
    "runtime.claim",
    "POST",
    "/api/v1/projects/{project_id}/operations/claim",
    "Take the next operation of an app, waiting for one when asked",
    permission="apps.operation.execute",
    request=ClaimOperation,
    response=Claim,
    subject="project_id",
    audited=False,
    repeat="natural",
    errors=(errors.AppUnknown,),
)
HEARTBEAT = Endpoint(
    "runtime.heartbeat",
    "PUT",
    f"{_OPERATION}/lease",
    "Keep the lease on an operation",
    permission="apps.operation.execute",
    request=Heartbeat,
    response=Receipt,
    subject="operation_id",
    audited=False,
    repeat="natural",
    errors=(errors.LeaseLost,),
)
STEP_REPORT = Endpoint(
    "runtime.step",
    "PUT",
    f"{_OPERATION}/steps",
    "Say that a step runs, succeeded or failed",
    permission="apps.operation.execute",
    request=ReportStep,
    response=Receipt,
    subject="operation_id",
    audited=False,
    repeat="natural",
    errors=(errors.LeaseLost,),
)
MEMBER_REPORT = Endpoint(
    "runtime.member",
    "PUT",
    f"{_OPERATION}/members/{{member_id}}",
    "Say how a member is",
    permission="apps.operation.execute",
    request=ReportMember,
    response=Receipt,
    subject="member_id",
    audited=False,
    repeat="natural",
    errors=(errors.LeaseLost, errors.EvidenceRequired, errors.MemberHeld, errors.IllegalMove),
)
ACCESS_PUBLISH = Endpoint(
    "runtime.access",
    "PUT",
    f"{_OPERATION}/access-bundle",
    "Write how people reach the app",
    permission="apps.operation.execute",
    request=PublishAccess,
    response=AccessBundle,
    subject="operation_id",
    repeat="natural",
    errors=(errors.LeaseLost,),
)
COMPLETE = Endpoint(
    "runtime.complete",
    "PUT",
    f"{_OPERATION}/complete",
    "End an operation whose targets are all done, failed or undone; the platform says what that makes of it",
    permission="apps.operation.execute",
    request=CompleteOperation,
    response=Operation,
    subject="operation_id",
    repeat="natural",
    errors=(errors.LeaseLost, errors.EvidenceRequired, errors.OperationUnfinished),
)
FAIL = Endpoint(
    "runtime.fail",
    "PUT",
    f"{_OPERATION}/fail",
    "End an operation that cannot go on, and say why",
    permission="apps.operation.execute",
    request=FailOperation,
    response=Operation,
    subject="operation_id",
    repeat="natural",
    errors=(errors.LeaseLost,),
)
RUNTIME_REPORT = Endpoint(
    "runtime.report",
    "PUT",
    "/api/v1/projects/{project_id}/app-instances/{instance_id}/runtime-state",
    "Say how the instance and its members are, between operations",
    permission="apps.operation.execute",
    request=ReportRuntime,
    response=RuntimeReported,
    subject="instance_id",
    audited=False,
    repeat="natural",
)
CONTROLLER_LIST = Endpoint(
    "runtime.controller.list",
    "GET",
    "/api/v1/projects/{project_id}/controllers",
    "App controllers and when each was last heard of",
    permission="apps.instance.read",
    request=NoBody,
    query=PageQuery,
    response=Page[Controller],
)
ENDPOINTS = (
    CLAIM,
    HEARTBEAT,
    STEP_REPORT,
    MEMBER_REPORT,
    ACCESS_PUBLISH,
    COMPLETE,
    FAIL,
    RUNTIME_REPORT,
    CONTROLLER_LIST,
)
