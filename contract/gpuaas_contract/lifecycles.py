"""Lifecycles as tables: state -> states it may move to. Code, enums and documents come from these."""

from typing import Final, Literal

InstanceStatus = Literal[
    "requested",
    "deploying",
    "running",
    "degraded",
    "stopping",
    "stopped",
    "starting",
    "upgrading",
    "rolling_back",
    "reconfiguring",
    "failed",
    "deleting",
    "deleted",
]
MemberStatus = Literal[
    "requested",
    "provisioning",
    "joining",
    "ready",
    "degraded",
    "draining",
    "drained",
    "removing",
    "removed",
    "failed",
    "tombstoned",
]
OperationStatus = Literal["accepted", "running", "cancelling", "succeeded", "failed", "cancelled"]
AllocationStatus = Literal["requested", "provisioning", "active", "failed", "releasing", "release_failed", "released"]
NodeStatus = Literal["ready", "lost"]
"""Whether a node sends heartbeats; it changes automatically, in both directions."""
NodeAdminState = Literal["active", "cordoned", "draining", "retired"]
"""What operators want of a node, independent of its heartbeats."""
AgentReleaseStatus = Literal["registered", "approved"]
NodeTenancy = Literal["clean", "used", "sanitising", "quarantined"]
"""Which projects may get a node. It never depends on what the machine itself reports."""
AppVersionState = Literal["registered", "published", "deprecated", "withdrawn"]
EntitlementRequestState = Literal["open", "granted", "refused"]
StepState = Literal["running", "succeeded", "failed"]
ArtifactLifecycle = Literal["published", "promoted", "deprecated", "retired"]
ArtifactTrust = Literal["unverified", "verified", "failed_verification", "revoked"]
PlacementState = Literal["queued", "placed", "removing", "removed", "failed"]

Table = dict[str, frozenset[str]]


def _table(**moves: str) -> Table:
    return {state: frozenset(targets.split()) for state, targets in moves.items()}


_RUNNING_MOVES = "stopping starting upgrading rolling_back reconfiguring deleting"
INSTANCE: Final = _table(
    requested="deploying running degraded failed deleting",
    deploying="requested running degraded failed",
    running=f"degraded {_RUNNING_MOVES}",
    degraded=f"running {_RUNNING_MOVES}",
    stopping="stopped running degraded failed",
    stopped="starting deleting",
    starting="running degraded stopped failed",
    upgrading="running degraded",
    rolling_back="running degraded",
    reconfiguring="running degraded",
    failed="deploying running degraded stopping stopped starting deleting deleted",
    deleting="deleted failed requested running degraded stopped",
    deleted="",
)
MEMBER: Final = _table(
    requested="provisioning removed degraded failed removing tombstoned",
    provisioning="requested joining degraded failed removing tombstoned",
    joining="ready degraded failed removing tombstoned",
    ready="degraded draining drained removing failed tombstoned",
    degraded="ready draining drained removing failed tombstoned",
    draining="drained ready degraded failed removing tombstoned",
    drained="ready degraded removing failed tombstoned",
    removing="removed provisioning failed tombstoned",
    failed="provisioning joining ready degraded drained removing removed tombstoned",
    removed="",
    tombstoned="",
)
OPERATION: Final = _table(
    accepted="running cancelling succeeded failed cancelled",
    running="succeeded failed cancelling cancelled",
    cancelling="succeeded failed cancelled",
    succeeded="",
    failed="accepted succeeded cancelled",
    cancelled="",
)
ALLOCATION: Final = _table(
    requested="provisioning releasing failed",
    provisioning="active failed releasing",
    active="provisioning releasing",
    failed="releasing",
    releasing="released release_failed",
    release_failed="releasing released",
    released="",
)
NODE_ADMIN: Final = _table(
    active="cordoned draining retired",
    cordoned="active draining retired",
    draining="active cordoned retired",
    retired="",
)
AGENT_RELEASE: Final = _table(registered="approved", approved="")
NODE_TENANCY: Final = _table(
    clean="used sanitising",
    used="sanitising clean",
    sanitising="clean quarantined",
    quarantined="sanitising clean",
)
APP_VERSION: Final = _table(
    registered="published withdrawn",
    published="deprecated withdrawn",
    deprecated="published withdrawn",
    withdrawn="",
)
ENTITLEMENT_REQUEST: Final = _table(open="granted refused", granted="open", refused="open")
ARTIFACT: Final = _table(
    published="promoted retired",
    promoted="deprecated retired",
    deprecated="retired",
    retired="",
)
ARTIFACT_TRUST: Final = _table(
    unverified="verified failed_verification revoked",
    verified="failed_verification revoked",
    failed_verification="verified revoked",
    revoked="",
)
PLACEMENT: Final = _table(
    queued="placed failed", placed="removing removed", removing="removed placed failed", removed="", failed=""
)

LIVE_ALLOCATION: Final = frozenset({"requested", "provisioning", "active"})
"""States in which an allocation has its machine, or gets it, and people and keys can be chosen for it."""
SERVING_MEMBER: Final = frozenset({"ready", "degraded"})
"""States in which a member may run work."""
GONE_MEMBER: Final = frozenset({"removed", "tombstoned"})
ENDED_OPERATION: Final = frozenset({"succeeded", "failed", "cancelled"})
"""States in which no controller works on an operation. People can retry or close a failed one."""


def allowed(table: Table, present: str) -> list[str]:
    """Return the states a move may lead to, in alphabetical order."""
    return sorted(table[present])


def may_move(table: Table, present: str, wanted: str) -> bool:
    """Return whether the move is legal. Staying in the same state is: reports are repeated after a crash."""
    return present == wanted or wanted in table[present]


class IllegalMove(Exception):
    """A status changed along an arrow that its lifecycle does not have: a bug in the program that changed it."""


def check_move(name: str, table: Table, present: str, wanted: str) -> None:
    """Raise `IllegalMove` unless the lifecycle has this move. `name` is what the message calls the thing that moves."""
    if not may_move(table, present, wanted):
        raise IllegalMove(f"{name} cannot move from {present} to {wanted}")
