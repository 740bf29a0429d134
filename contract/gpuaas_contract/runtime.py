"""The runtime API of app controllers: claim an operation, keep its lease, report, end it.

Every report carries the epoch its claim returned; the platform refuses a lower one."""

import datetime
from typing import Annotated, Any, Literal

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.holds import Hold
from gpuaas_contract.instances import BULK_MAX, AccessBundle, Command, Connection, Instance, Member
from gpuaas_contract.lifecycles import MemberStatus, StepState
from gpuaas_contract.operations import Evidence, FailureClass, Lease, Operation, Preview, Transcript
from gpuaas_contract.wire import NoBody, Page, PageQuery, Request, WaitSeconds, Wire

ShortText = Annotated[str, msgspec.Meta(max_length=200)]
"""A name. What is said for people may be longer; the platform keeps its first 2,000 characters."""
STEPS_MAX = 8 * BULK_MAX
"""Steps of one operation: also the largest has room for eight of each member."""


class ClaimOperation(Request):
    app_slug: str
    holder: ShortText
    claim_id: ShortText
    """Chosen by the caller: the same id asks again for the same lease after a lost answer."""
    lease_s: int = 15
    wait_s: WaitSeconds = 0
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


class Heartbeat(Request):
    epoch: int
    lease_s: int = 15


class ReportStep(Request):
    epoch: int
    name: ShortText
    state: StepState
    member_id: ShortText = ""
    message: str = ""
    transcript: Transcript | None = None


class ReportMember(Request):
    epoch: int
    status: MemberStatus
    status_reason: str = ""
    adapter_detail: dict[str, Any] | None = None
    observed_version: ShortText | None = None
    evidence: Evidence | None = None


class CompleteOperation(Request):
    """Every target is where it should be, failed, or undone; the platform says what that makes of the operation."""

    epoch: int
    result: dict[str, Any] | None = None
    """`action`: what it brought."""
    preview: Preview | None = None
    """`preview`: what would be hit."""
    undone: bool = False
    """The work was taken back, as a cancel asked. Members that are `ready` before and after an operation cannot show
    which it was; without this word it was done, and the cancel came too late."""


class FailOperation(Request):
    epoch: int
    code: ShortText
    message: str
    failure_class: FailureClass
    fix: str = ""


class PublishAccess(Request):
    epoch: int
    endpoints: list[Connection] = []
    paths: dict[str, str] = {}
    commands: list[Command] = []
    notes: list[str] = []


class ReportedCondition(Request):
    type: Annotated[str, msgspec.Meta(min_length=1, max_length=63, pattern=r"^[A-Za-z][A-Za-z0-9]*(?!\n)$")]
    status: Literal["true", "false", "unknown"]
    reason: Annotated[str, msgspec.Meta(max_length=63)] = ""
    message: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class ObservedMember(Request):
    member_id: str
    revision: int
    """Of the member as the observer knew it: an observation of an older one is refused."""
    status: MemberStatus
    status_reason: str = ""
    adapter_detail: dict[str, Any] | None = None
    observed_version: ShortText | None = None


class ReportRuntime(Request):
    """What a controller sees between operations."""

    holder: ShortText
    observed_revision: int
    """Of the instance as the observer knew it."""
    conditions: Annotated[list[ReportedCondition], msgspec.Meta(max_length=32)] = []
    """Those named replace what was said of their type before; others stay."""
    members: Annotated[list[ObservedMember], msgspec.Meta(max_length=1024)] = []


class RefusedObservation(Wire):
    member_id: str
    code: Literal["not_found", "stale", "operation_in_progress", "illegal_move"]
    message: str


class RuntimeReported(Wire):
    instance: Instance
    members: list[Member]
    """As they are now, for the next report."""
    refused: list[RefusedObservation]


class Controller(Wire):
    """An app controller that asks for work in this project."""

    controller_id: str
    project_id: str
    app_slug: str
    holder: str
    actor_id: str
    version: str
    last_seen_at: datetime.datetime


_OPERATION = "/api/v1/projects/{project_id}/operations/{operation_id}"

CLAIM = Endpoint(
    "runtime.claim",
    "POST",
    "/api/v1/projects/{project_id}/operations/claim",
    "Take the next operation of an app, waiting for one when asked",
    permission="apps.operation.execute",
    request=ClaimOperation,
    response=Claim,
    audited=False,
    repeat="natural",
)
HEARTBEAT = Endpoint(
    "runtime.heartbeat",
    "PUT",
    f"{_OPERATION}/lease",
    "Keep the lease",
    permission="apps.operation.execute",
    request=Heartbeat,
    response=Lease,
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
    response=Operation,
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
    response=Member,
    audited=False,
    repeat="natural",
    errors=(errors.LeaseLost, errors.EvidenceRequired, errors.MemberHeld),
)
ACCESS_PUBLISH = Endpoint(
    "runtime.access",
    "PUT",
    f"{_OPERATION}/access-bundle",
    "Write how people reach the app",
    permission="apps.operation.execute",
    request=PublishAccess,
    response=AccessBundle,
    repeat="natural",
    errors=(errors.LeaseLost,),
)
COMPLETE = Endpoint(
    "runtime.complete",
    "PUT",
    f"{_OPERATION}/complete",
    "The operation succeeded",
    permission="apps.operation.execute",
    request=CompleteOperation,
    response=Operation,
    repeat="natural",
    errors=(errors.LeaseLost, errors.EvidenceRequired),
)
FAIL = Endpoint(
    "runtime.fail",
    "PUT",
    f"{_OPERATION}/fail",
    "The operation failed, and why",
    permission="apps.operation.execute",
    request=FailOperation,
    response=Operation,
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
