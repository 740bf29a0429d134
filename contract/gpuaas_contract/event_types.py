"""The event catalogue: every type there is, what it means and what its payload holds. `asyncapi` makes the document."""

from dataclasses import dataclass
from typing import Literal

from gpuaas_contract.access import AccessKind
from gpuaas_contract.catalog import SecretPurpose
from gpuaas_contract.holds import HoldKind
from gpuaas_contract.lifecycles import (
    AllocationStatus,
    AppVersionState,
    ArtifactLifecycle,
    ArtifactTrust,
    EntitlementRequestState,
    InstanceStatus,
    MemberStatus,
    NodeAdminState,
    NodeStatus,
    NodeTenancy,
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
    """The type's name on the wire, in the form `domain.thing.happened`. A published name is never changed."""
    meaning: str
    payload: type[Wire]
    levels: tuple[Level, ...] = ("project",)
    """Levels whose event streams contain events of this type."""


class InstanceChanged(Wire):
    """An app instance has a new status, which the event's type names."""

    operation_id: str
    """Id of the last operation on the instance or member."""
    kind: OperationKind | None
    """Kind of the operation that changed the instance; none if its controller observed the change."""
    name: str
    was: InstanceStatus | None = None
    """The status before; none for a new instance."""
    reason: str = ""
    """What is wrong with the instance, if it is degraded or failed."""


class OperatorChanged(Wire):
    """Another service account works on an instance."""

    operator_service_account_id: str
    """The account that works on the instance from now on; empty: any of the project that operates the app."""
    was: str
    """The account before."""
    reason: str


class ConditionChanged(Wire):
    """A condition of an instance changed."""

    type: str
    status: str
    """`true`, `false` or `unknown`."""
    was: str
    """The condition's status before; empty for a new condition."""
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
    """Adding members to a role is stopped, or allowed again."""

    component_key: str
    open: bool
    """True: no members can be added to the role, because too many failed."""
    failures: int
    """How many new members of the role failed within the breaker's time window."""
    closes_at: Timestamp | None
    """When the breaker closes without a reset: from then on, members can be added to the role."""
    reason: str
    """Why the last new member failed, or why a person reset the breaker."""


class ExitWasTaken(Wire):
    """A person retried, cancelled, undid or closed an operation."""

    operation_id: str
    kind: OperationKind
    exit: ExitName
    status: OperationStatus
    """Status of the operation afterwards."""
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
    """Id of the last operation on the instance or member."""


class OperationAccepted(Wire):
    """An operation waits for the app's controller."""

    operation_id: str
    kind: OperationKind
    members: list[str]
    """Ids of the members that the operation changes."""
    reason: str = ""
    """Why it was requested; what the app's controller observed, if it requested it by itself."""


class OperationClaimed(Wire):
    """A controller claimed an operation."""

    operation_id: str
    kind: OperationKind
    holder: str
    """Name of the controller."""
    epoch: int
    """Number of the claim; it grows each time a controller claims the operation."""


class OperationStep(Wire):
    """A step of an operation changed."""

    operation_id: str
    kind: OperationKind
    step: str
    member_id: str
    """The member that the step works on; empty for a step of the whole operation."""
    state: StepState
    message: str


class OperationEnded(Wire):
    """An operation ended."""

    operation_id: str
    kind: OperationKind
    status: OperationStatus
    error: str
    """Why it failed, as an error code or text; empty if it did not fail."""


class AllocationChanged(Wire):
    """An allocation has a new status."""

    allocation_id: str
    status: AllocationStatus
    status_reason: str
    node_name: str
    was: AllocationStatus | None = None
    """The status before; none for a new allocation."""


class NodeChanged(Wire):
    """A node was lost, came back, was changed by operators, or was sanitised."""

    node_id: str
    name: str
    status: NodeStatus
    admin_state: NodeAdminState
    tenancy: NodeTenancy
    sku: str
    region: str
    reason: str = ""
    """What changed, or why an operator changed it."""


class AllocationDraining(Wire):
    """Operators drain the allocation's node."""

    allocation_id: str
    node_name: str
    reason: str
    """The operator's reason."""


class AllocationKeysChanged(Wire):
    """The SSH keys of people on a machine changed."""

    allocation_id: str
    node_name: str
    installed: list[str]
    """Fingerprints of all keys of people on the machine."""


class MachineGranted(Wire):
    """A person or controller got access to a machine."""

    grant_id: str
    allocation_id: str
    operation_id: str
    """The operation that the access is for; empty if a person asked for it."""
    actor_id: str
    """Who got the certificate."""
    serial: Serial
    """Serial number of the SSH certificate; sshd on the machine logs it at each login."""
    access: AccessKind = "root"
    """As whom it lets the actor log in."""


class MachineAccessEnded(Wire):
    """Access to a machine ended."""

    grant_id: str
    allocation_id: str
    operation_id: str
    actor_id: str
    """The person or service account whose access ended."""
    serial: Serial
    """Serial number of the SSH certificate; sshd on the machine logs it at each login."""
    ended_by: str
    """Who ended the access; `platform` if the platform did, because its reason no longer existed."""
    reason: str


class CredentialChanged(Wire):
    """A credential changed or was used; the event's type names what happened."""

    credential_id: str
    name: str
    version: int
    fingerprint: str
    actor_id: str
    """Who did it."""
    operation_id: str = ""
    """The operation that the credential was delivered for."""
    delivery_id: str = ""
    reason: str = ""


class SecretChanged(Wire):
    """A runtime secret changed or was used; the event's type names what happened."""

    secret_id: str
    purpose: SecretPurpose
    name: str
    version: int
    actor_id: str
    """Who issued, opened or revoked the secret; `platform` if it expired."""
    delivery_id: str = ""
    """The delivery that was made or opened; empty when the secret ended."""
    reason: str = ""


class EntitlementChanged(Wire):
    """A project's entitlement to an app changed."""

    app_slug: str
    enabled: bool
    versions: list[str] = []
    """Versions that may be deployed; empty: all."""
    channels: list[str] = []
    """Channels whose versions may be deployed; empty: all."""
    instances_max: int | None = None
    members_max: int | None = None


class EntitlementRequested(Wire):
    """The request of a project for an app was opened, granted or refused."""

    app_slug: str
    state: EntitlementRequestState
    requested_by: str
    reason: str
    """Why the project needs the app."""
    decided_by: str = ""
    decision_reason: str = ""
    """Why it was refused."""


class VersionChanged(Wire):
    """An app version has a new state in the catalog."""

    app_slug: str
    version: str
    state: AppVersionState
    was: AppVersionState | None
    """The state before; none for a new version."""
    channels: list[str]
    reason: str


class ConformanceAttached(Wire):
    """An app version has another conformance card, or its card is no longer trusted."""

    app_slug: str
    version: str
    conforming: bool
    trusted: bool
    """False: the last key that signed the card was revoked."""
    kit_version: str
    completed_at: Timestamp


class AppBindingChanged(Wire):
    """A person got or lost a role for an app."""

    app_slug: str
    user_id: str
    role: str
    binding_id: str
    granted: bool
    """True: the person got the role; false: the role was removed."""


class BreakGlassGranted(Wire):
    """A platform admin took temporary access to the project."""

    binding_id: str
    user_id: str
    """Who took it."""
    reason: str
    expires_at: Timestamp


class BreakGlassEnded(Wire):
    """Temporary access to the project was ended early."""

    binding_id: str
    user_id: str
    """The person who had the temporary access."""
    ended_by: str
    """That person, another platform admin, or an admin of the project."""


class OverlayChanged(Wire):
    """A policy overlay changed."""

    layer: Layer
    scope: str
    """Where it applies: `platform`, an organisation's id or a project's id."""
    revision: int
    changed: list[str]
    """Names of the overlay's changed fields."""
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
    """Error code of the verification; empty otherwise."""
    reason: str


class TrustKeyChanged(Wire):
    """A public key was trusted to sign artifacts, or its trust was revoked."""

    trust_key_id: str
    fingerprint: str
    revoked: bool


class ArtifactDelivery(Wire):
    """A caller may download an artifact for some minutes."""

    delivery_id: str
    artifact_id: str
    digest: str
    purpose: str
    """Purpose of the download, as the request named it."""
    operation_id: str
    actor_id: str
    expires_at: Timestamp


class ArtifactPlacementChanged(Wire):
    """An artifact is being copied to a machine or removed from it, was placed or removed, or this failed."""

    placement_id: str
    artifact_id: str
    digest: str
    allocation_id: str
    node_name: str
    operation_id: str
    state: PlacementState
    code: str
    """Why it failed, as an error code or text; empty if it did not fail."""


class ServiceAccountBound(Wire):
    """The apps and permissions of a service account were set."""

    service_account_id: str
    name: str
    apps: list[str]
    """Apps that the service account operates from now on."""
    was: list[str]
    """The apps before."""
    permissions: list[str]
    """The only permission keys that the service account can use from now on."""
    bound_by: str
    """Who did it; `platform` at the upgrade to the release that introduced this."""
    reason: str
    """What an admin should check, if the platform changed the account; empty otherwise."""
    permissions_before: list[str] = []
    """The permission keys that it could use until then; empty in events of an earlier release."""


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


class ServiceAccountAccepted(Wire):
    """A service account of the organisation may operate its app in the project from now on."""

    service_account_id: str
    name: str
    app_slug: str
    accepted_by: str


class ServiceAccountDismissed(Wire):
    """A service account of the organisation may do nothing in the project any more."""

    service_account_id: str
    name: str
    app_slug: str
    dismissed_by: str
    reason: str
    """Why, if no admin of the project dismissed it: its entitlement was disabled, or the account was deleted."""


class PosixPeopleChanged(Wire):
    """The list of the project's people changed."""

    user_ids: list[str]
    """The people whose entry is new or different."""
    active: int
    """How many people can log in to the project's machines now."""


class PlatformRestored(Wire):
    """The platform was restored from a backup."""

    cut_at: Timestamp
    """When the backup was made. Changes after it are lost."""
    made_by: str
    """Release of the platform that made the backup."""
    operations: int
    """Open operations, which have to be claimed again."""
    grants: int
    """Machine grants that were ended."""
    sessions: int
    """Sessions of people, service accounts and nodes that were ended."""
    nodes_cordoned: int
    """Nodes without an allocation, which an operator has to check and uncordon, and which are then sanitised."""


_CATALOGUE = (
    EventType("apps.instance.requested", "a deploy was accepted", InstanceChanged),
    EventType(
        "apps.instance.deploying", "an app controller claimed the operation that deploys the app", InstanceChanged
    ),
    EventType(
        "apps.instance.running",
        "the app runs: no member is degraded or failed, and every condition is true",
        InstanceChanged,
    ),
    EventType("apps.instance.degraded", "the app runs, but a member or a condition is not healthy", InstanceChanged),
    EventType("apps.instance.stopping", "a stop was accepted", InstanceChanged),
    EventType("apps.instance.stopped", "the app is stopped; its members and data stay", InstanceChanged),
    EventType("apps.instance.starting", "a start or restart was accepted", InstanceChanged),
    EventType("apps.instance.upgrading", "an upgrade was accepted", InstanceChanged),
    EventType("apps.instance.rolling_back", "a rollback was accepted", InstanceChanged),
    EventType("apps.instance.reconfiguring", "a reconfigure was accepted", InstanceChanged),
    EventType("apps.instance.failed", "an operation on the whole instance failed", InstanceChanged),
    EventType("apps.instance.deleting", "a decommission was accepted", InstanceChanged),
    EventType("apps.instance.deleted", "the app was removed from its machines", InstanceChanged),
    EventType("apps.instance.operator_changed", "another service account works on the instance", OperatorChanged),
    EventType("apps.condition.changed", "a condition of the instance changed", ConditionChanged),
    EventType("apps.member.changed", "a member changed its status", MemberChanged),
    EventType("apps.hold.placed", "a hold on a member was placed", HoldChanged),
    EventType("apps.hold.lifted", "a hold was lifted by its owner", HoldChanged),
    EventType("apps.role.breaker", "adding members to a role was stopped, or is allowed again", BreakerChanged),
    EventType("apps.operation.accepted", "an operation waits for the app controller", OperationAccepted),
    EventType("apps.operation.claimed", "an app controller claimed the operation and works on it", OperationClaimed),
    EventType("apps.operation.step", "a step of an operation started, ended or has a new message", OperationStep),
    EventType("apps.operation.exit", "a person retried, cancelled, undid or closed an operation", ExitWasTaken),
    EventType("apps.operation.ended", "an operation succeeded, failed or was cancelled", OperationEnded),
    EventType("capacity.allocation.changed", "an allocation changed its status", AllocationChanged),
    EventType(
        "capacity.allocation.draining",
        "operators drain the allocation's node: its owner should move the work and release it",
        AllocationDraining,
    ),
    EventType(
        "capacity.allocation.keys_installed", "the SSH keys of people on the machine changed", AllocationKeysChanged
    ),
    EventType(
        "capacity.node.changed",
        "a node was lost, came back, was sanitised, or was changed by operators",
        NodeChanged,
        levels=("platform",),
    ),
    EventType(
        "artifacts.artifact.changed",
        "an artifact was published, verified, promoted, deprecated, retired or revoked",
        ArtifactChanged,
        levels=("project", "platform"),
    ),
    EventType(
        "artifacts.trust_key.changed",
        "a public key was trusted to sign artifacts, or its trust was revoked",
        TrustKeyChanged,
        levels=("project", "platform"),
    ),
    EventType("artifacts.delivery.created", "a caller may download an artifact for some minutes", ArtifactDelivery),
    EventType(
        "artifacts.placement.changed",
        "an artifact is being copied to a machine, was placed, or failed",
        ArtifactPlacementChanged,
    ),
    EventType("access.machine.granted", "a person or controller got a certificate for a machine", MachineGranted),
    EventType("access.machine.ended", "access to a machine ended, live sessions included", MachineAccessEnded),
    EventType("access.credential.created", "a credential was created", CredentialChanged),
    EventType("access.credential.rotated", "the private key of a credential was replaced", CredentialChanged),
    EventType(
        "access.credential.delivered",
        "an app's controller may read the private key of a credential, once",
        CredentialChanged,
    ),
    EventType(
        "access.credential.opened", "an app's controller read the private key of a credential", CredentialChanged
    ),
    EventType(
        "access.credential.reopened",
        "a second attempt to open a delivery of a credential was refused",
        CredentialChanged,
    ),
    EventType("access.credential.revoked", "a credential was revoked and its key destroyed", CredentialChanged),
    EventType("access.secret.issued", "a controller issued a runtime secret, or requested it again", SecretChanged),
    EventType("access.secret.opened", "a controller opened a delivery of a runtime secret", SecretChanged),
    EventType(
        "access.secret.reopened", "a second attempt to open a delivery of a runtime secret was refused", SecretChanged
    ),
    EventType("access.secret.revoked", "a runtime secret was revoked and its value destroyed", SecretChanged),
    EventType("access.secret.expired", "a runtime secret expired and its value was destroyed", SecretChanged),
    EventType("catalog.entitlement.changed", "a project's entitlement to an app changed", EntitlementChanged),
    EventType(
        "catalog.entitlement_request.changed",
        "a project requested an app, or an admin granted or refused the request",
        EntitlementRequested,
    ),
    EventType(
        "catalog.version.changed",
        "an app version was registered, published, deprecated or withdrawn",
        VersionChanged,
        levels=("platform",),
    ),
    EventType(
        "catalog.conformance.changed",
        "an app version has another conformance card, or its card is no longer trusted",
        ConformanceAttached,
        levels=("platform",),
    ),
    EventType(
        "identity.app_binding.changed",
        "a person got or lost a role for an app",
        AppBindingChanged,
        levels=("platform",),
    ),
    EventType(
        "identity.break_glass.granted", "a platform admin took temporary access to the project", BreakGlassGranted
    ),
    EventType(
        "identity.break_glass.ended", "temporary access of an operator to a project was ended early", BreakGlassEnded
    ),
    EventType(
        "identity.service_account.bound",
        "the apps and permissions of a service account were set",
        ServiceAccountBound,
        levels=("project", "org"),
    ),
    EventType(
        "identity.service_account.accepted",
        "a service account of the organisation may operate its app in the project",
        ServiceAccountAccepted,
    ),
    EventType(
        "identity.service_account.dismissed",
        "a service account of the organisation may do nothing in the project any more",
        ServiceAccountDismissed,
    ),
    EventType(
        "identity.posix.changed",
        "a person can or can no longer log in to the project's machines, or has other keys or rights there",
        PosixPeopleChanged,
    ),
    EventType("identity.project.renamed", "a project has another name", ProjectRenamed, levels=("org",)),
    EventType("identity.project.deleted", "a project was deleted", ProjectDeleted, levels=("org",)),
    EventType(
        "policy.overlay.changed", "a policy overlay changed", OverlayChanged, levels=("project", "org", "platform")
    ),
    EventType(
        "record.platform.restored",
        "the platform was restored from a backup; what happened between the two is lost",
        PlatformRestored,
        levels=("platform",),
    ),
)
TYPES: dict[str, EventType] = {kind.name: kind for kind in _CATALOGUE}
