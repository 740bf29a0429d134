"""Permission keys that apps declare. They are data, held through the roles that people have anyway."""

from gpuaas_contract import errors
from gpuaas_contract.catalog import PermissionRole
from gpuaas_contract.identity import Project
from gpuaas_contract.permissions import BREAK_GLASS, KEYS
from gpuaas_contract.policy import CanI, CanIAnswer

from gpuaas_platform.call import Call, Caller
from gpuaas_platform.catalog import manifests, store
from gpuaas_platform.identity import authority
from gpuaas_platform.identity import rules as identity_rules
from gpuaas_platform.kit import db
from gpuaas_platform.policy import service as policy
from gpuaas_platform.record import service as record

_PEOPLE: tuple[PermissionRole, ...] = ("viewer", "project_member", "project_admin", "tenant_admin")
"""From the lowest to the highest: a permission of one of them is held by those after it too."""


async def holds(reader: db.Reader, caller: Caller, project: Project, key: str, *, app_slug: str = "") -> bool:
    """Whether a role of the caller that reaches the project holds the key, an app's own or the platform's.

    Several apps may declare the same key. For an action, `app_slug` is the app whose declaration counts."""
    roles = await holders(reader, key, project.project_id, app_slug=app_slug)
    return authority.can(caller, key, authority.of_project(project), holders=roles) == "allowed"


async def holders(reader: db.Reader, key: str, project_id: str, *, app_slug: str = "") -> frozenset[str]:
    """The roles that hold a key in a project; none for a key of an app that was never enabled there."""
    if key in KEYS:
        return identity_rules.holders(key)
    declarations = await store.declarations(reader, key, project_id, app_slug)
    return frozenset(role for spec in declarations for given in spec.roles for role in _with_higher(given))


async def can_i(call: Call, body: CanI) -> CanIAnswer:
    """Outside a project the keys of apps are not disclosed: each is answered as not held, declared or not."""
    reader = call.site.database.reader
    if body.permission not in KEYS and not (body.project_id and _may_be_declared(body.permission)):
        raise errors.ValidationFailed(
            f"There is no permission {body.permission}.",
            details={"field": "permission"},
            fix="GET /api/v1/me shows your roles; for a permission of an app, name the project too.",
        )
    roles = await holders(reader, body.permission, body.project_id, app_slug=body.app)
    return await policy.can_i(reader, call, body, roles)


def _may_be_declared(key: str) -> bool:
    """Whether an app could declare the key."""
    return key.partition(".")[0] not in manifests.PLATFORM_AREAS


async def denial(call: Call, permission: str, why: str) -> errors.PermissionDenied:
    """The error for a refusal that the edge cannot decide. It is audited like the others, also in a dry run."""
    project, details = call.in_project(), {"permission": permission}

    async def use_case(tx: db.Tx) -> None:
        await record.audit(tx, call.origin, "authz.deny", call.origin.route, project, result="failure", details=details)

    await call.site.database.write(use_case)
    return errors.PermissionDenied(why, details=details)


def _with_higher(role: PermissionRole) -> tuple[str, ...]:
    """The role and all higher ones; break-glass access holds what a project admin does."""
    if role not in _PEOPLE:
        return (role,)
    above = _PEOPLE[_PEOPLE.index(role) :]
    return (*above, BREAK_GLASS) if "project_admin" in above else above
