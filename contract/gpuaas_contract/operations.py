"""Operations: the record of every long change, and the exits of one that does not finish by itself."""

from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.lifecycles import MemberStatus, OperationStatus, StepState
from gpuaas_contract.paths import OPERATION, PROJECT
from gpuaas_contract.wire import (
    Id,
    LongText,
    OrderedQuery,
    PageQuery,
    Query,
    Request,
    ShortText,
    Timestamp,
    WaitSeconds,
    Wire,
)

OperationKind = Literal[
    "deploy",
    "upgrade",
    "rollback",
    "reconfigure",
    "stop",
    "start",
    "restart",
    "decommission",
    "add",
    "drain",
    "resume",
    "remove",
    "replace",
    "repair",
    "action",
    "preview",
]
"""What an operation does; `preview` asks what another kind would interrupt, `action` runs an action of the app."""
FailureClass = Literal["retryable", "drift", "repairable", "needs_operator", "lost", "expired", "refused"]
"""Try again · the controller repairs it · a person repairs it and retries · only a person can continue · the controller
or the subject is gone · the deadline passed · the controller changed nothing."""
Outcome = Literal["pending", "succeeded", "failed", "skipped", "cancelled", "refused"]
ExitName = Literal["retry", "cancel", "compensate", "force_complete", "tombstone"]

INSTANCE_KINDS = frozenset({"deploy", "upgrade", "rollback", "reconfigure", "stop", "start", "restart", "decommission"})
"""Kinds of operations on the whole instance. While one runs, no other operation on the instance can start."""
ASKING_KINDS = frozenset({"action", "preview"})
"""Kinds of operations that change no member. They run beside other operations, unless an app declares one
of both exclusive. Previews and actions that only read run beside all."""
DISRUPTIVE_KINDS = frozenset({"drain", "remove", "replace", "repair"})
"""Kinds of operations that take members out of service, or may do so: a role's disruption budget counts them."""
JOINING = frozenset({"add", "replace"})
"""Kinds that make members join: their failures count for a role's breaker, and an open breaker refuses them."""
PREVIEWED_KINDS = frozenset(
    {"drain", "remove", "replace", "stop", "restart", "upgrade", "rollback", "reconfigure", "decommission"}
)
"""With `dry_run=true` the app's controller is asked which work would be affected."""
KEEPS_DRAINED = frozenset({"repair", "upgrade", "rollback", "reconfigure", "restart"})
"""Kinds that leave a member drained that was drained before: who drained it decides when it works again."""
KEEPS_STATUS = frozenset({"reconfigure"})
"""Kinds that change the instance and may leave each member as it was, also one that is unwell: a change of inputs must
not depend on one broken machine."""


class _Kind(NamedTuple):
    deadline_s: int
    goal: str = ""
    undone: str = ""


_KINDS: dict[OperationKind, _Kind] = {
    "deploy": _Kind(1800, goal="ready", undone="removed tombstoned"),
    "upgrade": _Kind(7200, goal="ready", undone="ready"),
    "rollback": _Kind(7200, goal="ready", undone="ready"),
    "reconfigure": _Kind(1800, goal="ready", undone="ready"),
    "stop": _Kind(1800, goal="drained", undone="ready"),
    "start": _Kind(1800, goal="ready", undone="drained"),
    "restart": _Kind(1800, goal="ready", undone="ready"),
    "decommission": _Kind(1800, goal="removed tombstoned"),
    "add": _Kind(1800, goal="ready", undone="removed tombstoned"),
    "drain": _Kind(86_400, goal="drained", undone="ready"),
    "resume": _Kind(600, goal="ready", undone="draining drained"),
    "remove": _Kind(86_400, goal="removed tombstoned", undone="ready degraded draining drained"),
    "replace": _Kind(86_400, goal="ready", undone="ready removed tombstoned"),
    "repair": _Kind(1800, goal="ready", undone="ready degraded failed draining drained"),
    "action": _Kind(300),
    "preview": _Kind(30),
}
DEADLINES_S: dict[str, int] = {name: kind.deadline_s for name, kind in _KINDS.items()}
"""Kind of operation -> its deadline in seconds, if the app's manifest sets none."""
GOALS: dict[str, frozenset[str]] = {name: frozenset(kind.goal.split()) for name, kind in _KINDS.items() if kind.goal}
"""Status that each target must have for the operation to succeed. Some kinds also leave a member drained: see
`protocol.report.goal`."""
UNDONE: dict[str, frozenset[str]] = {
    name: frozenset(kind.undone.split()) for name, kind in _KINDS.items() if kind.undone
}
"""Status of each target after an operation was undone. Kinds that are not listed cannot be undone."""

