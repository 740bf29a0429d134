"""Give and take roles at the platform, an organisation or a project; take temporary access in an emergency."""

import datetime
from dataclasses import dataclass

from gpuaas_contract import errors
from gpuaas_contract.bindings import REASON_LENGTH_MIN, BindRole, BreakGlass, RoleBinding
from gpuaas_contract.event_types import BreakGlassGranted
from gpuaas_contract.permissions import BREAK_GLASS, GRANTABLE

from gpuaas_platform.call import Call
from gpuaas_platform.identity import rules, store
from gpuaas_platform.kit import db
from gpuaas_platform.record import service as record


@dataclass(frozen=True)
class Place:
    """Where a role is bound, and the chain of scopes above and including it."""

    level: rules.Level
    scopes: tuple[str, ...]

    @property
    def scope(self) -> str:
        return self.scopes[-1]


def place_of(call: Call) -> Place:
    if call.project is not None:
        return Place("project", ("platform", call.project.org_id, call.project.project_id))
    if "org_id" in call.params:
        return Place("org", ("platform", call.params["org_id"]))
    return Place("platform", ("platform",))


async def create(tx: db.Tx, call: Call, body: BindRole) -> RoleBinding:
    place, caller = place_of(call), call.caller
    user = await store.user(tx, body.user_id)
    if user is None:
        raise errors.ValidationFailed("There is no person with this id.", details={"field": "user_id"})
    refusal = rules.why_not_grant(
        caller.bindings, body.role, place.level, place.scopes, to_self=body.user_id == caller.actor_id
    )
    if refusal and body.role not in GRANTABLE[place.level]:
        raise errors.ValidationFailed(refusal, details={"field": "role"})
    if refusal:
        raise errors.PermissionDenied(refusal, details={"role": body.role})
    if await store.holds(tx, body.user_id, body.role, place.scope):
        raise errors.Conflict(f"{user['name']} has the role {body.role} here already.")
    binding_id = await store.bind(tx, body.user_id, body.role, place.scope, created_by=caller.actor_id, now=call.now)
    call.details.update(user_id=body.user_id, role=body.role)
    return await _get(tx, call, binding_id, place.scope)


async def delete(tx: db.Tx, call: Call, binding_id: str) -> RoleBinding:
    place = place_of(call)
    binding = await _get(tx, call, binding_id, place.scope)
    if binding.role in rules.ALWAYS_HELD and not await store.others_holding(
        tx, binding.role, place.scope, apart_from=binding.user_id
    ):
        raise errors.Conflict(f"This is the last {binding.role} here.", fix="Give somebody else the role first.")
    await store.unbind(tx, binding_id)
    call.details.update(user_id=binding.user_id, role=binding.role)
    return binding


async def break_glass(tx: db.Tx, call: Call, body: BreakGlass) -> RoleBinding:
    """Temporary, for one project, and seen by those it concerns: on their audit trail and among their events."""
    project = await store.PROJECTS.get(tx, body.project_id)
    if project is None:
        raise errors.NotFound("There is no such project.")
    if len(body.reason.strip()) < REASON_LENGTH_MIN:
        raise errors.ValidationFailed(
            f"A reason has {REASON_LENGTH_MIN} characters at least.", details={"field": "reason"}
        )
    user_id = call.caller.actor_id
    expires_at = call.now + datetime.timedelta(minutes=body.minutes)
    binding_id = await store.bind(
        tx,
        user_id,
        BREAK_GLASS,
        project.project_id,
        created_by=user_id,
        now=call.now,
        expires_at=expires_at,
        reason=body.reason,
    )
    told = BreakGlassGranted(binding_id=binding_id, user_id=user_id, reason=body.reason, expires_at=expires_at)
    where = {"org_id": project.org_id, "project_id": project.project_id}
    await record.emit(tx, call.origin, "identity.break_glass.granted", told, **where)
    details = {"reason": body.reason, "expires_at": expires_at.isoformat()}
    await record.audit(tx, call.origin, "identity.break_glass.granted", binding_id, details=details, **where)
    call.details.update(details, project_id=project.project_id)
    return await _get(tx, call, binding_id, project.project_id)


async def _get(reader: db.Reader, call: Call, binding_id: str, scope: str) -> RoleBinding:
    binding = await store.binding(reader, binding_id, scope, call.now)
    if binding is None:
        raise errors.NotFound("There is no such binding here.")
    return binding
