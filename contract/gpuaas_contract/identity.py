"""Organisations, projects, service accounts and sign-in. `users` has people, `sessions` sessions, `bindings` roles."""

from typing import Annotated

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.paths import OrgPath, ProjectPath, ServiceAccountKeyPath, ServiceAccountPath
from gpuaas_contract.wire import Name, NoBody, Page, PageQuery, Request, Timestamp, Wire


class Org(Wire):
    """A tenant of the platform; it owns projects and restricts them."""

    org_id: str
    name: str
    created_at: Timestamp


class Project(Wire):
    """Owns machines, apps and accounts; people have roles in it."""

    project_id: str
    org_id: str
    name: str
    """Unique in the organisation."""
    created_at: Timestamp
    revision: int = 1
    """Grows with every change."""


class ServiceAccount(Wire):
    """An identity for programs; it belongs to one project."""

    service_account_id: str
    org_id: str
    project_id: str
    name: str
    state: str
    """`active`, `disabled` or `deleted`."""
    created_by: str
    created_at: Timestamp


class Binding(Wire):
    """A role you have, and where."""

    role: str
    scope: str
    """`platform`, an org id or a project id."""
    expires_at: Timestamp | None = None
    """None: it does not expire."""
    reason: str = ""
    """Reason, for temporary access in an emergency."""


class Me(Wire):
    """Your identity and your roles."""

    actor_type: str
    """`user` or `service_account`."""
    actor_id: str
    name: str
    bindings: list[Binding]
    session_id: str = ""
    """The session of this request."""
    session_expires_at: Timestamp | None = None


class Login(Request):
    """Signs a person in."""

    name: str
    password: str


class Token(Wire):
    """A token to send as `Authorization: Bearer …` until it expires."""

    access_token: str
    """Shown once; the platform stores only a digest."""
    expires_in_s: int


class ServiceAccountLogin(Request):
    """Signs a program in with a key of its service account."""

    key_id: str
    client_secret: str


class CreateOrg(Request):
    """Creates an organisation; its creator becomes its `tenant_admin`."""

    name: Name


class CreateProject(Request):
    """Creates a project in the organisation of the path."""

    name: Name


class RenameProject(Request):
    """Renames a project; its id stays."""

    name: Name
    """Unique in the organisation."""


class ProjectQuery(PageQuery):
    name: str = ""
    """Only projects with this name or id."""


class CreateServiceAccount(Request):
    """Creates an identity for a program."""

    name: Name
    """Unique among the project's accounts that are not deleted."""


class ServiceAccountKey(Wire):
    """A key with which a program signs in as its service account."""

    key_id: str
    service_account_id: str
    client_secret: str
    """Shown once; the platform stores only a digest."""


class ServiceAccountKeyInfo(Wire):
    """A service-account key, without its secret."""

    key_id: str
    service_account_id: str
    created_at: Timestamp
    created_by: str
    last_used_at: Timestamp | None = None
    """When a token was last made with it."""
    expires_at: Timestamp | None = None
    """Set when the key was rotated with a grace period."""


KEY_GRACE_MAX_S = 24 * 3600
GraceSeconds = Annotated[
    int, msgspec.Meta(ge=0, le=KEY_GRACE_MAX_S, description=f"From 0 to {KEY_GRACE_MAX_S} seconds.")
]


class RotateServiceAccountKey(Request):
    """Creates a new key and ends the present one."""

    grace_s: GraceSeconds = 0
    """How long the old key still works beside the new one."""


