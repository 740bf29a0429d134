"""The runtime API of app controllers: claim an operation, renew its lease, report, end it. Every report carries the
epoch of its claim; the platform refuses an older epoch."""

from typing import Annotated, Any, Literal

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.controllers import ControllerReport
from gpuaas_contract.holds import Hold
from gpuaas_contract.instances import BULK_MAX, AccessBundle, Command, Connection, Instance, Member
from gpuaas_contract.lifecycles import MemberStatus, StepState
from gpuaas_contract.operations import (
    Evidence,
    FailureClass,
    Leftover,
    LogLevel,
    Operation,
    Preview,
    Receipt,
    Transcript,
)
from gpuaas_contract.paths import INSTANCE, OPERATION, OPERATION_MEMBER, PROJECT
from gpuaas_contract.wire import Id, LongText, Request, ShortText, Timestamp, WaitSeconds, Wire, json_bytes

RESULT_BYTES_MAX, DETAIL_BYTES_MAX = 262_144, 16_384
Detail = Annotated[dict[str, Any], json_bytes(DETAIL_BYTES_MAX)]
"""Details from the app. Messages have no limit here: the platform stores their first 2,000 characters."""
LEASE_S_MAX = 60
LeaseSeconds = Annotated[int, msgspec.Meta(ge=1, le=LEASE_S_MAX, description=f"From 1 to {LEASE_S_MAX} seconds.")]
LINES_MAX = 50
"""Largest number of lines that a member has in the statement of an operation, in each of its two lists."""
STEPS_MAX = 8 * BULK_MAX
"""Largest number of steps of one operation: eight for each member of the largest one."""

LOG_LINE_BYTES_MAX, LOG_BATCH_MAX = 4_096, 100
"""Bounds of the log lines in one request. `protocol.log` has those of a whole operation."""


class ReportedLogLine(Request):
    """A line of the controller's log about the operation. The kit replaces the secrets that the platform delivered to
    the operation in this claim, and no others."""

    number: Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
    """Number of the line under this claim, from 1. A line that was already sent is not stored again."""
    logged_at: Timestamp
    level: LogLevel
    event: ShortText
    """Name of the event, such as `machine.command`."""
    fields: Annotated[dict[str, Any], json_bytes(LOG_LINE_BYTES_MAX)] = {}
    """More values of the line, at most 4 KiB as JSON."""


LogBatch = Annotated[list[ReportedLogLine], msgspec.Meta(max_length=LOG_BATCH_MAX)]


class ClaimOperation(Request):
    """Claims the next operation of an app."""

    app_slug: Id
    holder: ShortText
    """Name of the controller; shown to people."""
    claim_id: ShortText
    """Chosen by the caller. After a lost answer the same id gets the same lease."""
    lease_s: LeaseSeconds = 15
    """Seconds after which the claim ends if the controller sends no heartbeat."""
    wait_s: WaitSeconds = 0
    """How many seconds the platform may wait for an operation to claim before it answers."""
    controller_version: ShortText = ""
    """Version of the controller; shown to people."""
    undoes: Annotated[list[ShortText], msgspec.Meta(max_length=256)] | None = None
    """What the controller can undo: kinds of operations (`deploy`), or a kind for one role (`add/worker`). None:
    unknown, so that `cancel` and `compensate` are offered for every kind."""
    report: ControllerReport | None = None
    """The state of the controller process, if it has changed; none: the stored one stays."""


class Claim(Wire):
    """A claimed operation, with its instance, live members and holds. Empty if no operation waits."""

    operation: Operation | None = None
    instance: Instance | None = None
    members: list[Member] = []
    holds: list[Hold] = []
    epoch: int = 0
    """Number of this claim, which the controller sends with every report; 0 if there was no operation to claim."""


class HolderRequest(Request):
    """Sent by the controller that holds the operation of the path."""

    epoch: int
    """Epoch number of the caller's claim on the operation. The platform refuses a number that is not the newest."""