EVIDENCE_FRESH_FOR_S = 120
"""How old an observation may be to allow a removal."""
CLOCKS_APART_S = 5
"""How far an observer's clock may be ahead of the platform's."""


class OperationError(Wire):
    """Why an operation failed, and what to do about it."""

    code: str
    """A code for programs, of the platform or the app; docs/reference/errors.md lists common ones."""
    message: str
    failure_class: FailureClass
    """`retryable`: try again. `drift`: the controller repairs it. `repairable`: repair, then retry. `needs_operator`:
    only a person can continue. `lost`: the controller or the subject is gone. `expired`: the deadline passed.
    `refused`: a condition was not met, and the controller changed nothing."""
    retryable: bool
    """Whether a retry may succeed without a repair."""
    fix: str = ""
    """What people can do about the error."""


class Transcript(Wire):
    """What a step did on machines: the number of commands, and the digest of their log."""

    commands: Annotated[int, msgspec.Meta(ge=1)]
    sha256: Annotated[str, msgspec.Meta(max_length=64, pattern="^[0-9a-f]{64}$")]
    """SHA-256 of the record in the controller's log, to compare with."""


class Step(Wire):
    """One step of the controller's work on an operation."""

    name: str
    state: StepState
    started_at: Timestamp
    member_id: str = ""
    """The member that the step works on; empty for a step of the whole operation."""
    message: str = ""
    """Progress of the step, or why it failed."""
    attempt: int = 1
    """Number of the attempt: 1, and one more each time the failed step is tried again."""
    ended_at: Timestamp | None = None
    transcript: Transcript | None = None
    """None while the step runs, and for steps without commands on machines."""


LogLevel = Literal["info", "warning", "error"]


class LogLine(Wire):
    """A line of the app controller's log about one operation."""

    operation_id: str
    position: int
    """Number of the line in the operation's log; 1 is the first."""
    logged_at: Timestamp
    """When the line was written, by the clock of the controller."""
    level: LogLevel
    event: str
    """Name of the event, such as `machine.command`."""
    fields: dict[str, Any]
    epoch: int
    """Epoch of the claim under which the line was written."""


class Evidence(Wire):
    """What a controller observed of a member's work."""

    state: Literal["idle", "busy", "unknown", "unreachable"]
    source: str
    """Source of the observation, named by the app."""
    observed_at: Timestamp
    detail: str = ""
    running_work: int | None = None
    """Number of running pieces of work; none if unknown."""
    work_digest: str = ""
    """Digest of the list of running work, to compare two observations."""


class Work(Wire):
    """One piece of work that an operation would affect."""

    work_id: ShortText
    """The app's id for the work, such as a job number."""
    member_ids: Annotated[list[Id], msgspec.Meta(max_length=10_000)] = []
    """The members that the work runs on."""
    owner: ShortText = ""
    """Who runs the work, as the app reports."""
    gpus: int = 0
    started_at: Timestamp | None = None
    ends_at: Timestamp | None = None
    """When the work is expected to end; none if unknown."""


class PlannedChange(Wire):
    """One change that an operation would make, as the app describes it."""

    subject: ShortText
    """What would change, such as a setting or a file."""
    before: LongText = ""
    """The present value as text for people; empty: none."""
    after: LongText = ""
    """The value afterwards as text for people; empty: none."""
    effect: LongText = ""
    """What the change does to running software and work, such as a restart; empty: nothing that people notice."""


