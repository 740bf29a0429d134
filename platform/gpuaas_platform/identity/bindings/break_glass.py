"""Temporary access to a project in an emergency: it needs a reason, is announced to the tenant, and expires."""

import datetime

from gpuaas_contract import errors
from gpuaas_contract.bindings import REASON_LENGTH_MIN, BreakGlass, RoleBinding
from gpuaas_contract.event_types import BreakGlassEnded, BreakGlassGranted
from gpuaas_contract.identity import Project
from gpuaas_contract.paths import BindingPath
from gpuaas_contract.permissions import BREAK_GLASS
from gpuaas_contract.wire import NoBody

from gpuaas_platform.call import Call
from gpuaas_platform.identity import orgs, store
from gpuaas_platform.kit import db
from gpuaas_platform.record import service as record


async def take(tx: db.Tx, call: Call, body: BreakGlass) -> RoleBinding:
    """The route's audit row is on the platform's chain; a second row on the organisation's chain informs the tenant."""
    project = await store.PROJECTS.get(tx, body.project_id)
    if project is None:
        project = await orgs.project_named(tx, call.caller, call.now, body.project_id)
    if project is None:
        raise errors.NotFound("There is no such project.")
    if len(body.reason.strip()) < REASON_LENGTH_MIN:
        raise errors.ValidationFailed(
            f"A reason has at least {REASON_LENGTH_MIN} characters.", details={"field": "reason"}
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
    granted = BreakGlassGranted(binding_id=binding_id, user_id=user_id, reason=body.reason, expires_at=expires_at)
    await record.emit(tx, call.origin, "identity.break_glass.granted", granted, project)
    details = {"reason": body.reason, "expires_at": expires_at.isoformat()}
    await record.audit(tx, call.origin, "identity.break_glass.granted", binding_id, project, details=details)
    call.details.update(details, project_id=project.project_id)
    return await _get(tx, call, binding_id)


async def end(tx: db.Tx, call: Call[BindingPath], _: NoBody) -> RoleBinding:
    """Any admin of the platform may end it, not only the one who took it."""
    binding_id = call.path.binding_id
    binding = await _get(tx, call, binding_id)
    project = await store.PROJECTS.get(tx, binding.scope)
    if project is None:
        raise LookupError(binding.scope)
    await store.unbind(tx, binding_id)
    await announce_end(tx, call, project, binding)
    details = {"reason": binding.reason, "user_id": binding.user_id}
    await record.audit(tx, call.origin, "identity.break_glass.ended", binding_id, project, details=details)
    call.details.update(details, project_id=project.project_id)
    return binding


async def announce_end(tx: db.Tx, call: Call, project: Project, binding: RoleBinding) -> None:
    ended_by = call.caller.actor_id
    ended = BreakGlassEnded(binding_id=binding.binding_id, user_id=binding.user_id, ended_by=ended_by)
    await record.emit(tx, call.origin, "identity.break_glass.ended", ended, project)


async def _get(reader: db.Reader, call: Call, binding_id: str) -> RoleBinding:
    binding = await store.binding_of_role(reader, binding_id, BREAK_GLASS, call.now)
    if binding is None:
        raise errors.NotFound("There is no such temporary access; it may have ended already.")
    return binding
