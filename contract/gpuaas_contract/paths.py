"""Structs of the path parameters in the endpoint table, and the routes from which its rows are made.

A struct that extends another one adds the next parameters of the path. So a function that takes a `ProjectPath` also
accepts every longer path in a project.
"""

from gpuaas_contract.endpoint import Route
from gpuaas_contract.wire import Path as Path


class OrgPath(Path):
    org_id: str


class OrgBindingPath(OrgPath):
    binding_id: str


class OrgAccountPath(OrgPath):
    service_account_id: str


class OrgAccountKeyPath(OrgAccountPath):
    key_id: str


class ProjectPath(Path):
    project_id: str


class ProjectBindingPath(ProjectPath):
    binding_id: str


class ServiceAccountPath(ProjectPath):
    service_account_id: str


class ServiceAccountKeyPath(ServiceAccountPath):
    key_id: str


class CorrelationPath(ProjectPath):
    correlation_id: str


class EntitlementPath(ProjectPath):
    app_slug: str


class EntitlementRequestPath(ProjectPath):
    app_slug: str


class ProjectAppPath(ProjectPath):
    app_slug: str
    version: str


class ProjectArtifactPath(ProjectPath):
    artifact_id: str


class PlacementPath(ProjectArtifactPath):
    placement_id: str


class ProjectTrustKeyPath(ProjectPath):
    trust_key_id: str


class AllocationPath(ProjectPath):
    allocation_id: str


class MachineGrantPath(ProjectPath):
    grant_id: str


class CredentialPath(ProjectPath):
    credential_id: str


class SealedDeliveryPath(ProjectPath):
    """Path of the delivery of one encrypted secret or credential to one reader."""

    delivery_id: str


class InstancePath(ProjectPath):
    instance_id: str


class ActionPath(InstancePath):
    action: str


class RolePath(InstancePath):
    component_key: str


class HoldPath(InstancePath):
    hold_id: str


class MemberPath(InstancePath):
    member_id: str


class RuntimeSecretPath(InstancePath):
    secret_id: str


class OperationPath(ProjectPath):
    operation_id: str


class OperationMemberPath(OperationPath):
    member_id: str


class UserPath(Path):
    user_id: str


class SessionPath(Path):
    session_id: str


class SshKeyPath(Path):
    ssh_key_id: str


class BindingPath(Path):
    binding_id: str


class AppPath(Path):
    """Path of an app in the catalog. Roles that are given for the app apply there."""

    app_slug: str


class AppBindingPath(AppPath):
    binding_id: str


class AppVersionPath(AppPath):
    version: str


class AppArtifactPath(AppPath):
    artifact_id: str


class ArtifactPath(Path):
    artifact_id: str


class TrustKeyPath(Path):
    trust_key_id: str


class ArtifactDeliveryPath(Path):
    delivery_id: str


class PlacedContentPath(Path):
    placement_id: str


class NodePath(Path):
    node_id: str


class NodeTaskPath(NodePath):
    task_id: str


class TaskPath(Path):
    task_id: str


class AgentFilePath(Path):
    sha256: str


API = Route("/api/v1")
SESSION = API.at("/me/sessions/{session_id}", SessionPath)
SSH_KEY = API.at("/me/ssh-keys/{ssh_key_id}", SshKeyPath)
ARTIFACT_CONTENT = API.at("/artifact-content/{delivery_id}", ArtifactDeliveryPath)

ORG = API.at("/orgs/{org_id}", OrgPath)
ORG_BINDING = ORG.at("/bindings/{binding_id}", OrgBindingPath)
ORG_ACCOUNT = ORG.at("/service-accounts/{service_account_id}", OrgAccountPath)
ORG_ACCOUNT_KEY = ORG_ACCOUNT.at("/keys/{key_id}", OrgAccountKeyPath)