class Preview(Wire):
    """The work that an operation would affect, as the controller reports."""

    answered: bool
    """Whether a controller answered in time; False: the other fields are empty."""
    source: LongText = ""
    """Source of the observation, named by the app."""
    observed_at: Timestamp | None = None
    running_work: Annotated[list[Work], msgspec.Meta(max_length=10_000)] = []
    gpu_hours_at_stake: float = 0
    """GPU hours of the work that would be lost, as the app counts them."""
    done_by: Timestamp | None = None
    """When the operation could be done without interrupting work."""
    changes: Annotated[list[PlannedChange], msgspec.Meta(max_length=1000)] = []
    """What the operation would change, with the effect of each change."""
    irreversible: Annotated[list[LongText], msgspec.Meta(max_length=100)] = []
    """Effects of the operation that cannot be undone, as text for people."""
    notes: Annotated[list[LongText], msgspec.Meta(max_length=100)] = []
    """More remarks from the app, or from the platform if no controller answered, as text for people."""
    refusal: LongText = ""
    """Why the app would refuse the operation as the instance is now, and what to do; empty: it has no reason."""


class Leftover(Wire):
    """Something that an operation did not remove, and why."""

    what: ShortText
    """What is still there, such as files or packages."""
    why: LongText
    """Why it was not removed, and what people can do about it."""


class Target(Wire):
    """The result of an operation for one member."""

    member_id: str
    outcome: Outcome = "pending"
    """Result for the member. `skipped`: too many other members failed before its turn. `refused`: the controller
    changed nothing, and the member has the status that it had before. `cancelled`: undone, or the member is gone."""
    error: str = ""
    """Why the operation failed for this member, or refused or skipped it; empty otherwise."""
    status_before: MemberStatus | None = None
    """The member's status when the operation was requested, or retried last."""
    evidence: Evidence | None = None
    """The last observation whether work runs on the member, if the controller sent one."""
    allocation_id: str = ""
    """Only for `replace`: the allocation that the member moves to."""
    previous_allocation_id: str = ""
    """Only for `replace`: the allocation that the member was on before it moved."""
    removed: list[str] = []
    """What the controller removed from the member's machine, as it reports; for the operation's statement."""
    left: list[Leftover] = []
    """What the controller did not remove from the member's machine, as it reports; for the operation's statement."""


class Lease(Wire):
    """A controller's time-limited right to work on an operation."""

    holder: str
    """Name of the controller."""
    claim_id: str
    """Id of the claim, chosen by the caller."""
    epoch: int
    expires_at: Timestamp
    """If not renewed by then, another controller may claim the operation."""
    actor_id: str = ""
    """The service account that claimed the operation; reports of other accounts are refused."""
    cancel_requested: bool = False
    """A person asked to cancel: undo what is half done, then complete."""


class Receipt(Wire):
    """The answer to a controller's heartbeat or report."""

    operation_id: str
    revision: int
    """The operation's revision after the report."""
    cancel_requested: bool
    """A person asked to cancel: undo what is half done, then complete."""
    lease: Lease


class Exit(Wire):
    """A way to continue or close an operation that does not finish by itself."""

    name: ExitName
    permission: str
    """Permission that a caller needs to take this exit."""
    permitted: bool
    """Whether the caller may take this exit."""
    meaning: str
    """What the exit does to the operation, as text for people."""


class ExitTaken(Wire):
    """What a person did to end an operation (retry, cancel, undo, give up), and why."""

    name: ExitName
    taken_by: str
    reason: str
    taken_at: Timestamp
    too_late: bool = False
    """`cancel`: the work was done before the controller reacted."""
    repeats_steps: bool = False
    """`retry`, `compensate`: members had another operation since the failure, so no earlier step counts as done."""


class Progress(Wire):
    """Progress of an operation."""

    done: int = 0
    total: int = 0
    """Number of targets; 0 for an operation without targets."""


