"""Organisations, projects, service accounts and sign-in. `users` has people, `sessions` sessions, `bindings` roles."""

from typing import Annotated

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.catalog import PermissionKey, Slug
from gpuaas_contract.paths import API, ORG, PROJECT, SERVICE_ACCOUNT, SERVICE_ACCOUNT_KEY
from gpuaas_contract.wire import Id, Name, NoBody, PageQuery, Request, Secret, Timestamp, Wire


class Org(Wire):
    """A tenant of the platform; it owns projects and limits them."""

    org_id: str
    name: str
    created_at: Timestamp


class Project(Wire):
    """Owner of allocations, app instances and service accounts."""

    project_id: str
    org_id: str
    name: str
    """Name of the project; unique in its organisation."""
    created_at: Timestamp
    revision: int = 1
    """Number of the project's version; it grows with every change."""


class ServiceAccount(Wire):
    """An identity for programs, of a project or an organisation."""

    service_account_id: str
    org_id: str
    project_id: str
    """Empty: the account belongs to the organisation, and works in the projects that accept it."""
    name: str
    state: str
    """`active`, `disabled` or `deleted`."""
    created_by: str
    created_at: Timestamp
    apps: list[str] = []
    """Apps that the service account operates: it can claim and report on their operations only."""
    permissions: list[str] = []
    """The only permission keys that the service account can use."""


class Binding(Wire):
    """A role you have, and where."""

    role: str
    scope: str
    """Where it applies: `platform`, an organisation's id or a project's id."""
    expires_at: Timestamp | None = None
    """When the role ends; none: it does not expire."""
    reason: str = ""
    """Why the role was given; only for temporary access in an emergency."""


class Me(Wire):
    """Your identity and your roles."""

    actor_type: str
    """`user` or `service_account`."""
    actor_id: str
    name: str
    bindings: list[Binding]
    session_id: str = ""
    """Id of the session that this request was made with."""
    session_expires_at: Timestamp | None = None


class Login(Request):
    """Signs a person in."""

    name: str
    password: Secret


class Token(Wire):
    """A token to send as `Authorization: Bearer …` until it expires."""

    access_token: str
    """The secret itself. Shown once; the platform stores only a digest."""
    expires_in_s: int


class ServiceAccountLogin(Request):
    """Signs a program in with a key of its service account."""

    key_id: str
    client_secret: Secret


class CreateOrg(Request):
    """Creates an organisation. Its creator gets no role in it, except if `first_admin` names the creator."""

    name: Name
    first_admin: Id
    """Name or id of the person who becomes `tenant_admin` of the new organisation."""


class CreateProject(Request):
    """Creates a project in the organisation of the path."""

    name: Name


class RenameProject(Request):
    """Renames a project; its id stays."""

    name: Name
    """Name of the project; unique in its organisation."""


class ProjectQuery(PageQuery):
    name: str = ""
    """Only projects with this name or id."""


AppSlugs = Annotated[list[Slug], msgspec.Meta(max_length=16, description="At most 16 apps.")]
GivenKeys = Annotated[list[PermissionKey], msgspec.Meta(max_length=200)] | None


class CreateServiceAccount(Request):
    """Creates an identity for a program."""

    name: Name
    """Unique among the project's accounts that are not deleted."""
    apps: AppSlugs = []
    """Apps that the service account operates. It can claim and report on their operations only; empty: on none."""
    permissions: GivenKeys = None
    """Permission keys that the account gets, of those that its apps offer; none: all of these. An account without an
    app is offered those of a `project_member`."""


class BindServiceAccount(Request):
    """Sets which apps a service account operates, and its permissions. Both replace the earlier values."""

    apps: AppSlugs
    """Apps that the service account operates; empty: it can claim no operations any more."""
    permissions: GivenKeys = None
    """Permission keys that the account gets, of those that its apps offer; none: all of these."""


class ServiceAccountKey(Wire):
    """A key with which a program signs in as its service account."""

    key_id: str
    service_account_id: str
    client_secret: str
    """The secret itself. Shown once; the platform stores only a digest."""


class ServiceAccountKeyInfo(Wire):
    """A service-account key, without its secret."""

    key_id: str
    service_account_id: str
    created_at: Timestamp
    created_by: str
    last_used_at: Timestamp | None = None
    """When the service account last signed in with the key."""
    expires_at: Timestamp | None = None
    """Set when the key was rotated with a grace period."""


KEY_GRACE_MAX_S = 24 * 3600
GraceSeconds = Annotated[
    int, msgspec.Meta(ge=0, le=KEY_GRACE_MAX_S, description=f"From 0 to {KEY_GRACE_MAX_S} seconds.")
]


class RotateServiceAccountKey(Request):
    """Creates a new key and ends the present one."""

    grace_s: GraceSeconds = 0
    """How many seconds the old key still works beside the new one."""


