"""Kill the app's controller at every boundary of an operation: at each new state of a step and of a member, or before a
command on a machine."""

from typing import Any

from gpuaas_app_slurm import controller
from gpuaas_app_slurm_conformance.fake_slurm import running
from gpuaas_app_slurm_conformance.fresh_machines import QUICK, NewCluster, hangs_or_ends
from gpuaas_contract.lifecycles import ENDED_OPERATION


async def ended_despite_crashes(cluster: NewCluster, operation_id: str) -> tuple[Any, set[str]]:
    """Kill the controller whenever the operation shows something new, and start it again, until the operation has
    ended. Return the operation and the boundaries. The cluster must have no running controller."""
    crashed: set[str] = set()

    def new(seen: Any) -> set[str]:
        return _shown(cluster, seen) - crashed

    crashed |= _shown(cluster, cluster.platform.operation(operation_id))
    while True:
        async with running(controller.build(QUICK), cluster):
            seen = await cluster.platform.until(
                operation_id, lambda seen: seen.status in ENDED_OPERATION or bool(new(seen))
            )
        if seen.status in ENDED_OPERATION:
            return seen, crashed
        crashed |= new(seen)
        cluster.platform.expire_lease(operation_id)


async def ended_despite_crash(cluster: NewCluster, operation_id: str, commands: int) -> tuple[Any, bool]:
    """Kill the controller after so many commands on the machine of slurmctld, and let another one finish. Return the
    operation, and whether it had so many commands. The cluster must have no running controller."""
    head = cluster.host("gpu-1")
    head.hangs_after = commands
    head.hangs.clear()
    async with running(controller.build(QUICK), cluster):
        is_hung = await hangs_or_ends(cluster, "gpu-1", operation_id)
    head.hangs_after = None
    if is_hung:
        cluster.platform.expire_lease(operation_id)
    async with running(controller.build(QUICK), cluster):
        return await cluster.platform.ended(operation_id), is_hung


def _shown(cluster: NewCluster, seen: Any) -> set[str]:
    steps = {f"{step.name} {step.state}" for step in seen.steps if not step.name.startswith("wait")}
    members = {f"{member.node_name} {member.status}" for member in cluster.platform.members(cluster.instance)}
    return steps | members
