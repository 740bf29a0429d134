"""Request the operation of a move from the platform, as people do."""

import asyncio
import contextlib
from typing import Any

from gpuaas_contract import actions, instances
from gpuaas_contract.errors import OperationInProgress
from gpuaas_contract.instances import Member
from gpuaas_contract.operations import Operation
from gpuaas_sdk.conformance import plan
from gpuaas_sdk.conformance.plan import Move

from bench.crashes.cloud import Cloud
from bench.crashes.clusters import Cluster

REASON = "bench"
PAUSE_S = 0.2
_PLAIN = {
    "stop": instances.STOP,
    "start": instances.START,
    "restart": instances.RESTART,
    "rollback": instances.ROLLBACK,
}


async def request(cloud: Cloud, cluster: Cluster, move: Move) -> Operation:
    """Request the operation. If the app repairs a member by itself at the moment, wait for that."""
    while True:
        with contextlib.suppress(OperationInProgress):
            return await _request(cloud, cluster, move)
        await asyncio.sleep(PAUSE_S)


async def _request(cloud: Cloud, cluster: Cluster, move: Move) -> Operation:
    if version := plan.version_of(cloud.subject.manifest, move.kind):
        for machine in cluster.machines:
            cloud.subject.driver.offer(machine, version)
    if move.kind == "deploy":
        return await _deploy(cloud, cluster)
    where: dict[str, Any] = {"project_id": cloud.project_id, "instance_id": cluster.instance_id}
    driver, call = cloud.subject.driver, cloud.client.call
    if move.kind == "action":
        action = actions.InvokeAction(inputs=dict(driver.actions.get(move.action, {})), reason=REASON)
        return await call(actions.ACTION_INVOKE, action, action=move.action, **where)
    if move.kind == "decommission":
        return await call(instances.DECOMMISSION, instances.Decommission(reason=REASON), **where)
    if move.kind == "reconfigure":
        changed = instances.ReconfigureInstance(inputs=dict(driver.changed_inputs), reason=REASON)
        return await call(instances.RECONFIGURE, changed, **where)
    if move.kind == "upgrade":
        newer = instances.UpgradeInstance(version=cloud.subject.manifest.version, reason=REASON)
        return await call(instances.UPGRADE, newer, **where)
    if move.kind in _PLAIN:
        return await call(_PLAIN[move.kind], instances.ChangeInstance(reason=REASON), **where)
    return await call(instances.MEMBER_OPERATION_CREATE, await _member_request(cloud, cluster, move), **where)


async def _member_request(cloud: Cloud, cluster: Cluster, move: Move) -> instances.MemberOperationRequest:
    members = await live_members(cloud, cluster)
    used = {member.node_name for member in members}
    free = [cluster.allocation_ids[name] for name in cluster.names if name not in used]
    needed: dict[str, Any] = {}
    if move.kind == "add":
        needed = {"component_key": move.role, "allocation_ids": free[:1]}
    else:
        needed["member_ids"] = [[member.member_id for member in members if member.component_key == move.role][-1]]
    if move.kind == "replace":
        needed["allocation_ids"] = free[:1]
    return instances.MemberOperationRequest(kind=move.kind, reason=REASON, **needed)  # type: ignore[arg-type]


async def live_members(cloud: Cloud, cluster: Cluster) -> list[Member]:
    """Return the live members of the instance, oldest first."""
    where: dict[str, Any] = {"project_id": cloud.project_id, "instance_id": cluster.instance_id}
    pages = cloud.client.pages(instances.MEMBER_LIST, query={"live": True}, **where)
    return sorted([member async for member in pages], key=lambda member: member.member_id)


async def _deploy(cloud: Cloud, cluster: Cluster) -> Operation:
    subject = cloud.subject
    manifest, driver = subject.manifest, subject.driver
    topology = plan.topology(manifest, driver)
    fields = manifest.topologies[topology]
    inputs, free = dict(driver.inputs), list(cluster.allocation_ids.values())
    for role, count in plan.counts(manifest, driver).items():
        chosen, free = free[:count], free[count:]
        is_list = manifest.deploy_form["properties"][fields[role]]["type"] == "array"
        inputs[fields[role]] = chosen if is_list else chosen[0]
    cluster.lives += 1
    body = instances.DeployInstance(
        name=f"c{cluster.number}-{cluster.lives}",
        app_slug=manifest.slug,
        topology=topology,
        version=plan.previous_version(manifest),
        inputs=inputs,
    )
    deployed = await cloud.client.call(instances.INSTANCE_CREATE, body, project_id=cloud.project_id)
    cluster.instance_id = deployed.instance.instance_id
    return deployed.operation
