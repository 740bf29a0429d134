"""Operations: the one resource for every long change, as people and requesters see it, and the ways out of one."""

from typing import Annotated, Any, Literal

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.lifecycles import OperationStatus, StepState
from gpuaas_contract.wire import NoBody, Page, PageQuery, Query, Request, Timestamp, WaitSeconds, Wire

OperationKind = Literal[
    "deploy",
    "upgrade",
    "rollback",
    "stop",
    "start",
    "restart",
    "decommission",
    "add",
    "drain",
    "resume",
    "remove",
    "replace",
    "action",
    "preview",
]
FailureClass = Literal["retryable", "drift", "repairable", "needs_operator", "lost", "expired"]
"""Try again · the controller will put it right · a person can repair and retry · only a person can go on · whoever
worked on it or what it was about is gone · the deadline passed."""
Outcome = Literal["pending", "succeeded", "failed", "skipped", "cancelled"]
ExitName = Literal["retry", "cancel", "compensate", "force_complete", "tombstone"]

DEADLINES_S: dict[str, int] = {
    "deploy": 1800,
    "upgrade": 7200,
    "rollback": 7200,
    "stop": 1800,
    "start": 1800,
    "restart": 1800,
    "decommission": 1800,
    "add": 1800,
    "drain": 86400,
    "resume": 600,
    "remove": 86400,
    "replace": 86400,
    "action": 300,
    "preview": 30,
}
"""Used where an app's manifest says nothing: an operation always has a deadline."""

INSTANCE_KINDS = frozenset({"deploy", "upgrade", "rollback", "stop", "start", "restart", "decommission"})
"""Operations on the whole instance exclude every other."""
ASKING_KINDS = frozenset({"action", "preview"})
"""They change no member and exclude nobody, unless an app says that of an action."""
DISRUPTIVE_KINDS = frozenset({"drain", "remove", "replace"})
"""They take members out of service: a role's disruption budget counts them."""
PREVIEWED_KINDS = frozenset({"drain", "remove", "replace", "stop", "restart", "upgrade", "decommission"})
"""With `dry_run=true` the app's controller is asked what would be hit."""

_READY, _GONE = frozenset({"ready"}), frozenset({"removed", "tombstoned"})
GOALS: dict[str, frozenset[str]] = {
    "deploy": _READY,
    "upgrade": _READY,
    "rollback": _READY,
    "stop": frozenset({"drained"}),
    "start": _READY,
    "restart": _READY,
    "add": _READY,
    "drain": frozenset({"drained"}),
    "resume": _READY,
    "remove": _GONE,
    "replace": _READY,
    "decommission": _GONE,
}
"""Where each target of an operation must be for the operation to succeed."""

UNDONE: dict[str, frozenset[str]] = {
    "deploy": _GONE,
    "add": _GONE,
    "upgrade": _READY,
    "rollback": _READY,
    "stop": _READY,
    "start": frozenset({"drained"}),
    "restart": _READY,
    "drain": _READY,
    "resume": frozenset({"drained"}),
    "remove": frozenset({"ready", "degraded", "draining", "drained"}),
    "replace": _READY | _GONE,
}
"""Where each target is when an operation was undone; what is not here cannot be undone."""

EVIDENCE_FRESH_FOR_S = 120
"""How old an observation may be that allows a removal."""
CLOCKS_APART_S = 5
"""How far ahead of the platform's clock an observer's may run."""


class OperationError(Wire):
    """Why an operation failed, and what to do about it."""

    code: str
    """One word for machines, the platform's or the app's."""
    message: str
    failure_class: FailureClass
    """`retryable`: try again. `drift`: the controller will put it right. `repairable`: repair, then retry.
    `needs_operator`: only a person can go on. `lost`: who worked on it, or what it was about, is gone. `expired`: its
    time was up."""
    retryable: bool
    """Whether a retry may help without anything being repaired."""
    fix: str = ""
    """What to do next."""


class Transcript(Wire):
    """What a step did on machines: how many commands, and the digest of their record in the controller's log."""

    commands: Annotated[int, msgspec.Meta(ge=1)]
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    """Of the record in the controller's log, so that it can be checked against this."""


class Step(Wire):
    """One thing the controller did or does for an operation, by a name of the app's own."""

    name: str
    state: StepState
    started_at: Timestamp
    member_id: str = ""
    """Empty for a step of the whole operation."""
    message: str = ""
    """How far it is or why it failed, for people."""
    attempt: int = 1
    """Grows when a failed step is tried again."""
    ended_at: Timestamp | None = None
    transcript: Transcript | None = None
    """None while the step runs, and when it touched no machine."""


class Evidence(Wire):
    """What a controller saw before it took a member away."""

    state: Literal["idle", "busy", "unknown", "unreachable"]
    source: str
    """Where it was seen, in the app's words."""
    observed_at: Timestamp
    detail: str = ""
    running_work: int | None = None
    """How many pieces of work ran; none when it could not be counted."""
    work_digest: str = ""
    """Digest of the list of running work, so that two observations can be compared."""