class OperationHead(Wire):
    """An operation without its targets and steps: the part whose size does not depend on the number of members."""

    operation_id: str
    org_id: str
    project_id: str
    instance_id: str
    instance_name: str
    app_slug: str
    kind: OperationKind
    component_key: str
    """The role that the operation changes; empty: the whole instance."""
    status: OperationStatus
    """A failed operation can be retried or closed through its exits; `succeeded` and `cancelled` are final."""
    reason: str
    force: bool
    """Requested with `force`: ignores missing evidence and, unless `by_steward`, holds and the disruption budget."""
    requested_by: str
    correlation_id: str
    attempts: int
    """Number of claims."""
    epoch: int
    """Grows with every claim; a report with an older epoch is refused."""
    lease: Lease | None
    """The controller that works on the operation; none while no controller has claimed it."""
    deadline_at: Timestamp
    """If the operation is not done at this time, it fails."""
    error: OperationError | None
    """Why the operation failed; none if it did not."""
    revision: int
    """Grows with every change except a renewed lease; use it to wait for the next change."""
    created_at: Timestamp
    started_at: Timestamp | None
    """When a controller first claimed the operation."""
    ended_at: Timestamp | None
    steps_total: int = 0
    """How many steps there are, also where `steps` does not hold all of them."""
    stop_after_failures: int = 0
    """After this many failures, targets that have not started are skipped; 0: no limit."""
    compensating: bool = False
    """The controller undoes what is half done; the operation ends as `cancelled`."""
    from_version: str = ""
    """Only for `upgrade` and `rollback`: the app version before."""
    to_version: str = ""
    """Only for `upgrade` and `rollback`: the app version after."""
    action: str = ""
    """Only for kind `action`: the action's name in the app's manifest."""
    exclusive: bool = False
    """No other operation runs on the instance at the same time, except previews and readings: the manifest declares so
    for an action or a role."""
    reading: bool = False
    """Only for kind `action`: the manifest declares that it only reads. It runs beside exclusive operations, too."""
    inputs: dict[str, Any] = {}
    """`action`: its inputs; `upgrade`, `rollback`, `reconfigure`: the instance's inputs after it."""
    inputs_before: dict[str, Any] = {}
    """Only for `reconfigure`: the instance's inputs before it."""
    result: dict[str, Any] | None = None
    """`action`: its result. If the manifest declares columns, it is a table: see `result` of the action there."""
    preview_of: OperationKind | None = None
    """Only for kind `preview`: the kind of operation whose effects are asked for."""
    preview: Preview | None = None
    """Only for kind `preview`, and in the answer to a dry run: what the controller answered. A dry run of an action
    does not ask the controller; `notes` then states what was checked."""
    operator_service_account_id: str = ""
    """The only service account that may claim the operation; empty: any of the project."""
    traceparent: str = ""
    """W3C trace context of the request that created the operation; its controller continues this trace. Empty for an
    operation of an earlier release."""
    can_undo: bool = True
    """Whether the controller that claimed the operation last can undo it; without, there is no `cancel` after the first
    claim and no `compensate`."""
    by_steward: bool = False
    """The app's controller requested it by itself, so holds and the disruption budget apply also with `force`."""
    exits_taken: list[ExitTaken] = []
    """What people did to end the operation (retry, cancel, give up), in order."""


STEPS_SHOWN_MAX = 200
"""How many steps the answer to a read of one operation has at most; the list of steps has all of them."""


class Operation(OperationHead, kw_only=True):
    """A long change of an instance, made by the app's controller."""

    targets: list[Target]
    """The members that the operation changes, and the result for each."""
    steps: list[Step]
    """Steps in the order in which they began. A claim holds all of them, and a controller does not repeat those that
    succeeded. A read of one operation holds the 200 that changed last. Lists of operations leave them out."""
    progress: Progress = Progress()
    exits: list[Exit] = []
    """Exits that are possible now. Filled when one operation is read, empty in lists."""


class StepListQuery(PageQuery):
    changed_since: int = 0
    """Only steps that changed after this revision of the operation; 0: all."""


class OperationQuery(Query):
    wait_s: WaitSeconds = 0
    """How long to wait for a revision other than `revision`."""
    revision: int = -1
    """Revision of the operation that the caller has already read."""


class OperationListQuery(OrderedQuery):
    instance_id: str = ""
    """Only operations of this instance; empty: all."""
    live: bool = False
    """True: only operations that have not ended."""
    changes: bool = False
    """True: only operations that change something: no previews and no actions."""


Reason = Annotated[
    str,
    msgspec.Meta(
        min_length=1, max_length=500, pattern=r"\S", description="A reason has 1 to 500 characters, not only blanks."
    ),
]