LOGIN = Endpoint(
    "auth.login",
    "POST",
    "/api/v1/auth/login",
    "Sign in with name and password",
    audience="public",
    repeat="natural",
    request=Login,
    response=Token,
    secret_answer=True,
    errors=(errors.CredentialsInvalid, errors.TooManyAttempts),
)
SERVICE_ACCOUNT_TOKEN = Endpoint(
    "auth.service_account_token",
    "POST",
    "/api/v1/auth/service-account/token",
    "Sign in with a service-account key",
    audience="public",
    repeat="natural",
    request=ServiceAccountLogin,
    response=Token,
    secret_answer=True,
    errors=(errors.CredentialsInvalid,),
    description="Returns a short-lived token.",
)
ME = Endpoint("auth.me", "GET", "/api/v1/me", "Get your identity and roles", request=NoBody, response=Me)
ORG_CREATE = Endpoint(
    "identity.org.create",
    "POST",
    "/api/v1/orgs",
    "Create an organisation",
    permission="identity.org.create",
    request=CreateOrg,
    response=Org,
    subject="org_id",
    status=201,
    example={"name": "acme"},
)
ORG_LIST = Endpoint(
    "identity.org.list",
    "GET",
    "/api/v1/orgs",
    "List the organisations you can see",
    request=NoBody,
    query=PageQuery,
    response=Page[Org],
)
PROJECT_CREATE = Endpoint(
    "identity.project.create",
    "POST",
    "/api/v1/orgs/{org_id}/projects",
    "Create a project",
    params=OrgPath,
    permission="identity.project.create",
    request=CreateProject,
    response=Project,
    subject="project_id",
    status=201,
    example={"name": "research"},
)
PROJECT_LIST = Endpoint(
    "identity.project.list",
    "GET",
    "/api/v1/projects",
    "List the projects you can see",
    request=NoBody,
    query=ProjectQuery,
    response=Page[Project],
)
PROJECT_GET = Endpoint(
    "identity.project.get",
    "GET",
    "/api/v1/projects/{project_id}",
    "Get one project",
    params=ProjectPath,
    permission="identity.project.read",
    request=NoBody,
    response=Project,
)
PROJECT_RENAME = Endpoint(
    "identity.project.rename",
    "PUT",
    "/api/v1/projects/{project_id}",
    "Rename a project",
    params=ProjectPath,
    permission="identity.project.rename",
    request=RenameProject,
    response=Project,
    subject="project_id",
    repeat="natural",
    guarded=True,
    example={"name": "research-2"},
    description="The id stays, and so does everything that refers to it.",
)
PROJECT_DELETE = Endpoint(
    "identity.project.delete",
    "DELETE",
    "/api/v1/projects/{project_id}",
    "Delete an empty project",
    params=ProjectPath,
    permission="identity.project.delete",
    request=NoBody,
    response=Project,
    subject="project_id",
    repeat="natural",
    errors=(errors.ProjectNotEmpty,),
    description="Refused while the project owns app instances, allocations, service accounts, credentials, artifacts "
    "or trust keys; `details.owns` lists them. Its roles, entitlements and policy overlay are deleted. "
    "Audit rows, events and usage stay.",
)
SERVICE_ACCOUNT_CREATE = Endpoint(
    "identity.service_account.create",
    "POST",
    "/api/v1/projects/{project_id}/service-accounts",
    "Create a service account",
    params=ProjectPath,
    permission="identity.service_account.create",
    request=CreateServiceAccount,
    response=ServiceAccount,
    subject="service_account_id",
    status=201,
    example={"name": "app-controller"},
)
SERVICE_ACCOUNT_LIST = Endpoint(
    "identity.service_account.list",
    "GET",
    "/api/v1/projects/{project_id}/service-accounts",
    "List the service accounts of a project",
    params=ProjectPath,
    permission="identity.service_account.read",
    request=NoBody,
    query=PageQuery,
    response=Page[ServiceAccount],
)
SERVICE_ACCOUNT_KEY_CREATE = Endpoint(
    "identity.service_account_key.create",
    "POST",
    "/api/v1/projects/{project_id}/service-accounts/{service_account_id}/keys",
    "Create a key for a service account",
    params=ServiceAccountPath,
    permission="identity.service_account_key.create",
    request=NoBody,
    response=ServiceAccountKey,
    subject="key_id",
    status=201,
    secret_answer=True,
    errors=(errors.SecretAlreadyDelivered,),
)
SERVICE_ACCOUNT_GET = Endpoint(
    "identity.service_account.get",
    "GET",
    "/api/v1/projects/{project_id}/service-accounts/{service_account_id}",
    "Get one service account, also a deleted one",
    params=ServiceAccountPath,
    permission="identity.service_account.read",
    request=NoBody,
    response=ServiceAccount,
)
SERVICE_ACCOUNT_DISABLE = Endpoint(
    "identity.service_account.disable",
    "POST",
    "/api/v1/projects/{project_id}/service-accounts/{service_account_id}/disable",
    "Disable a service account",
    params=ServiceAccountPath,
    permission="identity.service_account.change",
    request=NoBody,
    response=ServiceAccount,
    subject="service_account_id",
    description="Its tokens end at once, and it gets no new ones. Its keys stay.",
)
SERVICE_ACCOUNT_ENABLE = Endpoint(
    "identity.service_account.enable",
    "POST",
    "/api/v1/projects/{project_id}/service-accounts/{service_account_id}/enable",
    "Enable a disabled service account",
    params=ServiceAccountPath,
    permission="identity.service_account.change",
    request=NoBody,
    response=ServiceAccount,
    subject="service_account_id",
    description="It can sign in again with the keys it has.",
)
SERVICE_ACCOUNT_DELETE = Endpoint(
    "identity.service_account.delete",
    "DELETE",
    "/api/v1/projects/{project_id}/service-accounts/{service_account_id}",
    "Delete a service account with its keys and tokens",
    params=ServiceAccountPath,
    permission="identity.service_account.delete",
    request=NoBody,
    response=ServiceAccount,
    subject="service_account_id",
    description="Its name can be used again. The account itself can still be read, because old records refer to it.",
)
SERVICE_ACCOUNT_KEY_LIST = Endpoint(
    "identity.service_account_key.list",
    "GET",
    "/api/v1/projects/{project_id}/service-accounts/{service_account_id}/keys",
    "List the keys of a service account, without their secrets",
    params=ServiceAccountPath,
    permission="identity.service_account_key.read",
    request=NoBody,
    query=PageQuery,
    response=Page[ServiceAccountKeyInfo],
)
SERVICE_ACCOUNT_KEY_ROTATE = Endpoint(
    "identity.service_account_key.rotate",
    "POST",
    "/api/v1/projects/{project_id}/service-accounts/{service_account_id}/keys/{key_id}/rotate",
    "Replace a key of a service account",
    params=ServiceAccountKeyPath,
    permission="identity.service_account_key.rotate",
    request=RotateServiceAccountKey,
    response=ServiceAccountKey,
    subject="key_id",
    status=201,
    secret_answer=True,
    errors=(errors.SecretAlreadyDelivered,),
    example={"grace_s": 3600},
    description="The old key ends after `grace_s`.",
)
SERVICE_ACCOUNT_KEY_REVOKE = Endpoint(
    "identity.service_account_key.revoke",
    "DELETE",
    "/api/v1/projects/{project_id}/service-accounts/{service_account_id}/keys/{key_id}",
    "Revoke a key and every token made with it",
    params=ServiceAccountKeyPath,
    permission="identity.service_account_key.revoke",
    request=NoBody,
    response=ServiceAccountKeyInfo,
    subject="key_id",
)
ENDPOINTS = (
    LOGIN,
    SERVICE_ACCOUNT_TOKEN,
    ME,
    ORG_CREATE,
    ORG_LIST,
    PROJECT_CREATE,
    PROJECT_LIST,
    PROJECT_GET,
    PROJECT_RENAME,
    PROJECT_DELETE,
    SERVICE_ACCOUNT_CREATE,
    SERVICE_ACCOUNT_LIST,
    SERVICE_ACCOUNT_GET,
    SERVICE_ACCOUNT_DISABLE,
    SERVICE_ACCOUNT_ENABLE,
    SERVICE_ACCOUNT_DELETE,
    SERVICE_ACCOUNT_KEY_CREATE,
    SERVICE_ACCOUNT_KEY_LIST,
    SERVICE_ACCOUNT_KEY_ROTATE,
    SERVICE_ACCOUNT_KEY_REVOKE,
)
