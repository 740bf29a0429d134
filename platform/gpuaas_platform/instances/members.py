"""Create members, bind them to allocations, save their changes, and unbind allocations without members."""

from collections.abc import Collection, Sequence

from gpuaas_contract import errors, lifecycles
from gpuaas_contract.capacity import Allocation
from gpuaas_contract.event_types import MemberChanged
from gpuaas_contract.instances import Instance, Member
from msgspec.structs import replace

from gpuaas_platform.allocations import service as allocations
from gpuaas_platform.call import Call, Origin
from gpuaas_platform.instances import store
from gpuaas_platform.kit import db, ids, structs
from gpuaas_platform.record import service as record


async def new(tx: db.Tx, call: Call, instance: Instance, component_key: str, allocation_id: str) -> Member:
    """Insert a member of the role on the allocation, and bind the allocation to the instance."""
    allocation = await bind(tx, instance, allocation_id)
    member = Member(
        member_id=ids.new("mem"),
        instance_id=instance.instance_id,
        org_id=instance.org_id,
        project_id=instance.project_id,
        component_key=component_key,
        status="requested",
        status_reason="",
        allocation_id=allocation_id,
        node_id=allocation.node_id,
        node_name=allocation.node_name,
        address=allocation.address,
        last_operation_id="",
        correlation_id=call.origin.correlation_id,
        adapter_detail={},
        observed_version="",
        was_ready=False,
        revision=1,
        created_at=call.now,
        updated_at=call.now,
    )
    await store.MEMBERS.insert(tx, member)
    return member


async def bind(tx: db.Tx, instance: Instance, allocation_id: str) -> Allocation:
    """Bind an allocation of the project to the instance. Refuse it if it is not active or another instance uses it."""
    allocation = await allocations.in_project(tx, instance.project_id, allocation_id)
    if allocation.status != "active":
        raise errors.Conflict(f"{allocation_id} is {allocation.status}; only an active allocation can carry a member.")
    others = [other for other in allocation.used_by_instance_ids if other != instance.instance_id]
    if others:
        user = await store.INSTANCES.get(tx, others[0])
        name = f"the instance {user.name} ({others[0]})" if user else others[0]
        raise errors.Conflict(
            f"{allocation.node_name} ({allocation_id}) is used by {name}.",
            fix="Choose a machine that no instance uses: gpuaas get allocations",
            details={"instance_ids": others},
        )
    await allocations.set_used(tx, allocation, instance.instance_id, True)
    return allocation


async def release(
    tx: db.Tx, instance_id: str, project_id: str, allocation_ids: Sequence[str], *, kept: Collection[str]
) -> None:
    """Unbind the allocations without a live member of the instance, except those in `kept`: members will move there."""
    if not allocation_ids:
        return
    used = await store.carrying(tx, instance_id, allocation_ids)
    for allocation_id in allocation_ids:
        if allocation_id not in used and allocation_id not in kept:
            allocation = await allocations.in_project(tx, project_id, allocation_id)
            await allocations.set_used(tx, allocation, instance_id, False)


async def moved(tx: db.Tx, member: Member, allocation_id: str) -> Member:
    """Return the member, moved to another allocation. It keeps its id and counts as not ready there yet."""
    allocation = await allocations.in_project(tx, member.project_id, allocation_id)
    return replace(
        member,
        allocation_id=allocation.allocation_id,
        node_id=allocation.node_id,
        node_name=allocation.node_name,
        address=allocation.address,
        was_ready=False,
    )


async def save(tx: db.Tx, origin: Origin, app_slug: str, present: Member, changed: Member) -> Member:
    """Save a member with the next revision. Emit an event if its status changed."""
    lifecycles.check_move(f"member {present.member_id}", lifecycles.MEMBER, present.status, changed.status)
    was_ready = changed.was_ready or changed.status in lifecycles.SERVING_MEMBER
    saved = replace(changed, was_ready=was_ready, revision=present.revision + 1, updated_at=origin.now)
    await store.MEMBERS.save(tx, saved)
    if saved.status != present.status:
        payload = structs.pick(MemberChanged, saved, was=present.status, operation_id=saved.last_operation_id)
        await record.emit(
            tx,
            origin,
            "apps.member.changed",
            payload,
            saved,
            app_slug=app_slug,
            app_instance_id=saved.instance_id,
            correlation_id=saved.correlation_id,
        )
    return saved
