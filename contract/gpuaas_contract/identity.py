"""Organisations, projects, service accounts and sign-in. `users` has people, `sessions` sessions, `bindings` roles."""

from typing import Annotated

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.paths import API, ORG, PROJECT, SERVICE_ACCOUNT, SERVICE_ACCOUNT_KEY
from gpuaas_contract.wire import Name, NoBody, PageQuery, Request, Timestamp, Wire


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


LOGIN = API.at("/auth/login").post(
    "auth.login",
    "Sign in with name and password",
    Login,
    Token,
    subject="",
    repeat="natural",
    audience="public",
    secret_answer=True,
    errors=(errors.CredentialsInvalid, errors.TooManyAttempts),
)
SERVICE_ACCOUNT_TOKEN = API.at("/auth/service-account/token").post(
    "auth.service_account_token",
    "Sign in with a service-account key",
    ServiceAccountLogin,
    Token,
    subject="",
    repeat="natural",
    audience="public",
    secret_answer=True,
    errors=(errors.CredentialsInvalid,),
    description="Returns a short-lived token.",
)
ME = API.at("/me").get("auth.me", "Get your identity and roles", Me, permission="")
ORG_CREATE = API.at("/orgs").post(
    "identity.org.create", "Create an organisation", CreateOrg, Org, status=201, example={"name": "acme"}
)
ORG_LIST = API.at("/orgs").list("identity.org.list", "List the organisations you can see", Org, permission="")
PROJECT_CREATE = ORG.at("/projects").post(
    "identity.project.create", "Create a project", CreateProject, Project, status=201, example={"name": "research"}
)
PROJECT_LIST = API.at("/projects").list(
    "identity.project.list", "List the projects you can see", Project, permission="", query=ProjectQuery
)
PROJECT_GET = PROJECT.get("identity.project.get", "Get one project", Project, "identity.project.read")
PROJECT_RENAME = PROJECT.put(
    "identity.project.rename",
    "Rename a project",
    RenameProject,
    Project,
    guarded=True,
    example={"name": "research-2"},
    description="The id stays, and so does everything that refers to it.",
)
PROJECT_DELETE = PROJECT.delete(
    "identity.project.delete",
    "Delete an empty project",
    Project,
    repeat="natural",
    errors=(errors.ProjectNotEmpty,),
    description="Refused while the project owns app instances, allocations, service accounts, credentials, artifacts "
    "or trust keys; `details.owns` lists them. Its roles, entitlements and policy overlay are deleted. "
    "Audit rows, events and usage stay.",
)
SERVICE_ACCOUNT_CREATE = PROJECT.at("/service-accounts").post(
    "identity.service_account.create",
    "Create a service account",
    CreateServiceAccount,
    ServiceAccount,
    status=201,
    example={"name": "app-controller"},
)
SERVICE_ACCOUNT_LIST = PROJECT.at("/service-accounts").list(
    "identity.service_account.list",
    "List the service accounts of a project",
    ServiceAccount,
    "identity.service_account.read",
)
SERVICE_ACCOUNT_GET = SERVICE_ACCOUNT.get(
    "identity.service_account.get",
    "Get one service account, also a deleted one",
    ServiceAccount,
    "identity.service_account.read",
)
SERVICE_ACCOUNT_DISABLE = SERVICE_ACCOUNT.at("/disable").post(
    "identity.service_account.disable",
    "Disable a service account",
    NoBody,
    ServiceAccount,
    "identity.service_account.change",
    description="Its tokens end at once, and it gets no new ones. Its keys stay.",
)
SERVICE_ACCOUNT_ENABLE = SERVICE_ACCOUNT.at("/enable").post(
    "identity.service_account.enable",
    "Enable a disabled service account",
    NoBody,
    ServiceAccount,
    "identity.service_account.change",
    description="It can sign in again with the keys it has.",
)
SERVICE_ACCOUNT_DELETE = SERVICE_ACCOUNT.delete(
    "identity.service_account.delete",
    "Delete a service account with its keys and tokens",
    ServiceAccount,
    description="Its name can be used again. The account itself can still be read, because old records refer to it.",
)
SERVICE_ACCOUNT_KEY_CREATE = SERVICE_ACCOUNT.at("/keys").post(
    "identity.service_account_key.create",
    "Create a key for a service account",
    NoBody,
    ServiceAccountKey,
    status=201,
    secret_answer=True,
    errors=(errors.SecretAlreadyDelivered,),
)
SERVICE_ACCOUNT_KEY_LIST = SERVICE_ACCOUNT.at("/keys").list(
    "identity.service_account_key.list",
    "List the keys of a service account, without their secrets",
    ServiceAccountKeyInfo,
    "identity.service_account_key.read",
)
SERVICE_ACCOUNT_KEY_ROTATE = SERVICE_ACCOUNT_KEY.at("/rotate").post(
    "identity.service_account_key.rotate",
    "Replace a key of a service account",
    RotateServiceAccountKey,
    ServiceAccountKey,
    status=201,
    secret_answer=True,
    errors=(errors.SecretAlreadyDelivered,),
    example={"grace_s": 3600},
    description="The old key ends after `grace_s`.",
)
SERVICE_ACCOUNT_KEY_REVOKE = SERVICE_ACCOUNT_KEY.delete(
    "identity.service_account_key.revoke", "Revoke a key and every token made with it", ServiceAccountKeyInfo
)
