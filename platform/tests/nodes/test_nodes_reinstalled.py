"""A node that enrols again has an empty disk: the platform installs again what an active allocation had on it."""

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract import access, agents, audit, capacity, errors, events, node, ssh_keys
from gpuaas_platform.access.machines import reconcile as grants_reconcile
from platform_world import Node, World, enrol_body, ssh_public_key

PROVISION, KEYS = "allocation.provision", "allocation.install_authorized_keys"


async def get(world: World, allocation_id: str) -> capacity.Allocation:
    return await world.call(capacity.ALLOCATION_GET, allocation_id=allocation_id)


async def reinstalled(world: World, name: str = "n1") -> Node:
    """Return the node after it was installed again: an empty disk, a new key, and one sweep."""
    gpu_node = await world.node(name)
    await world.sweep()
    return gpu_node


async def later(world: World, seconds: float, gpu_node: Node) -> None:
    """Let time pass while the loop runs and the node sends heartbeats."""
    facts = capacity.Facts(hostname=gpu_node.name, cpus=4, memory_mb=1000, addresses=["127.0.0.1"])
    for _ in range(int(seconds)):
        world.clock.forward(1)
        await world.call(node.STATUS, {"agent_version": "1", "boot_id": "1", "facts": facts}, token=gpu_node.token)
        await world.sweep()


async def next_type(world: World, gpu_node: Node) -> str:
    """Return the type of the next task of the node; empty: none."""
    task = await world.next_task(gpu_node)
    return str(task["type"]) if task else ""


async def task_types(world: World, gpu_node: Node) -> list[str]:
    tasks = (await world.call(agents.NODE_TASK_LIST, node_id=gpu_node.node_id)).items
    return [task.type for task in reversed(tasks)]


async def test_an_active_allocation_is_prepared_again_and_entered_only_after_that(world: World) -> None:
    allocation = await world.allocation("n1")
    first = await world.node("n1")
    waiting = await get(world, allocation.allocation_id)
    assert (waiting.status, waiting.node_id) == ("provisioning", first.node_id)
    assert "installed again" in waiting.status_reason
    with pytest.raises(errors.Conflict, match="provisioning: its node was installed again"):
        await world.machine_access(world.token, allocation.allocation_id)
    await world.sweep()
    task = await world.next_task(first)
    assert task is not None
    assert (task["type"], task["params"]["user"], task["params"]["principal"]) == (
        PROVISION,
        allocation.username_on_node,
        allocation.allocation_id,
    )
    await world.finish_task(first)
    ready = await get(world, allocation.allocation_id)
    assert (ready.status, ready.status_reason, ready.provision_retry_at) == ("active", "", None)
    await world.machine_access(world.token, allocation.allocation_id)


async def test_the_owner_sees_both_changes_and_the_audit_log_of_the_enrolment_names_the_allocation(
    world: World,
) -> None:
    allocation = await world.allocation("n1")
    await world.finish_task(await reinstalled(world))
    recorded = (await world.call(events.EVENT_LIST, query={"limit": 500})).items
    moves = [
        (event.payload.get("was"), event.payload["status"])
        for event in recorded
        if event.type == "capacity.allocation.changed"
    ]
    assert moves[-2:] == [("active", "provisioning"), ("provisioning", "active")]
    rows = (await world.call(audit.PLATFORM_AUDIT_LIST, query={"page_size": 100})).items
    named = [row.details.get("allocation_id") for row in rows if row.action == "node.enrol"]
    assert sorted(named, key=str) == sorted([None, allocation.allocation_id], key=str)


async def test_a_failed_preparation_is_tried_again_until_it_succeeds(world: World) -> None:
    allocation = await world.allocation("n1")
    n1 = await reinstalled(world)
    await world.finish_task(n1, "failed")
    stuck = await get(world, allocation.allocation_id)
    assert stuck.status == "provisioning"
    assert "boom: it broke" in stuck.status_reason
    await later(world, 30, n1)
    assert await next_type(world, n1) == "", "not at once"
    await later(world, 31, n1)
    assert await next_type(world, n1) == PROVISION
    await world.finish_task(n1)
    assert (await get(world, allocation.allocation_id)).status == "active"


async def test_a_node_that_does_not_answer_gets_the_task_again_when_the_old_one_expired_and_it_responds(
    world: World,
) -> None:
    allocation = await world.allocation("n1")
    n1 = await reinstalled(world)
    await later(world, world.site.settings.task_ttl_s, n1)
    assert "no_answer" in (await get(world, allocation.allocation_id)).status_reason
    for _ in range(120):
        world.clock.forward(1)
        await world.sweep()
    assert (await world.call(capacity.NODE_GET, node_id=n1.node_id)).status == "lost"
    assert await task_types(world, n1) == [PROVISION, PROVISION], "the first installation's, and one of the second"
    await later(world, 1, n1)
    assert await next_type(world, n1) == PROVISION
    await world.finish_task(n1)
    assert (await get(world, allocation.allocation_id)).status == "active"


