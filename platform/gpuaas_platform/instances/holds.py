"""Place and lift holds. A hold expires; before that, only its owner can lift it."""

import datetime

import msgspec
from gpuaas_contract import errors, lifecycles
from gpuaas_contract.event_types import HoldChanged
from gpuaas_contract.holds import Hold, PlaceHold
from gpuaas_contract.paths import HoldPath, InstancePath, MemberPath
from gpuaas_contract.wire import NoBody, PageQuery

from gpuaas_platform.call import Call
from gpuaas_platform.instances import events, service, store
from gpuaas_platform.kit import db, ids, names, paging, structs
from gpuaas_platform.kit.paging import EncodedPage

standing = store.standing_holds


async def place(tx: db.Tx, call: Call[MemberPath], body: PlaceHold) -> Hold:
    instance = await service.named(tx, call)
    member = await service.member_in(tx, instance, call.path.member_id)
    if member.status in lifecycles.GONE_MEMBER:
        raise errors.Conflict(f"Member {member.member_id} is {member.status}.")
    hold = Hold(
        hold_id=ids.new("hold"),
        instance_id=instance.instance_id,
        org_id=instance.org_id,
        project_id=instance.project_id,
        member_id=member.member_id,
        name=body.name,
        kind=body.kind,
        reason=body.reason,
        owner=call.caller.actor_id,
        expires_at=call.now + datetime.timedelta(seconds=body.ttl_s),
        created_at=call.now,
    )
    await store.HOLDS.insert(tx, hold)
    await events.emit(tx, call.origin, "apps.hold.placed", instance, structs.pick(HoldChanged, hold))
    return hold


async def page(reader: db.Reader, call: Call[InstancePath, PageQuery]) -> EncodedPage[Hold]:
    instance = await service.named(reader, call)
    return await paging.encoded(reader, store.HOLDS, call.query, "instance_id = $1", instance.instance_id)


async def lift(tx: db.Tx, call: Call[HoldPath], _: NoBody) -> Hold:
    """Lift the hold that the path names by id or, if it has not ended, by name."""
    instance, hold_id = await service.named(tx, call), call.path.hold_id
    hold = await store.HOLDS.get(tx, hold_id)
    if hold is None:
        present = await standing(tx, instance.instance_id, call.now)
        hold = names.only([hold for hold in present if hold.name == hold_id], hold_id, lambda hold: hold.hold_id)
    if hold is None or hold.instance_id != instance.instance_id:
        raise errors.NotFound(f"There is no hold {hold_id} in this instance.")
    if hold.owner != call.caller.actor_id:
        raise errors.PermissionDenied(
            f"Only its owner, {hold.owner}, can lift the hold. It expires at {hold.expires_at:%Y-%m-%d %H:%M} UTC.",
            details={"owner": hold.owner, "expires_at": hold.expires_at.isoformat()},
            fix="Ask the owner, wait, or operate with force and a reason.",
        )
    if hold.lifted_at is not None or hold.expires_at <= call.now:
        return hold
    lifted = msgspec.structs.replace(hold, lifted_at=call.now)
    await store.HOLDS.save(tx, lifted)
    await events.emit(tx, call.origin, "apps.hold.lifted", instance, structs.pick(HoldChanged, lifted))
    return lifted
