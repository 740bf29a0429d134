"""Permission keys that apps declare. A declaration lists the existing roles that hold the key."""

from collections.abc import Collection

from gpuaas_contract import errors
from gpuaas_contract.catalog import Manifest, PermissionRole, PermissionSpec
from gpuaas_contract.identity import Project
from gpuaas_contract.permissions import BREAK_GLASS, KEYS
from gpuaas_contract.policy import CanI, CanIAnswer

from gpuaas_platform.call import Call, Caller
from gpuaas_platform.catalog import manifests, store
from gpuaas_platform.identity import authority
from gpuaas_platform.identity import rules as identity_rules
from gpuaas_platform.kit import db
from gpuaas_platform.policy import service as policy
from gpuaas_platform.record import refusals

_PEOPLE: tuple[PermissionRole, ...] = ("viewer", "project_member", "project_admin", "tenant_admin")
"""Roles from the lowest to the highest. A role also holds the permissions of all lower roles."""


async def holds(reader: db.Reader, caller: Caller, project: Project, key: str, *, app_slug: str = "") -> bool:
    """Return whether a role of the caller in the project holds the permission key, of an app or of the platform.

    Several apps may declare the same key. With `app_slug`, only that app's declaration counts."""
    return _has_role(caller, project, key, await holders(reader, key, project.project_id, app_slug=app_slug))


def holds_by(manifest: Manifest, caller: Caller, project: Project, key: str) -> bool:
    """Return the same for an instance whose version has this manifest. A later version of the app changes who may act
    on the instance only when people upgrade the instance to it."""
    declarations = [declared for name, declared in manifest.permissions.items() if name == key]
    return _has_role(caller, project, key, identity_rules.holders(key) if key in KEYS else _roles(declarations))


async def holders(reader: db.Reader, key: str, project_id: str, *, app_slug: str = "") -> frozenset[str]:
    """Return the roles that hold a key in a project; empty for a key of an app that was never enabled there.

    If several versions of an app declare the key, the newest that is published or deprecated counts."""
    if key in KEYS:
        return identity_rules.holders(key)
    declarations = await store.declarations(reader, key, project_id, app_slug)
    return _roles(declarations)


async def can_i(call: Call, body: CanI) -> CanIAnswer:
    """Answer whether the caller has a permission. Keys of apps need a project, so that others cannot discover them."""
    reader, area = call.site.database.reader, body.permission.partition(".")[0]
    if body.permission not in KEYS and (area in manifests.PLATFORM_AREAS or not body.project_id):
        raise errors.ValidationFailed(
            f"There is no permission {body.permission}.",
            details={"field": "permission"},
            fix="docs/reference/permissions.md lists them; for a permission of an app, name the project too.",
        )
    roles = await holders(reader, body.permission, body.project_id, app_slug=body.app)
    return await policy.can_i(reader, call, body, roles)


async def denial(call: Call, permission: str, why: str) -> errors.PermissionDenied:
    """Audit a refusal that the edge cannot decide, also in a dry run, and return the error for the caller to raise."""
    refusal = errors.PermissionDenied(why, details={"permission": permission})
    await audit_denial(call, refusal)
    return refusal


async def audit_denial(call: Call, refusal: errors.PermissionDenied) -> None:
    origin, project = call.origin, call.in_project()
    await refusals.deny(call.site, origin, "authz.deny", origin.route, project, refusal.details)


def _has_role(caller: Caller, project: Project, key: str, roles: Collection[str]) -> bool:
    return authority.can(caller, key, authority.scopes_at(project), holders=roles) == "allowed"


def _roles(declarations: Collection[PermissionSpec]) -> frozenset[str]:
    return frozenset(role for spec in declarations for given in spec.roles for role in _with_higher(given))


def _with_higher(role: PermissionRole) -> tuple[str, ...]:
    """Return the role and all higher roles. Break-glass access holds the permissions of a project admin."""
    if role not in _PEOPLE:
        return (role,)
    above = _PEOPLE[_PEOPLE.index(role) :]
    return (*above, BREAK_GLASS) if "project_admin" in above else above
