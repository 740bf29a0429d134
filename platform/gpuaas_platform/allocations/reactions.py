"""Change an allocation when one of its tasks ends, or when its node gets a new address or is reinstalled."""

import msgspec
from gpuaas_contract.node import TaskResult

from gpuaas_platform.allocations import release, rules, service, store
from gpuaas_platform.allocations.facts import MachinePrepared
from gpuaas_platform.allocations.keys import service as keys
from gpuaas_platform.allocations.people import reconcile as people_reconcile
from gpuaas_platform.allocations.people import service as people
from gpuaas_platform.kit import db
from gpuaas_platform.kit.reactions import Reactions
from gpuaas_platform.nodes import service as nodes
from gpuaas_platform.nodes.facts import NodeMoved, NodeReinstalled, TaskEnded

reactions = Reactions()


@reactions.to(TaskEnded, service.PROVISION_TASK)
async def provision_ended(tx: db.Tx, ended: TaskEnded) -> None:
    allocation = await store.ALLOCATIONS.get(tx, ended.subject_id)
    if allocation is None:
        return
    was_reinstalled = allocation.provision_retry_at is not None
    after = rules.with_observer(allocation, ended.result)
    after = rules.provisioned(after, _error(ended.result), ended.origin.now)
    after = await service.save(tx, ended.origin, allocation, after)
    tx.wake(people_reconcile.TOPIC)
    if was_reinstalled and after.status == "active":
        await ended.site.reactions.react(tx, MachinePrepared(ended.origin, after))


@reactions.to(TaskEnded, release.TASK)
async def release_ended(tx: db.Tx, ended: TaskEnded) -> None:
    allocation = await store.ALLOCATIONS.get(tx, ended.subject_id)
    if allocation is None:
        return
    now = ended.origin.now
    after = rules.cleaned(allocation, _error(ended.result), rules.evidence(ended.result, now), now)
    await service.save(tx, ended.origin, allocation, after)
    if after.status == "released":
        await nodes.unassign(tx, after.node_id, after.allocation_id, now)


@reactions.to(TaskEnded, keys.TASK)
async def keys_ended(tx: db.Tx, ended: TaskEnded) -> None:
    allocation = await store.ALLOCATIONS.get(tx, ended.subject_id)
    if allocation is not None:
        await keys.installation_ended(tx, ended.origin, allocation, ended.task_id, _error(ended.result))


@reactions.to(TaskEnded, people.TASK)
async def people_ended(tx: db.Tx, ended: TaskEnded) -> None:
    allocation = await store.ALLOCATIONS.get(tx, ended.subject_id)
    if allocation is not None:
        await people.installation_ended(tx, ended.origin, allocation, ended.task_id, ended.result)


@reactions.to(NodeMoved)
async def node_moved(tx: db.Tx, moved: NodeMoved) -> None:
    """Save the node's new address in its allocation."""
    allocation = await store.ALLOCATIONS.get(tx, moved.node.allocation_id or "")
    if allocation is not None:
        await store.ALLOCATIONS.save(tx, msgspec.structs.replace(allocation, address=moved.node.address))


@reactions.to(NodeReinstalled)
async def node_reinstalled(tx: db.Tx, reinstalled: NodeReinstalled) -> None:
    """Prepare the machine again: its disk is empty, so the allocation's Unix user, SSH trust and keys are missing."""
    allocation = await store.ALLOCATIONS.get(tx, reinstalled.node.allocation_id or "")
    if allocation is None or allocation.status != "active":
        return
    origin = reinstalled.origin
    await service.save(tx, origin, allocation, rules.reinstalled(allocation, origin.now))
    await keys.forget_installed(tx, allocation.allocation_id)
    await people.forget_installed(tx, allocation.allocation_id)
    tx.wake(service.LOOP)


def _error(result: TaskResult) -> str:
    if result.status == "succeeded":
        return ""
    return f"{result.error.code}: {result.error.message}" if result.error else result.status
