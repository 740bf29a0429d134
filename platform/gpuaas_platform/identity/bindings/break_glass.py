"""Temporary access to a project in an emergency: with a reason, told to those it concerns, over by itself or before."""

import datetime

from gpuaas_contract import errors
from gpuaas_contract.bindings import REASON_LENGTH_MIN, BreakGlass, RoleBinding
from gpuaas_contract.event_types import BreakGlassEnded, BreakGlassGranted
from gpuaas_contract.identity import Project
from gpuaas_contract.permissions import BREAK_GLASS

from gpuaas_platform.call import Call
from gpuaas_platform.identity import orgs, store
from gpuaas_platform.kit import db
from gpuaas_platform.record import service as record


async def take(tx: db.Tx, call: Call, body: BreakGlass) -> RoleBinding:
    """The platform's own chain has the act; a row on the organisation's chain tells the tenant."""
    project = await store.PROJECTS.get(tx, body.project_id)
    if project is None:
        project = await orgs.project_named(tx, call.caller, call.now, body.project_id)
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
    await record.emit(tx, call.origin, "identity.break_glass.granted", told, **_where(project))
    details = {"reason": body.reason, "expires_at": expires_at.isoformat()}
    await record.audit(tx, call.origin, "identity.break_glass.granted", binding_id, details=details, **_where(project))
    call.details.update(details, project_id=project.project_id)
    return await _get(tx, call, binding_id)


async def end(tx: db.Tx, call: Call, binding_id: str) -> RoleBinding:
    """Whoever took it; any other admin of the platform too, for there is no harm in less access."""
    binding = await _get(tx, call, binding_id)
    project = await store.PROJECTS.get(tx, binding.scope)
    if project is None:
        raise LookupError(binding.scope)
    await store.unbind(tx, binding_id)
    await tell_ended(tx, call, project, binding)
    details = {"reason": binding.reason, "user_id": binding.user_id}
    await record.audit(tx, call.origin, "identity.break_glass.ended", binding_id, details=details, **_where(project))
    call.details.update(details, project_id=project.project_id)
    return binding


async def tell_ended(tx: db.Tx, call: Call, project: Project, binding: RoleBinding) -> None:
    ended_by = call.caller.actor_id
    told = BreakGlassEnded(binding_id=binding.binding_id, user_id=binding.user_id, ended_by=ended_by)
    await record.emit(tx, call.origin, "identity.break_glass.ended", told, **_where(project))


async def _get(reader: db.Reader, call: Call, binding_id: str) -> RoleBinding:
    binding = await store.binding_of_role(reader, binding_id, BREAK_GLASS, call.now)
    if binding is None:
        raise errors.NotFound("There is no such temporary access; it may be over already.")
    return binding


def _where(project: Project) -> dict[str, str]:
    return {"org_id": project.org_id, "project_id": project.project_id}
