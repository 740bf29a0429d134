"""The event catalogue: every type there is, what it means and what its payload holds. `asyncapi` makes the document."""

from dataclasses import dataclass
from typing import Literal

from gpuaas_contract.catalog import SecretPurpose
from gpuaas_contract.holds import HoldKind
from gpuaas_contract.lifecycles import (
    AllocationStatus,
    AppVersionState,
    ArtifactLifecycle,
    ArtifactTrust,
    InstanceStatus,
    MemberStatus,
    NodeAdminState,
    NodeStatus,
    OperationStatus,
    PlacementState,
    StepState,
)
from gpuaas_contract.operations import ExitName, OperationKind
from gpuaas_contract.policy import Layer
from gpuaas_contract.wire import Serial, Timestamp, Wire

Level = Literal["project", "org", "platform"]


@dataclass(frozen=True)
class EventType:
    name: str
    """`domain.thing.happened`, on the wire and never renamed."""
    meaning: str
    payload: type[Wire]
    levels: tuple[Level, ...] = ("project",)
    """Whose records have it: those of projects, of organisations, of the platform."""


class InstanceChanged(Wire):
    """An app instance has a new status; the event's type says which."""

    operation_id: str
    """The last operation on it."""
    kind: OperationKind | None
    """What changed it; none when its controller saw it change by itself."""
    name: str
    was: InstanceStatus | None = None
    """The status before; none for a new instance."""
    reason: str = ""
    """What is wrong while it is degraded or failed."""


class OperatorChanged(Wire):
    """Another service account works on an instance."""

    operator_service_account_id: str
    """The account that works on the instance from now on; empty: any of the project."""
    was: str
    """The account before."""
    reason: str


class ConditionChanged(Wire):
    """A named statement about an instance is no longer what it was."""

    type: str
    status: str
    """`true`, `false` or `unknown`."""
    was: str
    """Empty when it is said for the first time."""
    reason: str
    message: str


class HoldChanged(Wire):
    """A hold on a member was placed or lifted."""

    hold_id: str
    member_id: str
    name: str
    kind: HoldKind
    reason: str
    owner: str
    """Who placed it."""
    expires_at: Timestamp


class BreakerChanged(Wire):
    """A role stopped taking new members, or takes them again."""

    component_key: str
    open: bool
    """True: it takes none."""
    failures: int
    """Failed adds inside the window."""
    closes_at: Timestamp | None
    """When it takes members again by itself."""
    reason: str
    """Why the last member failed, or why somebody reset it."""


class ExitWasTaken(Wire):
    """Somebody took a way out of an operation."""

    operation_id: str
    kind: OperationKind
    exit: ExitName
    status: OperationStatus
    """Of the operation afterwards."""
    reason: str


class MemberChanged(Wire):
    """A member has a new status."""

    member_id: str
    component_key: str
    node_name: str
    status: MemberStatus
    was: MemberStatus
    status_reason: str
    operation_id: str
    """The operation that last asked something of it."""


class OperationAccepted(Wire):
    """An operation waits for the app's controller."""

    operation_id: str
    kind: OperationKind
    members: list[str]
    """Ids of the members it is about."""


class OperationClaimed(Wire):
    """A controller took an operation up."""

    operation_id: str
    kind: OperationKind
    holder: str
    """What the controller calls itself."""
    epoch: int
    """Grows with every claim."""


class OperationStep(Wire):
    """A step of an operation went on."""

    operation_id: str
    kind: OperationKind
    step: str
    member_id: str
    """Empty for a step of the whole operation."""
    state: StepState
    message: str


class OperationEnded(Wire):
    """Nobody works on an operation any more."""

    operation_id: str
    kind: OperationKind
    status: OperationStatus
    error: str
    """Why it failed; empty otherwise."""


class AllocationChanged(Wire):
    """An allocation has a new status."""

    allocation_id: str
    status: AllocationStatus
    status_reason: str
    node_name: str
    was: AllocationStatus | None = None
    """The status before; none for a new allocation."""


class NodeChanged(Wire):
    """A node was lost, came back, changed, or is wanted otherwise by its operators."""

    node_id: str
    name: str
    status: NodeStatus
    admin_state: NodeAdminState
    sku: str
    region: str
    reason: str = ""
    """What changed, or why an operator changed it."""


class AllocationDraining(Wire):
    """Operators want the allocation's node empty."""

    allocation_id: str
    node_name: str
    reason: str
    """Why, in the operators' words."""


class AllocationKeysChanged(Wire):
    """An allocation's machine has another set of people's keys."""

    allocation_id: str
    node_name: str
    installed: list[str]
    """Fingerprints of all the keys of people that are on the machine now."""


