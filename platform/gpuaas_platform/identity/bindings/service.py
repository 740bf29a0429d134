"""Create and delete role bindings at the platform, for an app, in an organisation or a project.

Break-glass is temporary access to a project in an emergency. It needs a reason, is reported to the tenant, and
expires."""

import datetime
import functools

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.bindings import REASON_LENGTH_MIN, BindRole, BreakGlass, RoleBinding
from gpuaas_contract.catalog import Slug
from gpuaas_contract.event_types import AppBindingChanged, BreakGlassEnded, BreakGlassGranted
from gpuaas_contract.identity import Project
from gpuaas_contract.paths import AppBindingPath, AppPath, BindingPath, OrgBindingPath, Path, ProjectBindingPath
from gpuaas_contract.permissions import BREAK_GLASS, GRANTABLE
from gpuaas_contract.wire import NoBody, Page, PageQuery

from gpuaas_platform.call import PLATFORM, Call
from gpuaas_platform.identity import authority, orgs, rules, store
from gpuaas_platform.identity.posix import service as posix
from gpuaas_platform.identity.users import service as users
from gpuaas_platform.kit import db, paging, structs
from gpuaas_platform.record import service as record

_LEVELS: tuple[rules.Level, ...] = ("platform", "org", "project")
"""The level of each scope of a platform, an organisation or a project, in the same order."""


BindingCall = Call[BindingPath] | Call[AppBindingPath] | Call[OrgBindingPath] | Call[ProjectBindingPath]
"""A request about one role binding at any level."""


async def create(tx: db.Tx, call: Call, body: BindRole) -> RoleBinding:
    (level, scopes), caller = _target(call), call.caller
    scope = scopes[-1]
    user_id = await users.id_of(tx, call, body.user_id)
    refusal = rules.why_not_grant(caller.bindings, body.role, level, scopes, to_self=user_id == caller.actor_id)
    if refusal and body.role not in GRANTABLE[level]:
        raise errors.ValidationFailed(refusal, details={"field": "role"})
    if refusal:
        raise errors.PermissionDenied(refusal, details={"role": body.role})
    if await store.holds(tx, user_id, body.role, scope):
        name = (await users.named(tx, user_id)).name
        raise errors.Conflict(f"{name} already has the role {body.role} here.")
    binding_id = await store.bind(tx, user_id, body.role, scope, created_by=caller.actor_id, now=call.now)
    if call.owner.org_id:
        await posix.ensure(tx, call.site.settings, call.owner.org_id, user_id, call.now)
    call.details.update(user_id=user_id, role=body.role)
    binding = await _at(tx, call, scope, binding_id)
    await _announce(tx, call, binding, granted=True)
    return binding


async def list_bindings(reader: db.Reader, call: Call[Path, PageQuery]) -> Page[RoleBinding]:
    read = functools.partial(store.bindings_at, reader, _target(call)[1][-1], call.now)
    return await paging.page("bindings", call.query, read, lambda binding: binding.binding_id)


async def delete(tx: db.Tx, call: BindingCall, _: NoBody) -> RoleBinding:
    scope, binding_id = _target(call)[1][-1], call.path.binding_id
    binding = await _at(tx, call, scope, binding_id)
    role, user_id = binding.role, binding.user_id
    if role in rules.ALWAYS_HELD and not await store.others_holding(tx, role, scope, apart_from=user_id):
        raise errors.Conflict(
            f"This is the last {role} here; without one, no one could give roles any more.",
            fix=f"Give another user the role first: gpuaas binding grant USER {role}",
        )
    await store.unbind(tx, binding_id)
    tx.wake(posix.TOPIC)
    if role == BREAK_GLASS:
        await _announce_end(tx, call, call.in_project(), binding)
    await _announce(tx, call, binding, granted=False)
    call.details.update(user_id=user_id, role=role)
    return binding


