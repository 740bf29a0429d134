"""Role bindings: who has which role where. Temporary access in an emergency."""

from typing import Annotated

import msgspec

from gpuaas_contract.paths import (
    ADMIN,
    APP,
    APP_BINDING,
    BINDING,
    BREAK_GLASS,
    ORG,
    ORG_BINDING,
    PROJECT,
    PROJECT_BINDING,
)
from gpuaas_contract.wire import Id, Request, Timestamp, Wire

BREAK_GLASS_MINUTES_MAX = 60
REASON_LENGTH_MIN = 10


class RoleBinding(Wire):
    """A role that a person has: where, and until when."""

    binding_id: str
    user_id: str
    user_name: str
    role: str
    scope: str
    """Where it applies: `platform`, `app:` and the slug of an app, an organisation's id or a project's id."""
    created_by: str
    """Who gave the role; `platform` for roles that were made at the first start."""
    created_at: Timestamp
    expires_at: Timestamp | None = None
    """When the role ends; none: it does not expire."""
    reason: str = ""
    """Why the role was given; always set for temporary access."""


class BindRole(Request):
    """Gives a person a role in the scope of the path."""

    user_id: Id
    role: Id
    """The role to give; it must be one that exists at this level. docs/reference/permissions.md lists them."""


class BreakGlass(Request):
    """Takes temporary, audited access to a project in an emergency."""

    project_id: Id
    reason: Annotated[str, msgspec.Meta(min_length=REASON_LENGTH_MIN, max_length=1000, pattern=r"\S")]
    """Why the access is needed; shown in the audit trail of the organisation."""
    minutes: Annotated[int, msgspec.Meta(ge=1, le=BREAK_GLASS_MINUTES_MAX)] = 30
    """Minutes after which the temporary access ends."""


PLATFORM_BINDING_CREATE = ADMIN.row(
    "/bindings", "identity.platform_binding.create", "Give a person a role on the platform"
).post(BindRole, RoleBinding, "identity.binding.change", status=201)
PLATFORM_BINDING_LIST = ADMIN.row("/bindings", "identity.platform_binding.list", "List roles on the platform").list(
    RoleBinding, "identity.binding.read"
)
PLATFORM_BINDING_DELETE = BINDING.row("", "identity.platform_binding.delete", "Remove a role on the platform").delete(
    RoleBinding, "identity.binding.change"
)
APP_BINDING_CREATE = APP.row(
    "/bindings",
    "identity.app_binding.create",
    "Give a person a role for one app",
    "An `app_publisher` registers and publishes versions and artifacts of this app only. The app need not exist yet.",
).post(BindRole, RoleBinding, "identity.binding.change", status=201)
APP_BINDING_LIST = APP.row("/bindings", "identity.app_binding.list", "List roles for one app").list(
    RoleBinding, "identity.binding.read"
)
APP_BINDING_DELETE = APP_BINDING.row(
    "", "identity.app_binding.delete", "Remove a role for one app", "It has no effect from the next request on."
).delete(RoleBinding, "identity.binding.change")
ORG_BINDING_CREATE = ORG.row(
    "/bindings",
    "identity.org_binding.create",
    "Give a person a role in an organisation",
    "You can only give roles whose permissions you have yourself.",
).post(BindRole, RoleBinding, "identity.binding.change", status=201)
ORG_BINDING_LIST = ORG.row("/bindings", "identity.org_binding.list", "List roles in an organisation").list(
    RoleBinding, "identity.binding.read"
)
ORG_BINDING_DELETE = ORG_BINDING.row("", "identity.org_binding.delete", "Remove a role in an organisation").delete(
    RoleBinding, "identity.binding.change"
)
PROJECT_BINDING_CREATE = PROJECT.row(
    "/bindings",
    "identity.project_binding.create",
    "Give a person a role in a project",
    "You can only give roles whose permissions you have yourself.",
).post(BindRole, RoleBinding, "identity.binding.change", status=201)
PROJECT_BINDING_LIST = PROJECT.row("/bindings", "identity.project_binding.list", "List roles in a project").list(
    RoleBinding, "identity.binding.read"
)
PROJECT_BINDING_DELETE = PROJECT_BINDING.row(
    "", "identity.project_binding.delete", "Remove a role in a project"
).delete(RoleBinding, "identity.binding.change")
BREAK_GLASS_CREATE = ADMIN.row(
    "/break-glass",
    "identity.break_glass.create",
    "Take temporary access to a project in an emergency",
    "The access ends by itself. The reason is in the audit trail of the project's organisation, with "
    "every change made.",
).post(BreakGlass, RoleBinding, status=201)
BREAK_GLASS_END = BREAK_GLASS.row(
    "",
    "identity.break_glass.end",
    "End temporary access to a project early",
    "The project gets an event, and its organisation an audit row.",
).delete(RoleBinding)