class MachineGranted(Wire):
    """Somebody may enter a machine."""

    grant_id: str
    allocation_id: str
    operation_id: str
    """Empty when a person asked."""
    actor_id: str
    """Who got the certificate."""
    serial: Serial
    """Serial number of the certificate, as sshd logs it."""


class MachineAccessEnded(Wire):
    """Somebody may no longer enter a machine."""

    grant_id: str
    allocation_id: str
    operation_id: str
    actor_id: str
    """Whose access it was."""
    serial: Serial
    """Serial number of the certificate, as sshd logs it."""
    ended_by: str
    """Who ended it; `platform` when what it rested on was gone."""
    reason: str


class CredentialChanged(Wire):
    """Something was done with a customer's key; the event's type says what."""

    credential_id: str
    name: str
    version: int
    fingerprint: str
    actor_id: str
    """Who did it."""
    operation_id: str = ""
    """What it was delivered for."""
    delivery_id: str = ""
    reason: str = ""


class SecretChanged(Wire):
    """Something was done with a runtime secret; the event's type says what."""

    secret_id: str
    purpose: SecretPurpose
    name: str
    version: int
    actor_id: str
    """Who did it; `platform` when it expired."""
    delivery_id: str = ""
    """The delivery that was made or opened; empty when the secret ended."""
    reason: str = ""


class EntitlementChanged(Wire):
    """Something else was decided about an app in a project."""

    app_slug: str
    enabled: bool
    versions: list[str] = []
    """Versions that may be deployed; none listed: all."""
    channels: list[str] = []
    """Channels whose versions may be deployed; none listed: all."""
    instances_max: int | None = None
    members_max: int | None = None


class VersionChanged(Wire):
    """An app version has a new state in the catalog."""

    app_slug: str
    version: str
    state: AppVersionState
    was: AppVersionState | None
    """The state before; none for a new version."""
    channels: list[str]
    reason: str


class BreakGlassGranted(Wire):
    """A platform admin took temporary access to the project."""

    binding_id: str
    user_id: str
    """Who took it."""
    reason: str
    expires_at: Timestamp


class BreakGlassEnded(Wire):
    """Temporary access to the project is over before its time."""

    binding_id: str
    user_id: str
    """Who had the access."""
    ended_by: str
    """That person, another admin of the platform, or an admin of the project."""


class OverlayChanged(Wire):
    """A layer of policy narrows something else than before."""

    layer: Layer
    scope: str
    """`platform`, an org id or a project id."""
    revision: int
    changed: list[str]
    """Names of the overlay's fields that are new."""
    reason: str


class ArtifactChanged(Wire):
    """An artifact was published, verified, promoted or ended."""

    artifact_id: str
    name: str
    digest: str
    lifecycle: ArtifactLifecycle
    trust: ArtifactTrust
    channels: list[str]
    code: str
    """The error code a verification ended with; empty when none did."""
    reason: str


class TrustKeyChanged(Wire):
    """A key's signatures count, or no longer do."""

    trust_key_id: str
    fingerprint: str
    revoked: bool


class ArtifactDelivery(Wire):
    """Somebody may fetch an artifact for some minutes."""

    delivery_id: str
    artifact_id: str
    digest: str
    purpose: str
    """In the words of whoever asked."""
    operation_id: str
    actor_id: str
    expires_at: Timestamp


class ArtifactPlacementChanged(Wire):
    """An artifact goes to a machine, lies there, or failed to."""

    placement_id: str
    artifact_id: str
    digest: str
    allocation_id: str
    node_name: str
    operation_id: str
    state: PlacementState
    code: str
    """Why it failed; empty otherwise."""


class ProjectRenamed(Wire):
    """A project has another name."""

    project_id: str
    name: str
    previous_name: str
    renamed_by: str


class ProjectDeleted(Wire):
    """A project is gone, with its roles, entitlements and policy overlay."""

    project_id: str
    name: str
    deleted_by: str


