"""Request the operation of a move from a platform, as people do."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuaas_contract import actions, instances
from gpuaas_contract.errors import OperationInProgress
from gpuaas_contract.instances import Member
from gpuaas_contract.operations import Operation

from gpuaas_sdk.client import Client
from gpuaas_sdk.conformance import plan
from gpuaas_sdk.conformance.controllers import Subject
from gpuaas_sdk.conformance.plan import Move
from gpuaas_sdk.conformance.verdicts import Failed

REASON = "conformance"
PAUSE_S = 0.2
BUSY_S = 600.0
"""How long a request waits for an operation that the app itself has requested."""
_PLAIN = {
    "stop": instances.STOP,
    "start": instances.START,
    "restart": instances.RESTART,
    "rollback": instances.ROLLBACK,
}


@dataclass
class Place:
    """Where the app is deployed: a project, its machines, and the instance on them."""

    client: Client
    project_id: str
    subject: Subject
    allocation_ids: Mapping[str, str] = field(default_factory=dict)
    """By the name of the machine."""
    name: str = "conformance"
    """The name of the instance."""
    version: str = ""
    """The version of the app that a deploy uses."""
    instance_id: str = ""


async def request(place: Place, move: Move, *, within_s: float = BUSY_S) -> Operation:
    """Request the operation. If the app repairs a member by itself at the moment, wait for that."""
    ends_at = time.monotonic() + within_s
    while True:
        try:
            return await _request(place, move)
        except OperationInProgress as error:
            if time.monotonic() >= ends_at:
                reason = f"{move} was not accepted within {within_s:g} s: {error.message}"
                raise Failed(reason, "Bound the operations that the app itself requests.") from error
        await asyncio.sleep(PAUSE_S)


async def live_members(place: Place) -> list[Member]:
    """Return the live members of the instance, oldest first."""
    pages = place.client.pages(instances.MEMBER_LIST, query={"live": True}, **_where(place))
    return sorted([member async for member in pages], key=lambda member: member.member_id)


def _where(place: Place) -> dict[str, Any]:
    return {"project_id": place.project_id, "instance_id": place.instance_id}


async def _request(place: Place, move: Move) -> Operation:
    if move.kind == "deploy":
        return await _deploy(place)
    where, driver, call = _where(place), place.subject.driver, place.client.call
    if move.kind == "action":
        action = actions.InvokeAction(inputs=dict(driver.actions.get(move.action, {})), reason=REASON)
        return await call(actions.ACTION_INVOKE, action, action=move.action, **where)
    if move.kind == "decommission":
        return await call(instances.DECOMMISSION, instances.Decommission(reason=REASON), **where)
    if move.kind == "reconfigure":
        changed = instances.ReconfigureInstance(inputs=dict(driver.changed_inputs), reason=REASON)
        return await call(instances.RECONFIGURE, changed, **where)
    if move.kind == "upgrade":
        newer = instances.UpgradeInstance(version=place.subject.manifest.version, reason=REASON)
        return await call(instances.UPGRADE, newer, **where)
    if move.kind in _PLAIN:
        return await call(_PLAIN[move.kind], instances.ChangeInstance(reason=REASON), **where)
    return await call(instances.MEMBER_OPERATION_CREATE, await _member_request(place, move), **where)


async def _member_request(place: Place, move: Move) -> instances.MemberOperationRequest:
    members = await live_members(place)
    used = {member.allocation_id for member in members}
    free = [allocation_id for allocation_id in place.allocation_ids.values() if allocation_id not in used]
    needed: dict[str, Any] = {}
    if move.kind == "add":
        needed = {"component_key": move.role, "allocation_ids": free[:1]}
    else:
        needed["member_ids"] = [[member.member_id for member in members if member.component_key == move.role][-1]]
    if move.kind == "replace":
        needed["allocation_ids"] = free[:1]
    return instances.MemberOperationRequest(kind=move.kind, reason=REASON, **needed)  # type: ignore[arg-type]


async def _deploy(place: Place) -> Operation:
    manifest, driver = place.subject.manifest, place.subject.driver
    free, chosen = list(place.allocation_ids.values()), {}
    for role, count in plan.counts(manifest, driver).items():
        chosen[role], free = free[:count], free[count:]
    body = instances.DeployInstance(
        name=place.name,
        app_slug=manifest.slug,
        topology=plan.topology(manifest, driver),
        version=place.version or plan.previous_version(manifest),
        inputs=plan.inputs(manifest, driver, chosen),
    )
    deployed = await place.client.call(instances.INSTANCE_CREATE, body, project_id=place.project_id)
    place.instance_id = deployed.instance.instance_id
    return deployed.operation