class Heartbeat(HolderRequest):
    """Renews the lease on an operation."""

    lease_s: LeaseSeconds = 15
    """How long the lease lasts from now on without another heartbeat."""
    log: LogBatch = []
    """New lines of the controller's log, oldest first."""


class ReportStep(HolderRequest):
    """Reports that a step of an operation runs, succeeded or failed."""

    name: ShortText
    """Chosen by the app. The same name and member mean the same step."""
    state: StepState
    member_id: ShortText = ""
    """The member that the step works on; empty for a step of the whole operation."""
    message: str = ""
    """Text for people."""
    transcript: Transcript | None = None


class ReportMember(HolderRequest):
    """Reports the status of a member of the operation."""

    status: MemberStatus
    status_reason: str = ""
    """Text for people."""
    adapter_detail: Detail | None = None
    """Details from the app, at most 16 KiB as JSON; none: the previous details stay."""
    observed_version: ShortText | None = None
    """Version of the app's software on the machine; none: the previous value stays."""
    evidence: Evidence | None = None
    """Needed before a member that may have run work is removed."""
    refused: bool = False
    """True: a condition was not met, and nothing was changed on the member. `status_reason` is the reason. The member
    gets the status that it had before the operation."""
    removed: Annotated[list[LongText], msgspec.Meta(max_length=LINES_MAX)] | None = None
    """What was removed from the member's machine, one text for people per line; none: the previous lines stay."""
    left: Annotated[list[Leftover], msgspec.Meta(max_length=LINES_MAX)] | None = None
    """What was not removed from the member's machine, and why; none: the previous lines stay."""


class CompleteOperation(HolderRequest):
    """Ends an operation whose targets are all done, failed or undone. The platform decides its status."""

    result: Annotated[dict[str, Any], json_bytes(RESULT_BYTES_MAX)] | None = None
    """`action`: its result. If the manifest declares columns for it, it has `rows` and may have a `note`."""
    preview: Preview | None = None
    """Only for kind `preview`: the work that the operation would affect."""
    undone: bool = False
    """True: the work was undone after a cancel. Needed where members are `ready` before and after the operation; false:
    the work was done, and the cancel came too late."""
    log: LogBatch = []
    """The last lines of the controller's log, oldest first."""


class FailOperation(HolderRequest):
    """Ends an operation that cannot continue, with the reason."""

    code: ShortText
    """Error code for programs; docs/reference/errors.md lists common ones."""
    message: str
    """Text for people."""
    failure_class: FailureClass
    """What can be done about the failure; shown with the operation's error."""
    fix: str = ""
    """What people can do about the failure, as text."""
    log: LogBatch = []
    """The last lines of the controller's log, oldest first."""


class PublishAccess(HolderRequest):
    """Publishes how people use an app instance; replaces what was published before."""

    endpoints: Annotated[list[Connection], msgspec.Meta(max_length=100)] = []
    paths: Annotated[dict[ShortText, LongText], msgspec.Meta(max_length=100)] = {}
    """Name -> path on the machines, chosen by the app."""
    commands: Annotated[list[Command], msgspec.Meta(max_length=100)] = []
    notes: Annotated[list[LongText], msgspec.Meta(max_length=100)] = []
    """More remarks from the app, as text for people."""


class ReportedCondition(Request):
    """A named statement about an instance, by its controller."""

    type: Annotated[str, msgspec.Meta(min_length=1, max_length=63, pattern=r"^[A-Za-z][A-Za-z0-9]*(?!\n)$")]
    """Chosen by the app: `QueueReachable`. A status other than `true` makes the instance degraded."""
    status: Literal["true", "false", "unknown"]
    reason: Annotated[str, msgspec.Meta(max_length=63)] = ""
    """A code for programs."""
    message: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    """Text for people."""


class ObservedMember(Request):
    """The status of a member that no operation works on."""

    member_id: Id
    revision: int
    """Revision of the member that was observed; an older one is refused."""
    status: MemberStatus
    """A status that a member can reach without an operation."""
    status_reason: str = ""
    adapter_detail: Detail | None = None
    observed_version: ShortText | None = None