async def test_it_can_be_given_back_before_it_is_prepared_and_a_late_answer_changes_nothing(world: World) -> None:
    allocation = await world.allocation("n1")
    n1 = await reinstalled(world)
    await world.call(capacity.ALLOCATION_RELEASE, allocation_id=allocation.allocation_id)
    assert await next_type(world, n1) == PROVISION, "what is about one allocation keeps its order"
    await world.finish_task(n1)
    assert (await get(world, allocation.allocation_id)).status == "releasing"
    await world.finish_task(n1)
    released = await get(world, allocation.allocation_id)
    assert (released.status, released.provision_retry_at) == ("released", None)
    await later(world, 200, n1)
    assert await next_type(world, n1) == ""


async def test_an_allocation_whose_first_preparation_fails_stays_failed(world: World) -> None:
    n1 = await world.node("n1")
    (made,) = (await world.call(capacity.ALLOCATION_CREATE, {})).items
    again = await reinstalled(world)
    assert await task_types(world, n1) == [PROVISION], "the new installation does what is queued"
    await world.finish_task(again, "failed")
    assert (await get(world, made.allocation_id)).status == "failed"
    await reinstalled(world)
    assert (await get(world, made.allocation_id)).status == "failed"


async def test_a_release_continues_on_the_new_installation(world: World) -> None:
    allocation = await world.allocation("n1")
    await world.call(capacity.ALLOCATION_RELEASE, allocation_id=allocation.allocation_id)
    n1 = await reinstalled(world)
    await world.finish_task(n1)
    assert (await get(world, allocation.allocation_id)).status == "released"


async def test_an_enrolment_whose_answer_was_lost_prepares_nothing_twice(world: World) -> None:
    allocation = await world.allocation("n1")
    key, token = Ed25519PrivateKey.generate(), await world.call(capacity.ENROLMENT_CREATE, {"name": "n1"})
    body = enrol_body(token.token, "n1", key)
    n1 = Node((await world.call(node.ENROL, body, token="")).node_id, "n1", key, "")
    n1.token = await world.node_login(n1)
    await world.sweep()
    await world.finish_task(n1)
    await world.call(node.ENROL, body, token="")
    assert (await get(world, allocation.allocation_id)).status == "active"
    await later(world, 5, n1)
    assert await next_type(world, n1) == ""


async def test_peoples_keys_are_put_on_the_machine_again(world: World) -> None:
    ada = await world.person("ada", "project_admin", world.project_id)
    allocation = await world.allocation("n1")
    where = {"allocation_id": allocation.allocation_id}
    key = ssh_keys.AddSshKey(public_key=ssh_public_key(Ed25519PrivateKey.generate()))
    registered = await world.call(ssh_keys.SSH_KEY_CREATE, key, token=ada.token)
    await world.call(ssh_keys.ALLOCATION_KEYS_SET, {"user_ids": [ada.user_id]}, **where)
    await world.finish_task(world.nodes["n1"])
    assert (await world.call(ssh_keys.ALLOCATION_KEYS_GET, **where)).state == "installed"
    n1 = await reinstalled(world)
    emptied = await world.call(ssh_keys.ALLOCATION_KEYS_GET, **where)
    assert (emptied.state, emptied.installed) == ("pending", [])
    assert await next_type(world, n1) == PROVISION
    await world.finish_task(n1)
    assert await next_type(world, n1) == KEYS
    await world.finish_task(n1)
    there = await world.call(ssh_keys.ALLOCATION_KEYS_GET, **where)
    assert (there.state, there.installed) == ("installed", [registered.fingerprint])


async def test_certificates_that_were_revoked_stay_refused_on_the_new_installation(world: World) -> None:
    allocation = await world.allocation("n1")
    granted = await world.machine_access(world.token, allocation.allocation_id)
    revoke: dict[str, Any] = {"reason": "the laptop was stolen"}
    await world.call(access.GRANT_REVOKE, revoke, grant_id=granted.grant_id)
    await world.finish_task(world.nodes["n1"])
    await grants_reconcile.sweep(world.site)
    n1 = await reinstalled(world)
    await world.finish_task(n1)
    await grants_reconcile.sweep(world.site)
    task = await world.next_task(n1)
    assert task is not None
    assert (task["type"], task["params"]["revoked_serials"]) == ("ssh.trust", [int(granted.serial)])
    await world.finish_task(n1)
    await grants_reconcile.sweep(world.site)
    assert await next_type(world, n1) == "", "a node that has the list does not get it again"