class Work(Wire):
    """One piece of work that an operation would hit."""

    work_id: str
    """What the app calls it, a job's number for instance."""
    member_ids: list[str] = []
    """The members it runs on."""
    owner: str = ""
    """Who runs it, in the app's words."""
    gpus: int = 0
    started_at: Timestamp | None = None
    ends_at: Timestamp | None = None
    """When it is expected to end by itself; none when nobody knows."""


class Preview(Wire):
    """What would be hit, in the words of the app's controller."""

    answered: bool
    """False: no controller answered in time, so nothing is known."""
    source: str = ""
    """Where it was seen, in the app's words."""
    observed_at: Timestamp | None = None
    running_work: list[Work] = []
    gpu_hours_at_stake: float = 0
    """What the work that would be lost has used, as the app counts it."""
    done_by: Timestamp | None = None
    """When it could be done without interrupting anything."""
    irreversible: list[str] = []
    """What cannot be undone afterwards."""
    notes: list[str] = []
    """What else people should know."""


class Target(Wire):
    """What became of one member in an operation."""

    member_id: str
    outcome: Outcome = "pending"
    """`skipped`: too many others failed before its turn."""
    error: str = ""
    """Why it failed or was skipped."""
    evidence: Evidence | None = None
    """What was last seen of its work, when the controller said so."""
    allocation_id: str = ""
    """`replace`: the allocation the member moves to."""
    previous_allocation_id: str = ""
    """`replace`: the one it came from, once it has moved."""


class Lease(Wire):
    """A controller's hold on an operation: it lapses unless it is renewed."""

    holder: str
    """What the controller calls itself."""
    claim_id: str
    """The caller's own name for the claim."""
    epoch: int
    expires_at: Timestamp
    """Not renewed by then, another controller may take the operation."""
    actor_id: str = ""
    """The account that claimed it; an epoch in other hands is worth nothing."""
    cancel_requested: bool = False
    """Somebody asked to cancel: undo what is half done, then complete."""


class Receipt(Wire):
    """The answer to a controller's heartbeat or report: the state of its lease, and nothing of the operation's size."""

    operation_id: str
    revision: int
    """The operation's revision after the report."""
    cancel_requested: bool
    """A person asked to cancel: undo what is half done, then complete."""
    lease: Lease


class Exit(Wire):
    """A way to go on with an operation that does not go on by itself."""

    name: ExitName
    permission: str
    """The one it needs."""
    permitted: bool
    """Whether the caller holds the permission here."""
    meaning: str
    """What it does to the operation."""


class ExitTaken(Wire):
    """That somebody took a way out, and why."""

    name: ExitName
    taken_by: str
    reason: str
    taken_at: Timestamp
    too_late: bool = False
    """`cancel`: the work was done before the controller turned back."""


class Progress(Wire):
    """How far an operation is."""

    done: int = 0
    total: int = 0
    """Targets, ended and all; an operation without targets has none."""


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
    """The role it is about; empty when it is about the whole instance."""
    status: OperationStatus
    """A failed one can be taken up again or closed through its exits; the other ends are final."""
    reason: str
    force: bool
    """Asked for against holds, the disruption budget and missing evidence."""
    requested_by: str
    correlation_id: str
    attempts: int
    """How often a controller took it up."""
    epoch: int
    """Grows with every claim; a report with a lower one is refused."""
    lease: Lease | None
    """Who works on it; none while nobody does."""
    deadline_at: Timestamp
    """Not done by then, it fails."""
    error: OperationError | None
    """Why it failed; none otherwise."""
    revision: int
    """Grows with every change but a renewed lease: wait for the next with it."""
    created_at: Timestamp
    started_at: Timestamp | None
    """When a controller first took it up."""
    ended_at: Timestamp | None
    steps_total: int = 0
    """How many steps there are, also where `steps` does not hold all of them."""
    stop_after_failures: int = 0
    """As soon as this many targets failed, the ones not begun are skipped; 0 goes on to the end."""
    compensating: bool = False
    """The controller undoes what is half done; ends as `cancelled`."""
    from_version: str = ""
    """`upgrade`, `rollback`: the app version before."""
    to_version: str = ""
    """`upgrade`, `rollback`: the app version after."""
    action: str = ""
    """`action`: its name in the manifest."""
    exclusive: bool = False
    """`action`: the app wants nothing else to happen meanwhile."""
    inputs: dict[str, Any] = {}
    """`action`: what the caller gave; `upgrade`, `rollback`: the instance's inputs after it."""
    result: dict[str, Any] | None = None
    """What the controller said at the end of an action."""
    preview_of: OperationKind | None = None
    """`preview`: the kind of operation it asks about."""
    preview: Preview | None = None
    """`preview`: what the controller answered."""
    operator_service_account_id: str = ""
    """The only one that may claim it; empty: any service account of the project."""
    exits_taken: list[ExitTaken] = []
    """Ways out that people took, in order."""


STEPS_SHOWN_MAX = 200
"""Steps in the answer to a read of one operation; the list of steps has all of them."""