class ReportRuntime(Request):
    """What a controller observes between operations."""

    holder: ShortText
    """Name of the controller."""
    observed_revision: int
    """Revision of the instance that was observed."""
    epoch: int = 0
    """Epoch of the caller's stewardship of the instance. 0 is for controllers of earlier releases, and is accepted only
    while no controller holds the stewardship."""
    conditions: Annotated[list[ReportedCondition], msgspec.Meta(max_length=32)] = []
    """The instance's health conditions. They replace earlier ones of the same type; others stay."""
    members: Annotated[list[ObservedMember], msgspec.Meta(max_length=1024)] = []


class RefusedObservation(Wire):
    """Why an observation of a member was refused."""

    member_id: str
    code: Literal["not_found", "stale", "operation_in_progress", "illegal_move"]
    message: str


class RuntimeReported(Wire):
    """Answer to a controller's report on an instance: which parts were accepted, and the members now."""

    instance: Instance
    members: list[Member]
    """The instance's members after the report, with the revisions that the next report needs."""
    refused: list[RefusedObservation]


CLAIM = PROJECT.row(
    "/operations/claim",
    "runtime.claim",
    "Claim the next operation of an app",
    "Waits up to `wait_s` for an operation. The answer is empty if there is none. The lease ends unless "
    "it is renewed. `app_unknown` means that the app is not registered yet or that the slug is wrong; ask"
    " again later.",
).post(
    ClaimOperation,
    Claim,
    "apps.operation.execute",
    subject="project_id",
    repeat="natural",
    audited=False,
    errors=(errors.AppUnknown,),
)
HEARTBEAT = OPERATION.row(
    "/lease",
    "runtime.heartbeat",
    "Renew the lease on an operation",
    "Renew at a third of `lease_s`. The answer shows whether a person asked to cancel.",
).put(Heartbeat, Receipt, "apps.operation.execute", audited=False, errors=(errors.LeaseLost,))
STEP_REPORT = OPERATION.row(
    "/steps",
    "runtime.step",
    "Report a step of an operation",
    "The same name and member again update the same step, so a report can be repeated.",
).put(ReportStep, Receipt, "apps.operation.execute", audited=False, errors=(errors.LeaseLost,))
MEMBER_REPORT = OPERATION_MEMBER.row(
    "",
    "runtime.member",
    "Report the status of a member",
    "Only moves of the member lifecycle are accepted; `illegal_move` lists the allowed ones. Removing a "
    "member that may have run work needs fresh evidence that it is idle.",
).put(
    ReportMember,
    Receipt,
    "apps.operation.execute",
    subject="member_id",
    audited=False,
    errors=(errors.LeaseLost, errors.EvidenceRequired, errors.MemberHeld, errors.IllegalMove),
)
ACCESS_PUBLISH = OPERATION.row("/access-bundle", "runtime.access", "Publish how people use the app").put(
    PublishAccess, AccessBundle, "apps.operation.execute", subject="operation_id", errors=(errors.LeaseLost,)
)
COMPLETE = OPERATION.row(
    "/complete",
    "runtime.complete",
    "Complete an operation",
    "The platform decides the status from the targets: `succeeded`, `failed` or `cancelled`. Refused as "
    "`operation_unfinished` while a target is open.",
).put(
    CompleteOperation,
    Operation,
    "apps.operation.execute",
    errors=(errors.LeaseLost, errors.EvidenceRequired, errors.OperationUnfinished),
)
FAIL = OPERATION.row(
    "/fail", "runtime.fail", "Fail an operation, with the reason", "`failure_class` decides which exits people get."
).put(FailOperation, Operation, "apps.operation.execute", errors=(errors.LeaseLost,))
RUNTIME_REPORT = INSTANCE.row(
    "/runtime-state",
    "runtime.report",
    "Report the state of an instance between operations",
    "Conditions, and the status of members that no operation works on. Only the controller that holds the "
    "stewardship may report. Observations of an old revision are refused one by one.",
).put(
    ReportRuntime,
    RuntimeReported,
    "apps.operation.execute",
    subject="instance_id",
    audited=False,
    errors=(errors.LeaseLost,),
)
