"""Make what is asked for: new members on their allocations, and the operation that works on them."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.capacity import Allocation
from gpuaas_contract.catalog import Manifest
from gpuaas_contract.event_types import OperationAccepted
from gpuaas_contract.instances import Instance, Member
from gpuaas_contract.operations import Operation, OperationKind, Progress, Target
from gpuaas_contract.protocol import request as request_rules

from gpuaas_platform.allocations import service as capacity
from gpuaas_platform.call import Call
from gpuaas_platform.instances import changes, store
from gpuaas_platform.kit import db, ids


async def accept(
    tx: db.Tx,
    call: Call,
    instance: Instance,
    manifest: Manifest,
    kind: OperationKind,
    members: Sequence[Member],
    *,
    replacements: Mapping[str, str] | None = None,
    **said: Any,
) -> Operation:
    """`said` is whatever else the request says of the operation: reason, force, versions, action and so on."""
    replacements = replacements or {}
    targets = [
        Target(member_id=member.member_id, allocation_id=replacements.get(member.member_id, "")) for member in members
    ]
    operation = Operation(
        operation_id=ids.new("op"),
        org_id=instance.org_id,
        project_id=instance.project_id,
        instance_id=instance.instance_id,
        instance_name=instance.name,
        app_slug=instance.app_slug,
        kind=kind,
        component_key=said.pop("component_key", ""),
        status="accepted",
        targets=targets,
        steps=[],
        reason=said.pop("reason", ""),
        force=said.pop("force", False),
        requested_by=call.caller.actor_id,
        correlation_id=call.origin.correlation_id,
        attempts=0,
        epoch=0,
        lease=None,
        deadline_at=request_rules.deadline(manifest, kind, call.now, said.get("action", "")),
        error=None,
        revision=1,
        created_at=call.now,
        started_at=None,
        ended_at=None,
        progress=Progress(total=len(targets)),
        operator_service_account_id=instance.operator_service_account_id,
        **said,
    )
    await store.OPERATIONS.insert(tx, operation)
    for member in members:
        owned = msgspec.structs.replace(
            member, last_operation_id=operation.operation_id, correlation_id=operation.correlation_id
        )
        await changes.save_member(tx, call.origin, instance.app_slug, member, owned)
    accepted = OperationAccepted(
        operation_id=operation.operation_id, kind=operation.kind, members=[member.member_id for member in members]
    )
    await changes.tell(tx, call.origin, "apps.operation.accepted", operation, accepted)
    tx.wake(changes.claims_topic(instance.project_id, instance.app_slug))
    return operation


async def new_member(tx: db.Tx, call: Call, instance: Instance, component_key: str, allocation_id: str) -> Member:
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
    """Take an allocation of the project for this instance."""
    allocation = await capacity.in_project(tx, instance.project_id, allocation_id)
    if allocation.status != "active":
        raise errors.Conflict(f"{allocation_id} is {allocation.status}; only an active allocation can carry a member.")
    others = [found for found in allocation.used_by_instance_ids if found != instance.instance_id]
    if others:
        raise errors.Conflict(f"{allocation_id} is used by {others[0]}.", details={"instance_ids": others})
    await capacity.set_used(tx, allocation, instance.instance_id, True)
    return allocation


async def let_go(tx: db.Tx, instance_id: str, project_id: str, allocation_ids: Sequence[str]) -> None:
    """An allocation stays bound to the instance while a live member sits on it or is about to move there."""
    if not allocation_ids:
        return
    used = await store.carrying(tx, instance_id, allocation_ids)
    for operation in await store.active_operations(tx, instance_id):
        used |= {target.allocation_id for target in operation.targets if target.outcome == "pending"}
    for allocation_id in allocation_ids:
        if allocation_id not in used:
            allocation = await capacity.in_project(tx, project_id, allocation_id)
            await capacity.set_used(tx, allocation, instance_id, False)