class Operation(OperationHead, kw_only=True):
    """A long change of an instance, done by the app's controller."""

    targets: list[Target]
    """The members it is about, and what became of each."""
    steps: list[Step]
    """Steps in the order in which they began. A claim holds all of them, and a controller does not repeat those that
    succeeded. A read of one operation holds the 200 that changed last. Lists of operations leave them out."""
    progress: Progress = Progress()
    exits: list[Exit] = []
    """What may be done now. Filled when one operation is read, left out of lists."""


class StepListQuery(PageQuery):
    changed_since: int = 0
    """Only steps that changed after this revision of the operation; 0: all."""


class OperationQuery(Query):
    wait_s: WaitSeconds = 0
    """How long to wait for a revision other than `revision`."""
    revision: int = -1
    """The one you have seen."""


class OperationListQuery(PageQuery):
    instance_id: str = ""
    """Operations of this instance only; empty: of all."""


Reason = Annotated[
    str,
    msgspec.Meta(min_length=1, max_length=500, pattern=r"\S", description="A reason has 1 to 500 characters."),
]

OptionalReason = Annotated[
    str, msgspec.Meta(max_length=500, description="A reason has at most 500 characters, or is left out.")
]


class TakeExit(Request):
    """Takes one of an operation's ways out."""

    reason: Reason
    """Why; kept with the operation and in the audit trail."""


class GiveUpMembers(Request):
    """Gives up members that cannot be recovered; nothing is done on their machines."""

    reason: Reason
    """Why; kept with the operation and in the audit trail."""
    member_ids: list[str] = []
    """Empty: every target that failed."""


_OPERATION = "/api/v1/projects/{project_id}/operations/{operation_id}"

OPERATION_GET = Endpoint(
    "apps.operation.get",
    "GET",
    _OPERATION,
    "One operation with its latest steps; waits for the next change when asked",
    permission="apps.operation.read",
    request=NoBody,
    query=OperationQuery,
    response=Operation,
)
OPERATION_LIST = Endpoint(
    "apps.operation.list",
    "GET",
    "/api/v1/projects/{project_id}/operations",
    "Operations of a project, or of one instance, without their steps",
    permission="apps.operation.read",
    request=NoBody,
    query=OperationListQuery,
    response=Page[Operation],
)
OPERATION_STEPS = Endpoint(
    "apps.operation.steps",
    "GET",
    f"{_OPERATION}/steps",
    "Steps of an operation in the order in which they began",
    permission="apps.operation.read",
    request=NoBody,
    query=StepListQuery,
    response=Page[Step],
)
OPERATION_RETRY = Endpoint(
    "apps.operation.retry",
    "POST",
    f"{_OPERATION}/retry",
    "Take a failed operation up again; steps that succeeded are not repeated",
    permission="apps.operation.retry",
    request=TakeExit,
    response=Operation,
    subject="operation_id",
    status=202,
    errors=(
        errors.OperationInProgress,
        errors.ExitUnavailable,
        errors.MemberHeld,
        errors.DisruptionBudget,
        errors.CircuitOpen,
    ),
    example={"reason": "the network is back"},
)
OPERATION_CANCEL = Endpoint(
    "apps.operation.cancel",
    "POST",
    f"{_OPERATION}/cancel",
    "Ask whoever works on it to stop and undo; one that nobody took up yet ends at once",
    permission="apps.operation.cancel",
    request=TakeExit,
    response=Operation,
    subject="operation_id",
    status=202,
    errors=(errors.ExitUnavailable,),
    example={"reason": "wrong machine"},
)
OPERATION_COMPENSATE = Endpoint(
    "apps.operation.compensate",
    "POST",
    f"{_OPERATION}/compensate",
    "Have a failed operation's half-done work undone",
    permission="apps.operation.compensate",
    request=TakeExit,
    response=Operation,
    subject="operation_id",
    status=202,
    errors=(errors.OperationInProgress, errors.ExitUnavailable),
    example={"reason": "give the machines back"},
)
OPERATION_FORCE_COMPLETE = Endpoint(
    "apps.operation.force_complete",
    "POST",
    f"{_OPERATION}/force-complete",
    "Declare an operation done that no controller can finish; nothing is done on any machine",
    permission="apps.operation.force_complete",
    request=TakeExit,
    response=Operation,
    subject="operation_id",
    errors=(errors.OperationInProgress, errors.ExitUnavailable),
    example={"reason": "checked by hand: the machine is empty"},
)
OPERATION_TOMBSTONE = Endpoint(
    "apps.operation.tombstone",
    "POST",
    f"{_OPERATION}/tombstone",
    "Give up members of a failed operation that cannot be recovered",
    permission="apps.operation.tombstone",
    request=GiveUpMembers,
    response=Operation,
    subject="operation_id",
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
ENDPOINTS: tuple[Endpoint[Any, Any], ...] = (OPERATION_GET, OPERATION_LIST, OPERATION_STEPS, *EXITS.values())
