"""Role bindings: who has which role where. Temporary access in an emergency."""

from typing import Annotated

import msgspec

from gpuaas_contract.paths import ADMIN, ORG, PROJECT, BindingPath, OrgBindingPath, ProjectBindingPath
from gpuaas_contract.wire import Request, Timestamp, Wire

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


PLATFORM_BINDING_CREATE = ADMIN.at("/bindings").post(
    "identity.platform_binding.create",
    "Give a person a role on the platform",
    BindRole,
    RoleBinding,
    "identity.binding.change",
    status=201,
)
PLATFORM_BINDING_LIST = ADMIN.at("/bindings").list(
    "identity.platform_binding.list", "List roles on the platform", RoleBinding, "identity.binding.read"
)
PLATFORM_BINDING_DELETE = ADMIN.at("/bindings/{binding_id}", BindingPath).delete(
    "identity.platform_binding.delete", "Remove a role on the platform", RoleBinding, "identity.binding.change"
)
ORG_BINDING_CREATE = ORG.at("/bindings").post(
    "identity.org_binding.create",
    "Give a person a role in an organisation",
    BindRole,
    RoleBinding,
    "identity.binding.change",
    status=201,
    description="You can only give roles whose permissions you have yourself.",
)
ORG_BINDING_LIST = ORG.at("/bindings").list(
    "identity.org_binding.list", "List roles in an organisation", RoleBinding, "identity.binding.read"
)
ORG_BINDING_DELETE = ORG.at("/bindings/{binding_id}", OrgBindingPath).delete(
    "identity.org_binding.delete", "Remove a role in an organisation", RoleBinding, "identity.binding.change"
)
PROJECT_BINDING_CREATE = PROJECT.at("/bindings").post(
    "identity.project_binding.create",
    "Give a person a role in a project",
    BindRole,
    RoleBinding,
    "identity.binding.change",
    status=201,
    description="You can only give roles whose permissions you have yourself.",
)
PROJECT_BINDING_LIST = PROJECT.at("/bindings").list(
    "identity.project_binding.list", "List roles in a project", RoleBinding, "identity.binding.read"
)
PROJECT_BINDING_DELETE = PROJECT.at("/bindings/{binding_id}", ProjectBindingPath).delete(
    "identity.project_binding.delete", "Remove a role in a project", RoleBinding, "identity.binding.change"
)
BREAK_GLASS_CREATE = ADMIN.at("/break-glass").post(
    "identity.break_glass.create",
    "Take temporary access to a project in an emergency",
    BreakGlass,
    RoleBinding,
    status=201,
    description="The access ends by itself. The reason is in the audit trail of the project's organisation, with "
    "every change made.",
)
BREAK_GLASS_END = ADMIN.at("/break-glass/{binding_id}", BindingPath).delete(
    "identity.break_glass.end",
    "End temporary access to a project early",
    RoleBinding,
    description="The project gets an event, and its organisation an audit row.",
)
