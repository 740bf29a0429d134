"""Derive an instance's status, save it, and emit events for changes."""

from collections.abc import Sequence

from gpuaas_contract import lifecycles
from gpuaas_contract.event_types import ConditionChanged, InstanceChanged
from gpuaas_contract.instances import Condition, Instance
from gpuaas_contract.operations import OperationHead, OperationKind
from gpuaas_contract.protocol import status as status_rules
from msgspec.structs import replace

from gpuaas_platform.call import Origin
from gpuaas_platform.instances import events, stewardships, store
from gpuaas_platform.kit import db, structs

DELETED_TOPIC = "instances-deleted"
"""Woken when an instance becomes deleted, so that its secrets are ended."""


async def derive(
    tx: db.Tx,
    origin: Origin,
    instance: Instance,
    active: OperationKind | None,
    operation: OperationHead | None,
    conditions: Sequence[Condition],
    changed: Instance | None,
) -> Instance:
    """Derive the status from the members, the conditions and the kind of the active operation on the whole instance.

    `operation` is the cause of the change, if there is one. `changed` is the instance with other new values, which are
    saved together with the status. If nothing changed, nothing is written."""
    merged = status_rules.merged(instance.conditions, conditions)
    wanted = replace(changed or instance, conditions=merged)
    counts = await store.unsound_members(tx, instance.instance_id)
    status = status_rules.instance_status(wanted, active, counts, merged)
    wanted = replace(
        wanted,
        status=status,
        status_reason=status_rules.status_reason(wanted, status, counts),
        last_operation_id=operation.operation_id if operation else instance.last_operation_id,
    )
    if wanted == instance:
        return instance
    lifecycles.check_move(f"instance {instance.instance_id}", lifecycles.INSTANCE, instance.status, status)
    saved = replace(wanted, revision=instance.revision + 1, updated_at=origin.now)
    await store.INSTANCES.change(tx, instance, saved)
    await _emit_changes(tx, origin, instance, saved, operation)
    if saved.status == "deleted":
        await stewardships.forget(tx, instance.instance_id)
        tx.wake(DELETED_TOPIC)
    return saved


async def _emit_changes(
    tx: db.Tx, origin: Origin, before: Instance, saved: Instance, operation: OperationHead | None
) -> None:
    if saved.status != before.status:
        payload = InstanceChanged(
            operation_id=saved.last_operation_id,
            kind=operation.kind if operation else None,
            name=saved.name,
            was=before.status,
            reason=saved.status_reason,
        )
        await events.emit(tx, origin, f"apps.instance.{saved.status}", saved, payload, operation)
    status_before = {condition.type: condition.status for condition in before.conditions}
    for condition in saved.conditions:
        was = status_before.get(condition.type, "")
        if was != condition.status:
            changed = structs.pick(ConditionChanged, condition, was=was)
            await events.emit(tx, origin, "apps.condition.changed", saved, changed, operation)
