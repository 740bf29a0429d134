"""The event catalogue: every type there is, what it means and what its payload holds. `asyncapi` makes the document."""

import datetime
from dataclasses import dataclass

from gpuaas_contract.lifecycles import (
    AllocationStatus,
    InstanceStatus,
    MemberStatus,
    NodeStatus,
    OperationStatus,
    StepState,
)
from gpuaas_contract.operations import OperationKind
from gpuaas_contract.policy import Layer
from gpuaas_contract.wire import Wire


@dataclass(frozen=True)
class EventType:
    name: str
    """`domain.thing.happened`, on the wire and never renamed."""
    meaning: str
    payload: type[Wire]
    of_project: bool = True
    """Told to those who follow a project; the others concern the whole platform and stay in its own record."""


class InstanceChanged(Wire):
    operation_id: str
    """The operation that changed it."""
    kind: OperationKind
    name: str
    was: InstanceStatus | None = None
    """The status before; none for a new instance."""
    reason: str = ""


class MemberChanged(Wire):
    member_id: str
    component_key: str
    node_name: str
    status: MemberStatus
    was: MemberStatus
    status_reason: str
    operation_id: str


class OperationAccepted(Wire):
    operation_id: str
    kind: OperationKind
    members: list[str]
    """Ids of the members it is about."""


class OperationClaimed(Wire):
    operation_id: str
    kind: OperationKind
    holder: str
    epoch: int


class OperationStep(Wire):
    operation_id: str
    kind: OperationKind
    step: str
    member_id: str
    """Empty for a step of the whole operation."""
    state: StepState
    message: str


class OperationEnded(Wire):
    operation_id: str
    kind: OperationKind
    status: OperationStatus
    error: str


class AllocationChanged(Wire):
    allocation_id: str
    status: AllocationStatus
    status_reason: str
    node_name: str


class NodeChanged(Wire):
    node_id: str
    name: str
    status: NodeStatus


class MachineGranted(Wire):
    grant_id: str
    allocation_id: str
    operation_id: str
    """Empty when a person asked."""
    actor_id: str
    serial: int


class EntitlementChanged(Wire):
    app_slug: str
    enabled: bool


class BreakGlassGranted(Wire):
    binding_id: str
    user_id: str
    reason: str
    expires_at: datetime.datetime


class OverlayChanged(Wire):
    layer: Layer
    scope: str
    """`platform`, an org id or a project id."""
    revision: int
    changed: list[str]
    """Names of the overlay's fields that are new."""
    reason: str


_CATALOGUE = (
    EventType("apps.instance.requested", "a deploy was accepted", InstanceChanged),
    EventType("apps.instance.deploying", "an app controller took the deploy up", InstanceChanged),
    EventType("apps.instance.running", "the app is up and every member is ready", InstanceChanged),
    EventType("apps.instance.degraded", "the app is up and a member is not ready", InstanceChanged),
    EventType("apps.instance.failed", "a deploy or a teardown failed", InstanceChanged),
    EventType("apps.instance.deleting", "a decommission was accepted", InstanceChanged),
    EventType("apps.instance.deleted", "the app is gone from its machines", InstanceChanged),
    EventType("apps.member.changed", "a member changed its status", MemberChanged),
    EventType("apps.operation.accepted", "an operation waits for the app controller", OperationAccepted),
    EventType("apps.operation.claimed", "an app controller holds the operation", OperationClaimed),
    EventType("apps.operation.step", "a step of an operation started, ended or said something new", OperationStep),
    EventType("apps.operation.ended", "an operation succeeded, failed or was cancelled", OperationEnded),
    EventType("capacity.allocation.changed", "an allocation changed its status", AllocationChanged),
    EventType("capacity.node.changed", "a node changed its status", NodeChanged, of_project=False),
    EventType("access.machine.granted", "somebody got a certificate for a machine", MachineGranted),
    EventType("catalog.entitlement.changed", "a project may or may no longer deploy an app", EntitlementChanged),
    EventType(
        "identity.break_glass.granted", "a platform admin took temporary access to the project", BreakGlassGranted
    ),
    EventType("policy.overlay.changed", "what a layer allows has changed", OverlayChanged),
)
TYPES: dict[str, EventType] = {kind.name: kind for kind in _CATALOGUE}
