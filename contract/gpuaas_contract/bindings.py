"""Who holds which role where, and temporary access in an emergency."""

from typing import Annotated

import msgspec

from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.wire import NoBody, Page, PageQuery, Request, Timestamp, Wire

BREAK_GLASS_MINUTES_MAX = 60
REASON_LENGTH_MIN = 10


class RoleBinding(Wire):
    """That a person holds a role, where, and until when."""

    binding_id: str
    user_id: str
    user_name: str
    role: str
    scope: str
    """`platform`, an org id or a project id."""
    created_by: str
    """Who gave it; `platform` for what came with the first start."""
    created_at: Timestamp
    expires_at: Timestamp | None = None
    """None: until it is taken away."""
    reason: str = ""
    """Why it was given; always there for temporary access."""


class BindRole(Request):
    """Gives a person a role at the place the path names."""

    user_id: str
    role: str
    """One that can be held there: docs/reference/permissions.md has the table."""


class BreakGlass(Request):
    """Takes temporary access to a project in an emergency, in the open."""

    project_id: str
    reason: Annotated[str, msgspec.Meta(min_length=REASON_LENGTH_MIN, max_length=1000)]
    """Whoever owns the organisation reads it on their audit trail."""
    minutes: Annotated[int, msgspec.Meta(ge=1, le=BREAK_GLASS_MINUTES_MAX)] = 30
    """It ends by itself after this long."""


PLATFORM_BINDING_CREATE = Endpoint(
    "identity.platform_binding.create",
    "POST",
    "/api/v1/admin/bindings",
    "Give a person a role at the platform",
    permission="identity.binding.change",
    request=BindRole,
    response=RoleBinding,
    subject="binding_id",
    status=201,
)
PLATFORM_BINDING_LIST = Endpoint(
    "identity.platform_binding.list",
    "GET",
    "/api/v1/admin/bindings",
    "Roles given at the platform",
    permission="identity.binding.read",
    request=NoBody,
    query=PageQuery,
    response=Page[RoleBinding],
)
PLATFORM_BINDING_DELETE = Endpoint(
    "identity.platform_binding.delete",
    "DELETE",
    "/api/v1/admin/bindings/{binding_id}",
    "Take a role at the platform away",
    permission="identity.binding.change",
    request=NoBody,
    response=RoleBinding,
    subject="binding_id",
)
ORG_BINDING_CREATE = Endpoint(
    "identity.org_binding.create",
    "POST",
    "/api/v1/orgs/{org_id}/bindings",
    "Give a person a role in an organisation",
    permission="identity.binding.change",
    request=BindRole,
    response=RoleBinding,
    subject="binding_id",
    status=201,
)
ORG_BINDING_LIST = Endpoint(
    "identity.org_binding.list",
    "GET",
    "/api/v1/orgs/{org_id}/bindings",
    "Roles given in an organisation",
    permission="identity.binding.read",
    request=NoBody,
    query=PageQuery,
    response=Page[RoleBinding],
)
ORG_BINDING_DELETE = Endpoint(
    "identity.org_binding.delete",
    "DELETE",
    "/api/v1/orgs/{org_id}/bindings/{binding_id}",
    "Take a role in an organisation away",
    permission="identity.binding.change",
    request=NoBody,
    response=RoleBinding,
    subject="binding_id",
)
PROJECT_BINDING_CREATE = Endpoint(
    "identity.project_binding.create",
    "POST",
    "/api/v1/projects/{project_id}/bindings",
    "Give a person a role in a project",
    permission="identity.binding.change",
    request=BindRole,
    response=RoleBinding,
    subject="binding_id",
    status=201,
)
PROJECT_BINDING_LIST = Endpoint(
    "identity.project_binding.list",
    "GET",
    "/api/v1/projects/{project_id}/bindings",
    "Roles given in a project",
    permission="identity.binding.read",
    request=NoBody,
    query=PageQuery,
    response=Page[RoleBinding],
)
PROJECT_BINDING_DELETE = Endpoint(
    "identity.project_binding.delete",
    "DELETE",
    "/api/v1/projects/{project_id}/bindings/{binding_id}",
    "Take a role in a project away",
    permission="identity.binding.change",
    request=NoBody,
    response=RoleBinding,
    subject="binding_id",
)
BREAK_GLASS_CREATE = Endpoint(
    "identity.break_glass.create",
    "POST",
    "/api/v1/admin/break-glass",
    "Take temporary access to a project; the reason goes on the organisation's audit trail",
    permission="identity.break_glass.create",
    request=BreakGlass,
    response=RoleBinding,
    subject="binding_id",
    status=201,
)
BREAK_GLASS_END = Endpoint(
    "identity.break_glass.end",
    "DELETE",
    "/api/v1/admin/break-glass/{binding_id}",
    "End temporary access to a project before its time; its organisation is told",
    permission="identity.break_glass.end",
    request=NoBody,
    response=RoleBinding,
    subject="binding_id",
)
ENDPOINTS = (
    PLATFORM_BINDING_CREATE,
    PLATFORM_BINDING_LIST,
    PLATFORM_BINDING_DELETE,
    ORG_BINDING_CREATE,
    ORG_BINDING_LIST,
    ORG_BINDING_DELETE,
    PROJECT_BINDING_CREATE,
    PROJECT_BINDING_LIST,
    PROJECT_BINDING_DELETE,
    BREAK_GLASS_CREATE,
    BREAK_GLASS_END,
)
