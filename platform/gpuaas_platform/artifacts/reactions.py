"""What happens to placements when a node has fetched the bytes, or when their machine is given back."""

from gpuaas_contract.node import FETCH_TASK

from gpuaas_platform.allocations.facts import ReleaseStarted
from gpuaas_platform.artifacts import placements
from gpuaas_platform.kit import db
from gpuaas_platform.kit.reactions import Reactions
from gpuaas_platform.nodes.facts import TaskEnded
from gpuaas_platform.nodes.tasks import service as tasks

reactions = Reactions()


@reactions.to(TaskEnded, FETCH_TASK)
async def fetch_ended(tx: db.Tx, ended: TaskEnded) -> None:
    await placements.ended(tx, ended.origin, ended.subject_id, ended.result)


@reactions.to(ReleaseStarted)
async def release_started(tx: db.Tx, started: ReleaseStarted) -> None:
    """End queued placements and withdraw their tasks: a fetch must not run after the machine was cleaned."""
    for placement in await placements.call_off(tx, started.origin, started.allocation.allocation_id):
        await tasks.withdraw(tx, started.allocation.node_id, placement.placement_id)
