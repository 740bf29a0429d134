"""What happens to placements when the task of a node ends, or when their machine is released."""

from gpuaas_contract.node import FETCH_TASK

from gpuaas_platform.access.placements import service
from gpuaas_platform.allocations.facts import ReleaseStarted
from gpuaas_platform.kit import db
from gpuaas_platform.kit.reactions import Reactions
from gpuaas_platform.nodes.facts import TaskEnded
from gpuaas_platform.nodes.tasks import service as tasks

reactions = Reactions()


@reactions.to(TaskEnded, FETCH_TASK)
async def fetch_ended(tx: db.Tx, ended: TaskEnded) -> None:
    await service.record_result(tx, ended.origin, ended.subject_id, ended.result)


@reactions.to(ReleaseStarted)
async def release_started(tx: db.Tx, started: ReleaseStarted) -> None:
    """End queued placements and withdraw their tasks: a fetch must not run after the machine was cleaned."""
    for placement in await service.call_off(tx, started.origin, started.allocation.allocation_id):
        await tasks.withdraw(tx, started.allocation.node_id, placement.placement_id)