async def take_break_glass(tx: db.Tx, call: Call, body: BreakGlass) -> RoleBinding:
    """Give the caller break-glass access. Two audit rows: on the platform's chain and, for the tenant, on the org's."""
    project = await orgs.find_project(tx, call, body.project_id)
    if project is None:
        raise errors.NotFound("There is no project with this id or name.")
    if len(body.reason.strip()) < REASON_LENGTH_MIN:
        raise errors.ValidationFailed(
            f"A reason has at least {REASON_LENGTH_MIN} characters.", details={"field": "reason"}
        )
    user_id = call.caller.actor_id
    expires_at = call.now + datetime.timedelta(minutes=body.minutes)
    scope, reason = project.project_id, body.reason
    binding_id = await store.bind(
        tx, user_id, BREAK_GLASS, scope, created_by=user_id, now=call.now, expires_at=expires_at, reason=reason
    )
    await posix.ensure(tx, call.site.settings, project.org_id, user_id, call.now)
    granted = BreakGlassGranted(binding_id=binding_id, user_id=user_id, reason=reason, expires_at=expires_at)
    await record.emit(tx, call.origin, "identity.break_glass.granted", granted, project)
    details = {"reason": reason, "expires_at": expires_at.isoformat()}
    await record.audit(tx, call.origin, "identity.break_glass.granted", binding_id, project, details=details)
    call.details.update(details, project_id=project.project_id)
    return await _break_glass(tx, call, binding_id)


async def end_break_glass(tx: db.Tx, call: Call[BindingPath], _: NoBody) -> RoleBinding:
    """End a break-glass access. Any platform admin may end it, not only the one who has the access."""
    binding_id = call.path.binding_id
    binding = await _break_glass(tx, call, binding_id)
    project = await store.PROJECTS.get(tx, binding.scope)
    if project is None:
        raise LookupError(binding.scope)
    await store.unbind(tx, binding_id)
    tx.wake(posix.TOPIC)
    await _announce_end(tx, call, project, binding)
    details = {"reason": binding.reason, "user_id": binding.user_id}
    await record.audit(tx, call.origin, "identity.break_glass.ended", binding_id, project, details=details)
    call.details.update(details, project_id=project.project_id)
    return binding


def _target(call: Call) -> tuple[rules.Level, authority.Scopes]:
    """Return the level and the scopes of the path. Refuse a slug that no app can have."""
    if not isinstance(call.path, AppPath):
        scopes = authority.scopes_at(call.owner)
        return _LEVELS[len(scopes) - 1], scopes
    try:
        msgspec.convert(call.path.app_slug, Slug)
    except msgspec.ValidationError as error:
        raise errors.ValidationFailed(f"No app can have this slug: {error}.", details={"field": "app_slug"}) from error
    return "app", authority.scopes_of(app_slug=call.path.app_slug)


async def _announce(tx: db.Tx, call: Call, binding: RoleBinding, *, granted: bool) -> None:
    """Emit the event of a changed role for an app. Other roles have audit rows only."""
    if isinstance(call.path, AppPath):
        slug = call.path.app_slug
        payload = structs.pick(AppBindingChanged, binding, app_slug=slug, granted=granted)
        await record.emit(tx, call.origin, "identity.app_binding.changed", payload, PLATFORM, app_slug=slug)


async def _announce_end(tx: db.Tx, call: Call, project: Project, binding: RoleBinding) -> None:
    ended = structs.pick(BreakGlassEnded, binding, ended_by=call.caller.actor_id)
    await record.emit(tx, call.origin, "identity.break_glass.ended", ended, project)


async def _at(reader: db.Reader, call: Call, scope: str, binding_id: str) -> RoleBinding:
    binding = await store.binding(reader, binding_id, call.now)
    if binding is None or binding.scope != scope:
        raise errors.NotFound("There is no role binding with this id here.")
    return binding


async def _break_glass(reader: db.Reader, call: Call, binding_id: str) -> RoleBinding:
    binding = await store.binding(reader, binding_id, call.now)
    if binding is None or binding.role != BREAK_GLASS:
        raise errors.NotFound("There is no temporary access with this id; it may have ended already.")
    return binding
