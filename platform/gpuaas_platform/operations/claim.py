"""Claim operations and renew their leases."""

import datetime

from gpuaas_contract import errors, event_types, runtime
from gpuaas_contract.operations import Lease, OperationHead, Receipt
from gpuaas_contract.paths import OperationPath, ProjectPath
from gpuaas_contract.protocol import request as request_rules
from msgspec.structs import replace

from gpuaas_platform.call import Call
from gpuaas_platform.catalog import permissions as app_permissions
from gpuaas_platform.catalog import service as catalog
from gpuaas_platform.identity import admission
from gpuaas_platform.instances import events, holds
from gpuaas_platform.instances import service as instances
from gpuaas_platform.kit import clock, db, structs
from gpuaas_platform.operations import controllers, fence, log, read, state, store

_LEASE_CHECK_S = 1.0
"""Interval at which waiting claims read the store again, because an expired lease causes no wake-up."""


async def claim(call: Call[ProjectPath], body: runtime.ClaimOperation) -> runtime.Claim:
    """Claim the next operation of the app. If there is none, wait for one for the time that the caller requested."""
    await catalog.check_app(call.site.database.reader, call.caller, body.app_slug)
    await check_bound(call, body.app_slug)
    await controllers.present(call, body)
    return await call.poll(
        state.claims_topic(call.path.project_id, body.app_slug),
        body.wait_s,
        lambda: _try_claim(call, body),
        lambda claimed: claimed.operation is not None,
        look_every_s=_LEASE_CHECK_S,
        check=lambda: _admitted_again(call, body),
    )


async def heartbeat(tx: db.Tx, call: Call[OperationPath], body: runtime.Heartbeat) -> Receipt:
    """Renew the lease. The revision does not change, so that a heartbeat does not wake watchers of the operation."""
    operation = await fence.check(tx, call, call.path.operation_id, body.epoch)
    if operation.lease is None:
        raise errors.LeaseLost
    expires_at = call.now + datetime.timedelta(seconds=body.lease_s)
    await store.renew(tx, operation.operation_id, clock.micros(expires_at))
    await controllers.note(tx, call, operation.app_slug, operation.lease.holder)
    await log.add(tx, call, operation, body.log)
    return receipt(replace(operation, lease=replace(operation.lease, expires_at=expires_at)))


def receipt(operation: OperationHead) -> Receipt:
    """Return the receipt for a report on an operation that the caller has claimed."""
    if operation.lease is None:
        raise errors.LeaseLost
    return Receipt(
        operation_id=operation.operation_id,
        revision=operation.revision,
        cancel_requested=operation.lease.cancel_requested,
        lease=operation.lease,
    )


async def _try_claim(call: Call[ProjectPath], body: runtime.ClaimOperation) -> runtime.Claim:
    """Read first and write only if there is something to claim, so that waiting controllers cause no transactions."""
    call = replace(call, origin=replace(call.origin, now=call.site.clock()))
    reader = call.site.database.reader
    if not any(await _next(reader, call, body)):
        return runtime.Claim()
    if await call.is_gone():
        return runtime.Claim()  # the controller stopped while it waited: a claim would block the operation for a lease
    admitted = await _admitted_again(call, body)
    return await call.site.database.write(lambda tx: _claim(tx, admitted, body))


async def _admitted_again(call: Call[ProjectPath], body: runtime.ClaimOperation) -> Call[ProjectPath]:
    """Return the call with the account as it is now: it may be revoked, or bound to other apps, while a claim waits."""
    call = replace(call, origin=replace(call.origin, caller=await call.admit_again()))
    await check_bound(call, body.app_slug)
    return call


async def check_bound(call: Call, app_slug: str) -> None:
    """Refuse an account that does not operate the app, and audit the refusal: it may be an attempt at its machines."""
    try:
        request_rules.check_app(app_slug, call.caller)
    except errors.PermissionDenied as refusal:
        await app_permissions.audit_denial(call, refusal)
        raise


async def _next(
    reader: db.Reader, call: Call[ProjectPath], body: runtime.ClaimOperation
) -> tuple[OperationHead | None, OperationHead | None]:
    """Return the operation that an earlier claim with this id got, if its response was lost, and the next operation
    to claim. At most one of the two is set."""
    project_id, actor_id, now = call.path.project_id, call.caller.actor_id, clock.micros(call.now)
    held = await store.held_under(reader, project_id, body.app_slug, body.claim_id, actor_id, now)
    waiting = None if held else await store.claimable(reader, project_id, body.app_slug, actor_id, now)
    return held, waiting


async def _claim(tx: db.Tx, call: Call[ProjectPath], body: runtime.ClaimOperation) -> runtime.Claim:
    await admission.check_works_in(tx, call.caller.actor_id, call.path.project_id)
    held, waiting = await _next(tx, call, body)
    operation = await _take(tx, call, waiting, body) if waiting else held
    if operation is None:
        return runtime.Claim()
    return runtime.Claim(
        operation=await read.whole(tx, operation),
        instance=await instances.get(tx, operation.instance_id),
        members=await instances.live_members(tx, operation.instance_id),
        holds=await holds.standing(tx, operation.instance_id, call.now),
        epoch=operation.epoch,
    )


async def _take(tx: db.Tx, call: Call, waiting: OperationHead, body: runtime.ClaimOperation) -> OperationHead:
    epoch = waiting.epoch + 1
    lease = Lease(
        holder=body.holder,
        claim_id=body.claim_id,
        epoch=epoch,
        expires_at=call.now + datetime.timedelta(seconds=body.lease_s),
        actor_id=call.caller.actor_id,
        cancel_requested=waiting.status == "cancelling",
    )
    taken = replace(
        waiting,
        status="running" if waiting.status == "accepted" else waiting.status,
        epoch=epoch,
        attempts=waiting.attempts + 1,
        started_at=waiting.started_at or call.now,
        lease=lease,
        can_undo=request_rules.can_undo(body.undoes, waiting.kind, waiting.component_key),
    )
    saved = await state.save(tx, waiting, taken)
    payload = structs.pick(event_types.OperationClaimed, saved, holder=body.holder)
    await events.emit(tx, call.origin, "apps.operation.claimed", saved, payload)
    if waiting.status == "accepted" and waiting.kind == "deploy":
        await state.derive_instance(tx, call.origin, await instances.get(tx, saved.instance_id), saved)
    return saved