PROJECT = API.at("/projects/{project_id}", ProjectPath)
PROJECT_BINDING = PROJECT.at("/bindings/{binding_id}", ProjectBindingPath)
SERVICE_ACCOUNT = PROJECT.at("/service-accounts/{service_account_id}", ServiceAccountPath)
SERVICE_ACCOUNT_KEY = SERVICE_ACCOUNT.at("/keys/{key_id}", ServiceAccountKeyPath)
ACCEPTED_ACCOUNT = PROJECT.at("/accepted-accounts/{service_account_id}", ServiceAccountPath)
CORRELATION = PROJECT.at("/correlations/{correlation_id}", CorrelationPath)
ENTITLEMENT = PROJECT.at("/entitlements/{app_slug}", EntitlementPath)
ENTITLEMENT_REQUEST = PROJECT.at("/entitlement-requests/{app_slug}", EntitlementRequestPath)
PROJECT_APP = PROJECT.at("/apps/{app_slug}/versions/{version}", ProjectAppPath)
ARTIFACT = PROJECT.at("/artifacts/{artifact_id}", ProjectArtifactPath)
PLACEMENT = ARTIFACT.at("/placements/{placement_id}", PlacementPath)
TRUST_KEY = PROJECT.at("/trust-keys/{trust_key_id}", ProjectTrustKeyPath)
ALLOCATION = PROJECT.at("/allocations/{allocation_id}", AllocationPath)
MACHINE_GRANT = PROJECT.at("/machine-grants/{grant_id}", MachineGrantPath)
CREDENTIAL = PROJECT.at("/credentials/{credential_id}", CredentialPath)
CREDENTIAL_DELIVERY = PROJECT.at("/credential-deliveries/{delivery_id}", SealedDeliveryPath)
SECRET_DELIVERY = PROJECT.at("/runtime-secret-deliveries/{delivery_id}", SealedDeliveryPath)

INSTANCE = PROJECT.at("/app-instances/{instance_id}", InstancePath)
ACTION = INSTANCE.at("/actions/{action}", ActionPath)
STEWARD = INSTANCE.at("/steward", InstancePath)
ROLE = INSTANCE.at("/roles/{component_key}", RolePath)
HOLD = INSTANCE.at("/holds/{hold_id}", HoldPath)
MEMBER = INSTANCE.at("/members/{member_id}", MemberPath)
RUNTIME_SECRET = INSTANCE.at("/runtime-secrets/{secret_id}", RuntimeSecretPath)

OPERATION = PROJECT.at("/operations/{operation_id}", OperationPath)
OPERATION_MEMBER = OPERATION.at("/members/{member_id}", OperationMemberPath)

ADMIN = Route("/api/v1/admin")
USER = ADMIN.at("/users/{user_id}", UserPath)
BINDING = ADMIN.at("/bindings/{binding_id}", BindingPath)
BREAK_GLASS = ADMIN.at("/break-glass/{binding_id}", BindingPath)
APP = ADMIN.at("/apps/{app_slug}", AppPath)
APP_BINDING = APP.at("/bindings/{binding_id}", AppBindingPath)
APP_VERSION = APP.at("/versions/{version}", AppVersionPath)
APP_ARTIFACT = APP.at("/artifacts/{artifact_id}", AppArtifactPath)
NODE = ADMIN.at("/nodes/{node_id}", NodePath)
NODE_TASK = NODE.at("/tasks/{task_id}", NodeTaskPath)
REGISTERED_RELEASE = ADMIN.at("/agent-releases/{sha256}", AgentFilePath)

AGENT_API = Route("/node/v1")
"""Endpoints for the agents of nodes, which authenticate with the node's token."""
AGENT_TASK = AGENT_API.at("/tasks/{task_id}", TaskPath)
AGENT_RELEASE = AGENT_API.at("/agent-releases/{sha256}", AgentFilePath)
PLACED_CONTENT = AGENT_API.at("/artifact-content/{placement_id}", PlacedContentPath)
