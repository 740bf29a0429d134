"""Bring a cluster to rest after its faults are healed, as a person does who reads what the platform shows.

Everything here waits for states of the product, with limits for a busy host. What does not come to rest is a
violation."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from gpuaas_contract import instances, lifecycles
from gpuaas_contract.errors import ApiError
from gpuaas_contract.operations import Operation
from gpuaas_sdk.installs import removals
from gpuaas_sdk.outcomes import NoAnswer

from bench.campaign.acts import Acts
from bench.campaign.cluster import HEAD, PROCESSES, Cluster
from bench.campaign.faults import HEAD_DAEMONS, Faults

Item = TypeVar("Item")
OPERATIONS_S = 600.0
MEMBERS_S = 150.0
POLL_S = 2.0
DRAINED_BY_SLURM = "Slurm has drained"
"""Begin of the reason of a member whose node Slurm drained by itself while its version changed."""
FOR_PEOPLE = ("NeverJoined", "DrainLeft")
"""Faults that only people end, so that nothing is waited for."""


async def heal(cluster: Cluster, faults: Faults) -> None:
    """End every fault: start the processes, machines and daemons again, and connect them."""
    await faults.heal_all()
    for name in PROCESSES:
        cluster.start(name)
    if await cluster.is_at_work():
        for daemon in HEAD_DAEMONS:
            await cluster.on(HEAD, "systemctl", "reset-failed", daemon)
            await cluster.on(HEAD, "systemctl", "start", daemon, timeout_s=120)
    cluster.journal.note("healed", "everything")


async def operations_end(cluster: Cluster, limit_s: float = OPERATIONS_S) -> None:
    """Wait until no operation from before now is in progress. One that is, although nothing is broken, is stuck."""
    healed_s = time.time()

    async def open_ones() -> list[Operation]:
        listed = await cluster.all_operations()
        before = [item for item in listed if item.created_at.timestamp() < healed_s]
        return [item for item in before if item.status not in lifecycles.ENDED_OPERATION]

    left = await until_none(open_ones, limit_s)
    for item in left:
        shown = await cluster.project.operation(item.operation_id)
        message = shown.steps[-1].message if shown.steps else "no step"
        cluster.journal.violated("stuck", f"{item.kind} {item.operation_id} is {item.status}: {message}")


async def members_rest(cluster: Cluster, acts: Acts) -> None:
    """Wait until members are ready or drained. Then use the exits and the operations that the platform offers."""
    await _members(cluster)
    for member in await restless(cluster):
        cluster.journal.note("left over", _shown(member))
        if not await _retried(cluster, acts, member):
            await performed(cluster, _remedy(member), member)
    for member in await _members(cluster):
        cluster.journal.note("left over", _shown(member))
        if member.component_key != "controller":
            await performed(cluster, "remove", member)
    for member in await _members(cluster):
        cluster.journal.violated("rest", f"{_shown(member)}; no exit and no operation helped")


async def machines_clean(cluster: Cluster, acts: Acts) -> None:
    """Take the rest of Slurm off machines whose members were given up: a new member adopts it and is removed."""
    used = {member.node_name for member in await cluster.members()}
    for machine in sorted(acts.left - used):
        cluster.journal.note("left over", f"{machine}: its member was given up, so it joins again and is removed")
        for role in ("worker", "login"):
            await cluster.reset_breaker(role)
        await succeeds(cluster, kind="add", component_key="worker", allocation_ids=[machine])
        member = next((item for item in await cluster.members() if item.node_name == machine), None)
        if member is not None:
            await performed(cluster, "remove", member)


async def performed(cluster: Cluster, kind: str, member: instances.Member) -> None:
    await succeeds(cluster, kind=kind, component_key=member.component_key, member_ids=[member.member_id])


async def succeeds(cluster: Cluster, **body: Any) -> None:
    """Perform an operation on a healthy cluster. It has to succeed, and not to be refused."""
    what = f"{body['kind']} {body.get('allocation_ids') or body.get('member_ids')}"
    try:
        operation = await cluster.operate(reason="after the campaign", **body)
        ended = await cluster.project.ended(operation.operation_id, OPERATIONS_S)
    except (ApiError, NoAnswer, TimeoutError) as error:
        cluster.journal.note("refused", f"{what}: {type(error).__name__} {error}")
        return
    error_text = f": {ended.error.message}" if ended.error else ""
    cluster.journal.note("operation", f"{what}: {ended.operation_id} {ended.status}{error_text}")
    if ended.status != "succeeded":
        cluster.journal.violated("healthy", f"{what} on a healed cluster ended {ended.status}{error_text}")


async def _retried(cluster: Cluster, acts: Acts, member: instances.Member) -> bool:
    """Retry the failed operation that left the member as it is, if the platform offers it."""
    if not member.last_operation_id:
        return False
    operation = await cluster.project.operation(member.last_operation_id)
    if "retry" not in [exit.name for exit in operation.exits]:
        return False
    for role in ("worker", "login"):
        await cluster.reset_breaker(role)
    if await acts.take(operation, "retry"):
        ended = await cluster.project.ended(operation.operation_id, OPERATIONS_S)
        error = f": {ended.error.message}" if ended.error else ""
        cluster.journal.note("operation", f"{ended.kind} {ended.operation_id} {ended.status}{error}")
        return ended.status == "succeeded"
    return False


def _remedy(member: instances.Member) -> str:
    """Return the operation that a person requests for a member that does not return by itself."""
    if "DrainLeft" in member.status_reason:
        return "resume"
    if member.adapter_detail.get(removals.BEGUN_BY):
        return "remove"
    joined = bool(member.adapter_detail.get("node_name")) or member.component_key == "controller"
    return "repair" if joined else "remove"


async def _members(cluster: Cluster) -> list[instances.Member]:
    """Wait for members that may return by themselves; return all that are not at rest."""

    async def returning() -> list[instances.Member]:
        unwell = await restless(cluster)
        return [member for member in unwell if not member.status_reason.startswith(FOR_PEOPLE)]

    await until_none(returning, MEMBERS_S)
    return await restless(cluster)


async def restless(cluster: Cluster) -> list[instances.Member]:
    """Return the members that are not at rest. Drains by Slurm itself, for example because it started a job twice, are
    lifted, as the fix of the member shows."""
    unwell = [member for member in await cluster.members() if member.status not in ("ready", "drained")]
    for member in unwell:
        if member.status_reason.startswith(DRAINED_BY_SLURM) or "ExternallyDrained" in member.status_reason:
            await cluster.on(HEAD, "scontrol", "update", f"nodename={member.node_name}", "state=resume")
    return unwell


async def until_none(read: Callable[[], Awaitable[list[Item]]], limit_s: float) -> list[Item]:
    deadline = time.monotonic() + limit_s
    while True:
        left = await read()
        if not left or time.monotonic() >= deadline:
            return left
        await asyncio.sleep(POLL_S)


def _shown(member: instances.Member) -> str:
    return f"{member.node_name}/{member.component_key} is {member.status}: {member.status_reason or 'no reason'}"
