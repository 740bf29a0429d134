"""Save an operation's new state: check the transition, raise the revision, wake the callers that wait for a change."""

from collections.abc import Sequence
from typing import TypeVar

from gpuaas_contract import lifecycles
from gpuaas_contract.instances import Condition, Instance
from gpuaas_contract.operations import Operation, OperationHead, Target
from msgspec.structs import replace

from gpuaas_platform.call import Origin
from gpuaas_platform.instances import status
from gpuaas_platform.kit import db
from gpuaas_platform.operations import store

Head = TypeVar("Head", bound=OperationHead)


def topic(operation_id: str) -> str:
    """Return the topic that every change of the operation wakes."""
    return f"operation:{operation_id}"


def claims_topic(project_id: str, app_slug: str) -> str:
    """Return the topic that is woken when an operation of the app can be claimed."""
    return f"claims:{project_id}:{app_slug}"


async def save(tx: db.Tx, present: OperationHead, changed: Head) -> Head:
    """Save the operation without its targets and steps."""
    lifecycles.check_move(f"operation {present.operation_id}", lifecycles.OPERATION, present.status, changed.status)
    saved = replace(changed, revision=present.revision + 1)
    await store.save(tx, saved)
    tx.wake(topic(saved.operation_id))
    return saved


async def save_targets(tx: db.Tx, operation: Operation, targets: Sequence[Target]) -> Operation:
    """Save the targets that differ from those in `operation`."""
    before = {target.member_id: target for target in operation.targets}
    for target in targets:
        if target != before[target.member_id]:
            await store.save_target(tx, operation.operation_id, target)
    return replace(operation, targets=list(targets), progress=store.progress(targets))


async def advance(tx: db.Tx, present: Head) -> Head:
    """Raise the revision of an operation when only one of its targets or steps changes."""
    advanced = replace(present, revision=present.revision + 1)
    await store.advance(tx, advanced)
    tx.wake(topic(advanced.operation_id))
    return advanced


async def derive_instance(
    tx: db.Tx,
    origin: Origin,
    instance: Instance,
    operation: OperationHead | None,
    conditions: Sequence[Condition] = (),
    *,
    changed: Instance | None = None,
) -> Instance:
    """Derive the instance's status again, with its running operation; `operation` is the cause, if there is one."""
    active = await store.active_kind(tx, instance.instance_id)
    return await status.derive(tx, origin, instance, active, operation, conditions, changed)