_CATALOGUE = (
    EventType("apps.instance.requested", "a deploy was accepted", InstanceChanged),
    EventType("apps.instance.deploying", "an app controller took the deploy up", InstanceChanged),
    EventType(
        "apps.instance.running",
        "the app is up: no member is degraded or failed, and every condition holds",
        InstanceChanged,
    ),
    EventType("apps.instance.degraded", "the app is up, and a member or a condition is not well", InstanceChanged),
    EventType("apps.instance.stopping", "a stop was accepted", InstanceChanged),
    EventType("apps.instance.stopped", "the app is down, its members and data are kept", InstanceChanged),
    EventType("apps.instance.starting", "a start or restart was accepted", InstanceChanged),
    EventType("apps.instance.upgrading", "an upgrade was accepted", InstanceChanged),
    EventType("apps.instance.rolling_back", "a rollback was accepted", InstanceChanged),
    EventType("apps.instance.failed", "an operation on the whole instance failed", InstanceChanged),
    EventType("apps.instance.deleting", "a decommission was accepted", InstanceChanged),
    EventType("apps.instance.deleted", "the app is gone from its machines", InstanceChanged),
    EventType("apps.instance.operator_changed", "another service account works on the instance", OperatorChanged),
    EventType("apps.condition.changed", "a condition of the instance changed", ConditionChanged),
    EventType("apps.member.changed", "a member changed its status", MemberChanged),
    EventType("apps.hold.placed", "somebody holds a member", HoldChanged),
    EventType("apps.hold.lifted", "a hold was lifted by its owner", HoldChanged),
    EventType("apps.role.breaker", "a role stopped taking new members, or takes them again", BreakerChanged),
    EventType("apps.operation.accepted", "an operation waits for the app controller", OperationAccepted),
    EventType("apps.operation.claimed", "an app controller holds the operation", OperationClaimed),
    EventType("apps.operation.step", "a step of an operation started, ended or said something new", OperationStep),
    EventType("apps.operation.exit", "somebody took one of an operation's exits", ExitWasTaken),
    EventType("apps.operation.ended", "an operation succeeded, failed or was cancelled", OperationEnded),
    EventType("capacity.allocation.changed", "an allocation changed its status", AllocationChanged),
    EventType(
        "capacity.allocation.draining",
        "operators empty the allocation's node: its owner should move the work and release it",
        AllocationDraining,
    ),
    EventType(
        "capacity.allocation.keys_installed",
        "the machine has another set of people's SSH keys",
        AllocationKeysChanged,
    ),
    EventType(
        "capacity.node.changed",
        "a node was lost or came back, or operators want something else of it",
        NodeChanged,
        levels=("platform",),
    ),
    EventType(
        "artifacts.artifact.changed",
        "an artifact was published, verified, promoted or ended",
        ArtifactChanged,
        levels=("project", "platform"),
    ),
    EventType(
        "artifacts.trust_key.changed",
        "a key is trusted, or no longer",
        TrustKeyChanged,
        levels=("project", "platform"),
    ),
    EventType("artifacts.delivery.created", "somebody may fetch an artifact for some minutes", ArtifactDelivery),
    EventType(
        "artifacts.placement.changed", "an artifact goes to a machine, lies there, or failed", ArtifactPlacementChanged
    ),
    EventType("access.machine.granted", "somebody got a certificate for a machine", MachineGranted),
    EventType(
        "access.machine.ended", "somebody's access to a machine is over, live sessions included", MachineAccessEnded
    ),
    EventType("access.credential.created", "somebody handed a private key over", CredentialChanged),
    EventType("access.credential.rotated", "a credential has another private key", CredentialChanged),
    EventType("access.credential.delivered", "a controller may open a credential, once", CredentialChanged),
    EventType("access.credential.opened", "a controller opened a delivery of a credential", CredentialChanged),
    EventType("access.credential.reopened", "somebody tried to open a credential a second time", CredentialChanged),
    EventType("access.credential.revoked", "a credential was taken back and its key destroyed", CredentialChanged),
    EventType("access.secret.issued", "a controller issued a runtime secret, or asked for it again", SecretChanged),
    EventType("access.secret.opened", "a controller opened a delivery of a runtime secret", SecretChanged),
    EventType("access.secret.reopened", "somebody tried to open a delivery a second time, in vain", SecretChanged),
    EventType("access.secret.revoked", "a runtime secret was taken back and its value destroyed", SecretChanged),
    EventType("access.secret.expired", "a runtime secret came to its end and its value was destroyed", SecretChanged),
    EventType("catalog.entitlement.changed", "a project may or may no longer deploy an app", EntitlementChanged),
    EventType(
        "catalog.version.changed",
        "an app version was registered, published, deprecated or withdrawn",
        VersionChanged,
        levels=("platform",),
    ),
    EventType(
        "identity.break_glass.granted", "a platform admin took temporary access to the project", BreakGlassGranted
    ),
    EventType("identity.break_glass.ended", "temporary access was ended before its time", BreakGlassEnded),
    EventType("identity.project.renamed", "a project has another name", ProjectRenamed, levels=("org",)),
    EventType("identity.project.deleted", "a project was deleted", ProjectDeleted, levels=("org",)),
    EventType(
        "policy.overlay.changed",
        "what a layer allows has changed",
        OverlayChanged,
        levels=("project", "org", "platform"),
    ),
)
TYPES: dict[str, EventType] = {kind.name: kind for kind in _CATALOGUE}
