"""Permission keys that apps declare: data, held through the roles people have anyway. Actions and `can-i` ask here."""

from gpuaas_contract import errors
from gpuaas_contract.catalog import PermissionRole
from gpuaas_contract.identity import Project
from gpuaas_contract.permissions import BREAK_GLASS, KEYS

from gpuaas_platform.call import Call, Caller
from gpuaas_platform.catalog import manifests, store
from gpuaas_platform.identity import rules as identity_rules
from gpuaas_platform.kit import db
from gpuaas_platform.record import service as record

_PEOPLE: tuple[PermissionRole, ...] = ("viewer", "project_member", "project_admin", "tenant_admin")
"""From the least to the most: what is given to one of them, those after it hold too."""


async def holds(reader: db.Reader, caller: Caller, project: Project, key: str, *, app_slug: str = "") -> bool:
    """Whether a role of the caller that reaches the project holds the key, an app's own or the platform's.

    Apps may share a key. For an action, `app_slug` says whose declaration counts.
    """
    roles = await holders(reader, key, project.project_id, app_slug=app_slug)
    scopes = ["platform", project.org_id, project.project_id]
    return identity_rules.deciding(caller.bindings, roles, scopes) is not None


async def holders(reader: db.Reader, key: str, project_id: str, *, app_slug: str = "") -> frozenset[str]:
    """The roles that hold a key in a project; of an app's key none where the app was never enabled."""
    if key in KEYS:
        return identity_rules.holders(key)
    found = await store.declarations(reader, key, project_id, app_slug)
    return frozenset(role for declared in found for given in declared.roles for role in _with_those_above(given))


def may_be_an_apps(key: str) -> bool:
    """Whether an app could have declared it. Whether one did is nobody's business who is not in the project."""
    return key.partition(".")[0] not in manifests.PLATFORM_AREAS


async def denial(call: Call, permission: str, why: str) -> errors.PermissionDenied:
    """For refusals that the edge cannot decide: on the record like the others, whatever becomes of the call."""
    project = call.in_project()

    async def use_case(tx: db.Tx) -> None:
        await record.audit(
            tx,
            call.origin,
            "authz.deny",
            call.origin.route,
            result="failure",
            org_id=project.org_id,
            project_id=project.project_id,
            details={"permission": permission},
        )

    await call.site.database.write(use_case)
    return errors.PermissionDenied(why, details={"permission": permission})


def _with_those_above(role: PermissionRole) -> tuple[str, ...]:
    """In an emergency an admin of the platform holds what an admin of the project does."""
    if role not in _PEOPLE:
        return (role,)
    above = _PEOPLE[_PEOPLE.index(role) :]
    return (*above, BREAK_GLASS) if "project_admin" in above else above
