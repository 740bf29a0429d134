"""The one place that saves an instance, member or operation: bumps its revision, tells the change, wakes watchers."""

import msgspec
from gpuaas_contract.event_types import InstanceChanged, MemberChanged
from gpuaas_contract.instances import Instance, Member
from gpuaas_contract.lifecycles import InstanceStatus
from gpuaas_contract.operations import Operation
from gpuaas_contract.wire import Wire

from gpuaas_platform.call import Origin
from gpuaas_platform.instances import store
from gpuaas_platform.kit import db
from gpuaas_platform.record import service as record


def operation_topic(operation_id: str) -> str:
    return f"operation:{operation_id}"


def claims_topic(project_id: str, app_slug: str) -> str:
    return f"claims:{project_id}:{app_slug}"


async def save_operation(tx: db.Tx, operation: Operation) -> Operation:
    saved = msgspec.structs.replace(operation, revision=operation.revision + 1)
    await store.OPERATIONS.save(tx, saved)
    tx.wake(operation_topic(operation.operation_id))
    return saved


async def save_member(tx: db.Tx, origin: Origin, present: Member, changed: Member) -> Member:
    saved = msgspec.structs.replace(changed, revision=present.revision + 1, updated_at=origin.now)
    await store.MEMBERS.save(tx, saved)
    if saved.status != present.status:
        instance = await store.INSTANCES.get(tx, saved.instance_id)
        await record.emit(
            tx,
            origin,
            "apps.member.changed",
            MemberChanged(
                member_id=saved.member_id,
                component_key=saved.component_key,
                node_name=saved.node_name,
                status=saved.status,
                was=present.status,
                status_reason=saved.status_reason,
                operation_id=saved.last_operation_id,
            ),
            org_id=saved.org_id,
            project_id=saved.project_id,
            app_slug=instance.app_slug if instance else "",
            app_instance_id=saved.instance_id,
            correlation_id=saved.correlation_id,
        )
    return saved


async def set_instance_status(
    tx: db.Tx, origin: Origin, instance: Instance, status: InstanceStatus, reason: str, operation: Operation
) -> Instance:
    saved = msgspec.structs.replace(
        instance,
        status=status,
        status_reason=reason,
        last_operation_id=operation.operation_id,
        revision=instance.revision + 1,
        updated_at=origin.now,
    )
    await store.INSTANCES.save(tx, saved)
    if saved.status != instance.status:
        changed = InstanceChanged(
            operation_id=operation.operation_id,
            kind=operation.kind,
            name=saved.name,
            was=instance.status,
            reason=reason,
        )
        await tell(tx, origin, f"apps.instance.{status}", operation, changed)
    return saved


async def tell(tx: db.Tx, origin: Origin, kind: str, operation: Operation, payload: Wire) -> None:
    """An event of this operation, under the correlation id of the request that asked for it."""
    await record.emit(
        tx,
        origin,
        kind,
        payload,
        org_id=operation.org_id,
        project_id=operation.project_id,
        app_slug=operation.app_slug,
        app_instance_id=operation.instance_id,
        correlation_id=operation.correlation_id,
    )
