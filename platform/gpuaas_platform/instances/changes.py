"""The one place that saves an instance, member or operation: bumps its revision, tells the change, wakes watchers."""

from collections.abc import Sequence

import msgspec
from gpuaas_contract import lifecycles
from gpuaas_contract.event_types import ConditionChanged, InstanceChanged, MemberChanged
from gpuaas_contract.instances import Condition, Instance, Member
from gpuaas_contract.operations import INSTANCE_KINDS, Operation, OperationKind, Progress
from gpuaas_contract.protocol import status as status_rules
from gpuaas_contract.wire import Wire

from gpuaas_platform.call import Origin
from gpuaas_platform.instances import store
from gpuaas_platform.kit import db
from gpuaas_platform.record import service as record

replace = msgspec.structs.replace


def operation_topic(operation_id: str) -> str:
    return f"operation:{operation_id}"


def claims_topic(project_id: str, app_slug: str) -> str:
    return f"claims:{project_id}:{app_slug}"


async def save_operation(tx: db.Tx, operation: Operation) -> Operation:
    done = sum(target.outcome != "pending" for target in operation.targets)
    progress = Progress(done=done, total=len(operation.targets))
    saved = replace(operation, revision=operation.revision + 1, progress=progress)
    await store.OPERATIONS.save(tx, saved)
    tx.wake(operation_topic(operation.operation_id))
    return saved


async def save_member(tx: db.Tx, origin: Origin, app_slug: str, present: Member, changed: Member) -> Member:
    was_ready = changed.was_ready or changed.status in lifecycles.SERVING_MEMBER
    saved = replace(changed, was_ready=was_ready, revision=present.revision + 1, updated_at=origin.now)
    await store.MEMBERS.save(tx, saved)
    if saved.status != present.status:
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
            app_slug=app_slug,
            app_instance_id=saved.instance_id,
            correlation_id=saved.correlation_id,
        )
    return saved


async def settle_instance(
    tx: db.Tx,
    origin: Origin,
    instance: Instance,
    operation: Operation | None,
    conditions: Sequence[Condition] = (),
    *,
    left: Instance | None = None,
) -> Instance:
    """Derive the instance's status anew from its members, conditions and whatever works on it, and tell what changed.

    `operation` is the cause, if there is one; `left` is the instance as that left it, where more than the status
    changed. Saves nothing when nothing is new."""
    merged = status_rules.merged(instance.conditions, conditions)
    changed = replace(left or instance, conditions=merged)
    counts = await store.member_counts(tx, instance.instance_id)
    active = await _active_kind(tx, instance.instance_id)
    status = status_rules.instance_status(changed, active, counts, merged)
    changed = replace(
        changed,
        status=status,
        status_reason=status_rules.status_reason(changed, status, counts),
        last_operation_id=operation.operation_id if operation else instance.last_operation_id,
    )
    if changed == instance:
        return instance
    saved = replace(changed, revision=instance.revision + 1, updated_at=origin.now)
    await store.INSTANCES.save(tx, saved)
    correlation_id = operation.correlation_id if operation else origin.correlation_id
    if saved.status != instance.status:
        told = InstanceChanged(
            operation_id=saved.last_operation_id,
            kind=operation.kind if operation else None,
            name=saved.name,
            was=instance.status,
            reason=saved.status_reason,
        )
        await _tell_of(tx, origin, f"apps.instance.{saved.status}", saved, told, correlation_id)
    before = {condition.type: condition.status for condition in instance.conditions}
    for condition in merged:
        if before.get(condition.type) != condition.status:
            said = ConditionChanged(
                type=condition.type,
                status=condition.status,
                was=before.get(condition.type, ""),
                reason=condition.reason,
                message=condition.message,
            )
            await _tell_of(tx, origin, "apps.condition.changed", saved, said, correlation_id)
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


async def tell_instance(tx: db.Tx, origin: Origin, kind: str, instance: Instance, payload: Wire) -> None:
    """An event of this instance that no operation caused."""
    await _tell_of(tx, origin, kind, instance, payload, origin.correlation_id)


async def _tell_of(
    tx: db.Tx, origin: Origin, kind: str, instance: Instance, payload: Wire, correlation_id: str
) -> None:
    await record.emit(
        tx,
        origin,
        kind,
        payload,
        org_id=instance.org_id,
        project_id=instance.project_id,
        app_slug=instance.app_slug,
        app_instance_id=instance.instance_id,
        correlation_id=correlation_id,
    )


async def _active_kind(reader: db.Reader, instance_id: str) -> OperationKind | None:
    """The operation on the whole instance. A deploy counts once somebody has taken it up."""
    for operation in await store.active_operations(reader, instance_id):
        if operation.kind in INSTANCE_KINDS and (operation.kind != "deploy" or operation.status != "accepted"):
            return operation.kind
    return None