OptionalReason = Annotated[
    str,
    msgspec.Meta(
        max_length=500,
        pattern=r"^(?!\n)$|\S",
        description="A reason has at most 500 characters, not only blanks, or is left out.",
    ),
]


class TakeExit(Request):
    """Retries, cancels, undoes or closes an operation, with a reason."""

    reason: Reason
    """Why the caller wants this; stored with the operation and in the audit trail."""


class GiveUpMembers(Request):
    """Gives up members that cannot be recovered; nothing is done on their machines."""

    reason: Reason
    """Why the members are given up; stored with the operation and in the audit trail."""
    member_ids: Annotated[list[Id], msgspec.Meta(max_length=1024)] = []
    """Members to give up; empty: every target that failed."""


OPERATION_GET = OPERATION.row(
    "",
    "apps.operation.get",
    "Get one operation with its latest steps, optionally waiting for its next change",
    "With `wait_s` and `revision` it answers at the next change, or after `wait_s`.",
).get(Operation, "apps.operation.read", query=OperationQuery)
OPERATION_LIST = PROJECT.row(
    "/operations", "apps.operation.list", "List the operations of a project or of one instance, without their steps"
).list(Operation, "apps.operation.read", query=OperationListQuery)
OPERATION_STEPS = OPERATION.row(
    "/steps", "apps.operation.steps", "Steps of an operation in the order in which they began"
).list(Step, "apps.operation.read", query=StepListQuery)
OPERATION_LOG = OPERATION.row(
    "/log",
    "apps.operation.log",
    "Lines of the app controller's log about an operation",
    "Controllers that are written with the SDK send them. Values of secrets are replaced. Lines are deleted after a "
    "week.",
).list(LogLine, "apps.operation.read")
OPERATION_RETRY = OPERATION.row(
    "/retry",
    "apps.operation.retry",
    "Retry a failed operation",
    "Steps that succeeded are not repeated, unless a member was repaired since.",
).post(
    TakeExit,
    Operation,
    status=202,
    errors=(
        errors.OperationInProgress,
        errors.ExitUnavailable,
        errors.MemberHeld,
        errors.DisruptionBudget,
        errors.CircuitOpen,
        errors.PolicyDenied,
    ),
    example={"reason": "the network is back"},
)
OPERATION_CANCEL = OPERATION.row(
    "/cancel",
    "apps.operation.cancel",
    "Cancel an operation",
    "The controller stops and undoes its work. An operation that no controller claimed yet ends at once.",
).post(TakeExit, Operation, status=202, errors=(errors.ExitUnavailable,), example={"reason": "wrong machine"})
OPERATION_COMPENSATE = OPERATION.row(
    "/compensate", "apps.operation.compensate", "Undo the half-done work of a failed operation"
).post(
    TakeExit,
    Operation,
    status=202,
    errors=(errors.OperationInProgress, errors.ExitUnavailable),
    example={"reason": "give the machines back"},
)
OPERATION_FORCE_COMPLETE = OPERATION.row(
    "/force-complete",
    "apps.operation.force_complete",
    "Mark an operation as done that no controller can finish",
    "Nothing is done on any machine; the members' status is set without an observation.",
).post(
    TakeExit,
    Operation,
    errors=(errors.OperationInProgress, errors.ExitUnavailable),
    example={"reason": "checked by hand: the machine is empty"},
)
OPERATION_TOMBSTONE = OPERATION.row(
    "/tombstone",
    "apps.operation.tombstone",
    "Give up members of a failed operation",
    "The members count as removed. Nothing is done on their machines.",
).post(
    GiveUpMembers,
    Operation,
    errors=(errors.OperationInProgress, errors.ExitUnavailable),
    example={"reason": "the machine burnt down"},
)
EXITS: dict[ExitName, Endpoint[Any, Operation]] = {
    "retry": OPERATION_RETRY,
    "cancel": OPERATION_CANCEL,
    "compensate": OPERATION_COMPENSATE,
    "force_complete": OPERATION_FORCE_COMPLETE,
    "tombstone": OPERATION_TOMBSTONE,
}
