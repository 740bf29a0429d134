"""Role bindings: who has which role where. Temporary access in an emergency."""

from typing import Annotated

import msgspec

from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.paths import BindingPath, OrgBindingPath, OrgPath, ProjectBindingPath, ProjectPath
from gpuaas_contract.wire import NoBody, Page, PageQuery, Request, Timestamp, Wire

BREAK_GLASS_MINUTES_MAX = 60
REASON_LENGTH_MIN = 10


class RoleBinding(Wire):
    """A role that a person has: where, and until when."""

    binding_id: str
    user_id: str
    user_name: str
    role: str
    scope: str
    """`platform`, an org id or a project id."""
    created_by: str
    """Who gave it; `platform` for roles made at the first start."""
    created_at: Timestamp
    expires_at: Timestamp | None = None
    """None: it does not expire."""
    reason: str = ""
    """Reason; always set for temporary access."""


class BindRole(Request):
    """Gives a person a role in the scope of the path."""

    user_id: str
    role: str
    """A role that can be given there; docs/reference/permissions.md lists them."""


class BreakGlass(Request):
    """Takes temporary, audited access to a project in an emergency."""

    project_id: str
    reason: Annotated[str, msgspec.Meta(min_length=REASON_LENGTH_MIN, max_length=1000)]
    """Shown in the audit trail of the organisation."""
    minutes: Annotated[int, msgspec.Meta(ge=1, le=BREAK_GLASS_MINUTES_MAX)] = 30
    """It ends by itself after this time."""


PLATFORM_BINDING_CREATE = Endpoint(
    "identity.platform_binding.create",
    "POST",
    "/api/v1/admin/bindings",
    "Give a person a role on the platform",
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
    "List roles on the platform",
    permission="identity.binding.read",
    request=NoBody,
    query=PageQuery,
    response=Page[RoleBinding],
)
PLATFORM_BINDING_DELETE = Endpoint(
    "identity.platform_binding.delete",
    "DELETE",
    "/api/v1/admin/bindings/{binding_id}",
    "Remove a role on the platform",
    params=BindingPath,
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
    params=OrgPath,
    permission="identity.binding.change",
    request=BindRole,
    response=RoleBinding,
    subject="binding_id",
    status=201,
    description="You can only give roles whose permissions you have yourself.",
)
ORG_BINDING_LIST = Endpoint(
    "identity.org_binding.list",
    "GET",
    "/api/v1/orgs/{org_id}/bindings",
    "List roles in an organisation",
    params=OrgPath,
    permission="identity.binding.read",
    request=NoBody,
    query=PageQuery,
    response=Page[RoleBinding],
)
ORG_BINDING_DELETE = Endpoint(
    "identity.org_binding.delete",
    "DELETE",
    "/api/v1/orgs/{org_id}/bindings/{binding_id}",
    "Remove a role in an organisation",
    params=OrgBindingPath,
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
    params=ProjectPath,
    permission="identity.binding.change",
    request=BindRole,
    response=RoleBinding,
    subject="binding_id",
    status=201,
    description="You can only give roles whose permissions you have yourself.",
)
PROJECT_BINDING_LIST = Endpoint(
    "identity.project_binding.list",
    "GET",
    "/api/v1/projects/{project_id}/bindings",
    "List roles in a project",
    params=ProjectPath,
    permission="identity.binding.read",
    request=NoBody,
    query=PageQuery,
    response=Page[RoleBinding],
)
PROJECT_BINDING_DELETE = Endpoint(
    "identity.project_binding.delete",
    "DELETE",
    "/api/v1/projects/{project_id}/bindings/{binding_id}",
    "Remove a role in a project",
    params=ProjectBindingPath,
    permission="identity.binding.change",
    request=NoBody,
    response=RoleBinding,
    subject="binding_id",
)
BREAK_GLASS_CREATE = Endpoint(
    "identity.break_glass.create",
    "POST",
    "/api/v1/admin/break-glass",
    "Take temporary access to a project in an emergency",
    permission="identity.break_glass.create",
    request=BreakGlass,
    response=RoleBinding,
    subject="binding_id",
    status=201,
    description="The access ends by itself. The reason is in the audit trail of the project's organisation, with "
    "every change made.",
)
BREAK_GLASS_END = Endpoint(
    "identity.break_glass.end",
    "DELETE",
    "/api/v1/admin/break-glass/{binding_id}",
    "End temporary access to a project early",
    params=BindingPath,
    permission="identity.break_glass.end",
    request=NoBody,
    response=RoleBinding,
    subject="binding_id",
    description="The project gets an event, and its organisation an audit row.",
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