LOGIN = API.row("/auth/login", "auth.login", "Sign in with name and password").post(
    Login,
    Token,
    subject="",
    audience="public",
    secret_answer=True,
    errors=(errors.CredentialsInvalid, errors.TooManyAttempts),
)
SERVICE_ACCOUNT_TOKEN = API.row(
    "/auth/service-account/token",
    "auth.service_account_token",
    "Sign in with a service-account key",
    "Returns a short-lived access token, which authenticates the account's requests.",
).post(
    ServiceAccountLogin, Token, subject="", audience="public", secret_answer=True, errors=(errors.CredentialsInvalid,)
)
ME = API.row("/me", "auth.me", "Get your identity and roles").get(Me, permission="")
ORG_CREATE = API.row("/orgs", "identity.org.create", "Create an organisation").post(
    CreateOrg, Org, status=201, example={"name": "acme", "first_admin": "admin"}
)
ORG_LIST = API.row("/orgs", "identity.org.list", "List the organisations you can see").list(Org, permission="")
PROJECT_CREATE = ORG.row("/projects", "identity.project.create", "Create a project").post(
    CreateProject, Project, status=201, example={"name": "research"}
)
PROJECT_LIST = API.row("/projects", "identity.project.list", "List the projects you can see").list(
    Project, permission="", query=ProjectQuery
)
PROJECT_GET = PROJECT.row("", "identity.project.get", "Get one project").get(Project, "identity.project.read")
PROJECT_RENAME = PROJECT.row(
    "",
    "identity.project.rename",
    "Rename a project",
    "The project's id stays the same, so everything that refers to the project still works.",
).put(RenameProject, Project, guarded=True, example={"name": "research-2"})
PROJECT_DELETE = PROJECT.row(
    "",
    "identity.project.delete",
    "Delete an empty project",
    "Refused while the project owns app instances, allocations, service accounts, credentials, artifacts "
    "or trust keys; `details.owns` lists them. Its roles, entitlements and policy overlay are deleted. "
    "Audit rows, events and usage stay.",
).delete(Project, repeat="natural", errors=(errors.ProjectNotEmpty,))
SERVICE_ACCOUNT_CREATE = PROJECT.row(
    "/service-accounts",
    "identity.service_account.create",
    "Create a service account",
    "An account with `apps` is for the controllers of these apps; an account without is for other programs. An app "
    "without a published version is refused.",
).post(
    CreateServiceAccount,
    ServiceAccount,
    status=201,
    errors=(errors.AppUnknown, errors.Conflict),
    example={"name": "app-controller"},
)
SERVICE_ACCOUNT_BIND = SERVICE_ACCOUNT.row(
    "/apps",
    "identity.service_account.bind",
    "Set which apps a service account operates",
    "The change counts from the next request of the account. Reports on work of apps that it no longer operates are "
    "refused, and its access to machines for such work ends.",
).put(BindServiceAccount, ServiceAccount, errors=(errors.AppUnknown, errors.Conflict), example={"apps": []})
SERVICE_ACCOUNT_LIST = PROJECT.row(
    "/service-accounts", "identity.service_account.list", "List the service accounts of a project"
).list(ServiceAccount, "identity.service_account.read")
SERVICE_ACCOUNT_GET = SERVICE_ACCOUNT.row(
    "", "identity.service_account.get", "Get one service account, also a deleted one"
).get(ServiceAccount, "identity.service_account.read")
SERVICE_ACCOUNT_DISABLE = SERVICE_ACCOUNT.row(
    "/disable",
    "identity.service_account.disable",
    "Disable a service account",
    "The account's tokens end at once, and it gets no new ones. Its keys stay.",
).post(NoBody, ServiceAccount, "identity.service_account.change")
SERVICE_ACCOUNT_ENABLE = SERVICE_ACCOUNT.row(
    "/enable",
    "identity.service_account.enable",
    "Enable a disabled service account",
    "The service account can sign in again with its existing keys.",
).post(NoBody, ServiceAccount, "identity.service_account.change")
SERVICE_ACCOUNT_DELETE = SERVICE_ACCOUNT.row(
    "",
    "identity.service_account.delete",
    "Delete a service account with its keys and tokens",
    "The account's name can be used again. The account itself can still be read, because old records refer to it.",
).delete(ServiceAccount)
SERVICE_ACCOUNT_KEY_CREATE = SERVICE_ACCOUNT.row(
    "/keys", "identity.service_account_key.create", "Create a key for a service account"
).post(NoBody, ServiceAccountKey, status=201, secret_answer=True, errors=(errors.SecretAlreadyDelivered,))
SERVICE_ACCOUNT_KEY_LIST = SERVICE_ACCOUNT.row(
    "/keys", "identity.service_account_key.list", "List the keys of a service account, without their secrets"
).list(ServiceAccountKeyInfo, "identity.service_account_key.read")
SERVICE_ACCOUNT_KEY_ROTATE = SERVICE_ACCOUNT_KEY.row(
    "/rotate",
    "identity.service_account_key.rotate",
    "Replace a key of a service account",
    "The old key ends after `grace_s`.",
).post(
    RotateServiceAccountKey,
    ServiceAccountKey,
    status=201,
    secret_answer=True,
    errors=(errors.SecretAlreadyDelivered,),
    example={"grace_s": 3600},
)
SERVICE_ACCOUNT_KEY_REVOKE = SERVICE_ACCOUNT_KEY.row(
    "", "identity.service_account_key.revoke", "Revoke a key and every token made with it"
).delete(ServiceAccountKeyInfo)
