"""Lifecycles as tables: state -> states it may move to. Code, enums and documents come from these."""

from typing import Final, Literal

InstanceStatus = Literal["requested", "deploying", "running", "degraded", "failed", "deleting", "deleted"]
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
OperationStatus = Literal["accepted", "running", "succeeded", "failed", "cancelled"]
AllocationStatus = Literal["requested", "provisioning", "active", "failed", "releasing", "release_failed", "released"]
NodeStatus = Literal["ready", "lost"]
StepState = Literal["running", "succeeded", "failed"]

Table = dict[str, frozenset[str]]


def _table(**moves: str) -> Table:
    return {state: frozenset(targets.split()) for state, targets in moves.items()}


INSTANCE: Final = _table(
    requested="deploying failed deleting",
    deploying="running failed deleting",
    running="degraded deleting",
    degraded="running deleting",
    failed="deploying deleting",
    deleting="deleted failed",
    deleted="",
)
MEMBER: Final = _table(
    requested="provisioning failed removing tombstoned",
    provisioning="joining failed removing tombstoned",
    joining="ready failed removing tombstoned",
    ready="degraded draining removing failed tombstoned",
    degraded="ready draining removing failed tombstoned",
    draining="drained ready failed removing tombstoned",
    drained="ready removing failed tombstoned",
    removing="removed failed tombstoned",
    failed="provisioning joining removing removed tombstoned",
    removed="",
    tombstoned="",
)
OPERATION: Final = _table(
    accepted="running failed cancelled",
    running="succeeded failed cancelled",
    succeeded="",
    failed="",
    cancelled="",
)
ALLOCATION: Final = _table(
    requested="provisioning failed",
    provisioning="active failed",
    active="releasing",
    failed="releasing",
    releasing="released release_failed",
    release_failed="releasing",
    released="",
)

GONE_MEMBER: Final = frozenset({"removed", "tombstoned"})
ENDED_OPERATION: Final = frozenset({"succeeded", "failed", "cancelled"})


def may_move(table: Table, present: str, wanted: str) -> bool:
    """Staying where one is counts as a legal move: reports are repeated after a crash."""
    return present == wanted or wanted in table[present]
