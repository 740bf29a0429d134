"""Organisations, projects, people, service accounts and their tokens."""

import datetime

from gpuaas_contract import errors
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.wire import NoBody, Page, PageQuery, Request, Wire


class Org(Wire):
    org_id: str
    name: str
    created_at: datetime.datetime


class Project(Wire):
    project_id: str
    org_id: str
    name: str
    created_at: datetime.datetime


class ServiceAccount(Wire):
    service_account_id: str
    org_id: str
    project_id: str
    name: str
    state: str
    created_by: str
    created_at: datetime.datetime


class Binding(Wire):
    role: str
    scope: str
    """`platform`, an org id or a project id."""


class Me(Wire):
    actor_type: str
    actor_id: str
    name: str
    bindings: list[Binding]


class Login(Request):
    name: str
    password: str


class Token(Wire):
    access_token: str
    expires_in_s: int


class ServiceAccountLogin(Request):
    key_id: str
    client_secret: str


class CreateOrg(Request):
    name: str


class CreateProject(Request):
    name: str


class CreateServiceAccount(Request):
    name: str


class ServiceAccountKey(Wire):
    key_id: str
    service_account_id: str
    client_secret: str
    """Shown once; the platform keeps a digest only."""


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
    errors=(errors.CredentialsInvalid,),
)
SERVICE_ACCOUNT_TOKEN = Endpoint(
    "auth.service_account_token",
    "POST",
    "/api/v1/auth/service-account/token",
    "Trade a service-account key for a short token",
    audience="public",
    repeat="natural",
    request=ServiceAccountLogin,
    response=Token,
    secret_answer=True,
    errors=(errors.CredentialsInvalid,),
)
ME = Endpoint("auth.me", "GET", "/api/v1/me", "Who am I", request=NoBody, response=Me)
ORG_CREATE = Endpoint(
    "identity.org.create",
    "POST",
    "/api/v1/orgs",
    "Create an organisation",
    permission="identity.org.create",
    request=CreateOrg,
    response=Org,
    status=201,
    example={"name": "acme"},
)
ORG_LIST = Endpoint(
    "identity.org.list",
    "GET",
    "/api/v1/orgs",
    "Organisations you can see",
    request=NoBody,
    query=PageQuery,
    response=Page[Org],
)
PROJECT_CREATE = Endpoint(
    "identity.project.create",
    "POST",
    "/api/v1/orgs/{org_id}/projects",
    "Create a project",
    permission="identity.project.create",
    request=CreateProject,
    response=Project,
    status=201,
    example={"name": "research"},
)
PROJECT_LIST = Endpoint(
    "identity.project.list",
    "GET",
    "/api/v1/projects",
    "Projects you can see",
    request=NoBody,
    query=PageQuery,
    response=Page[Project],
)
SERVICE_ACCOUNT_CREATE = Endpoint(
    "identity.service_account.create",
    "POST",
    "/api/v1/projects/{project_id}/service-accounts",
    "Create a service account",
    permission="identity.service_account.create",
    request=CreateServiceAccount,
    response=ServiceAccount,
    status=201,
    example={"name": "app-controller"},
)
SERVICE_ACCOUNT_LIST = Endpoint(
    "identity.service_account.list",
    "GET",
    "/api/v1/projects/{project_id}/service-accounts",
    "Service accounts of a project",
    permission="identity.service_account.read",
    request=NoBody,
    query=PageQuery,
    response=Page[ServiceAccount],
)
SERVICE_ACCOUNT_KEY_CREATE = Endpoint(
    "identity.service_account_key.create",
    "POST",
    "/api/v1/projects/{project_id}/service-accounts/{service_account_id}/keys",
    "Make a key for a service account; its secret is shown once",
    permission="identity.service_account_key.create",
    request=NoBody,
    response=ServiceAccountKey,
    status=201,
    secret_answer=True,
    errors=(errors.SecretAlreadyDelivered,),
)
ENDPOINTS = (
    LOGIN,
    SERVICE_ACCOUNT_TOKEN,
    ME,
    ORG_CREATE,
    ORG_LIST,
    PROJECT_CREATE,
    PROJECT_LIST,
    SERVICE_ACCOUNT_CREATE,
    SERVICE_ACCOUNT_LIST,
    SERVICE_ACCOUNT_KEY_CREATE,
)
