"""A node that enrols anew has an empty disk: what an active allocation had on it is put there again, until it is."""

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
    """The machine is back with an empty disk and a key of its own, and the loop has seen it."""
    found = await world.node(name)
    await world.sweep()
    return found


async def later(world: World, seconds: float, found: Node) -> None:
    """The loop runs all the while, and the node goes on beating."""
    facts = capacity.Facts(hostname=found.name, cpus=4, memory_mb=1000, addresses=["127.0.0.1"])
    for _ in range(int(seconds)):
        world.clock.forward(1)
        await world.call(node.STATUS, {"agent_version": "1", "boot_id": "1", "facts": facts}, token=found.token)
        await world.sweep()


async def asked(world: World, found: Node) -> str:
    """The type of the task the node would do next; empty: none."""
    task = await world.next_task(found)
    return str(task["type"]) if task else ""


async def task_types(world: World, found: Node) -> list[str]:
    tasks = (await world.call(agents.NODE_TASK_LIST, node_id=found.node_id)).items
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


async def test_whoever_holds_it_is_told_and_the_enrolment_on_record_names_it(world: World) -> None:
    allocation = await world.allocation("n1")
    await world.finish_task(await reinstalled(world))
    told = (await world.call(events.EVENT_LIST, query={"limit": 500})).items
    moves = [
        (event.payload.get("was"), event.payload["status"])
        for event in told
        if event.type == "capacity.allocation.changed"
    ]
    assert moves[-2:] == [("active", "provisioning"), ("provisioning", "active")]
    rows = (await world.call(audit.PLATFORM_AUDIT_LIST, query={"page_size": 100})).items
    named = [row.details.get("allocation_id") for row in rows if row.action == "node.enrol"]
    assert sorted(named, key=str) == sorted([None, allocation.allocation_id], key=str)


async def test_a_node_that_cannot_be_prepared_is_told_again_until_it_can(world: World) -> None:
    allocation = await world.allocation("n1")
    found = await reinstalled(world)
    await world.finish_task(found, "failed")
    stuck = await get(world, allocation.allocation_id)
    assert stuck.status == "provisioning"
    assert "boom: it broke" in stuck.status_reason
    await later(world, 30, found)
    assert await asked(world, found) == "", "not at once"
    await later(world, 31, found)
    assert await asked(world, found) == PROVISION
    await world.finish_task(found)
    assert (await get(world, allocation.allocation_id)).status == "active"


async def test_a_node_that_does_not_answer_is_told_again_when_its_task_is_over_and_it_is_heard(world: World) -> None:
    allocation = await world.allocation("n1")
    found = await reinstalled(world)
    await later(world, world.site.settings.task_ttl_s, found)
    assert "no_answer" in (await get(world, allocation.allocation_id)).status_reason
    for _ in range(120):
        world.clock.forward(1)
        await world.sweep()
    assert (await world.call(capacity.NODE_GET, node_id=found.node_id)).status == "lost"
    assert await task_types(world, found) == [PROVISION, PROVISION], "the first installation's, and one of the second"
    await later(world, 1, found)
    assert await asked(world, found) == PROVISION
    await world.finish_task(found)
    assert (await get(world, allocation.allocation_id)).status == "active"


async def test_it_can_be_given_back_before_it_is_prepared_and_a_late_answer_changes_nothing(world: World) -> None:
    allocation = await world.allocation("n1")
    found = await reinstalled(world)
    await world.call(capacity.ALLOCATION_RELEASE, allocation_id=allocation.allocation_id)
    assert await asked(world, found) == PROVISION, "what is about one allocation keeps its order"
    await world.finish_task(found)
    assert (await get(world, allocation.allocation_id)).status == "releasing"
    await world.finish_task(found)
    released = await get(world, allocation.allocation_id)
    assert (released.status, released.provision_retry_at) == ("released", None)
    await later(world, 200, found)
    assert await asked(world, found) == ""


async def test_an_allocation_whose_first_preparation_fails_stays_failed(world: World) -> None:
    found = await world.node("n1")
    (made,) = (await world.call(capacity.ALLOCATION_CREATE, {})).items
    again = await reinstalled(world)
    assert await task_types(world, found) == [PROVISION], "the new installation does what is queued"
    await world.finish_task(again, "failed")
    assert (await get(world, made.allocation_id)).status == "failed"
    await reinstalled(world)
    assert (await get(world, made.allocation_id)).status == "failed"


async def test_a_release_goes_on_with_what_the_new_installation_finds(world: World) -> None:
    allocation = await world.allocation("n1")
    await world.call(capacity.ALLOCATION_RELEASE, allocation_id=allocation.allocation_id)
    found = await reinstalled(world)
    await world.finish_task(found)
    assert (await get(world, allocation.allocation_id)).status == "released"


async def test_an_enrolment_whose_answer_was_lost_prepares_nothing_twice(world: World) -> None:
    allocation = await world.allocation("n1")
    key, token = Ed25519PrivateKey.generate(), await world.call(capacity.ENROLMENT_CREATE, {"name": "n1"})
    body = enrol_body(token.token, "n1", key)
    found = Node((await world.call(node.ENROL, body, token="")).node_id, "n1", key, "")
    found.token = await world.node_login(found)
    await world.sweep()
    await world.finish_task(found)
    await world.call(node.ENROL, body, token="")
    assert (await get(world, allocation.allocation_id)).status == "active"
    await later(world, 5, found)
    assert await asked(world, found) == ""


async def test_peoples_keys_are_put_on_the_machine_again(world: World) -> None:
    ada = await world.person("ada", "project_member", world.project_id)
    allocation = await world.allocation("n1")
    where = {"allocation_id": allocation.allocation_id}
    key = ssh_keys.AddSshKey(public_key=ssh_public_key(Ed25519PrivateKey.generate()))
    registered = await world.call(ssh_keys.SSH_KEY_CREATE, key, token=ada.token)
    await world.call(ssh_keys.ALLOCATION_KEYS_SET, {"user_ids": [ada.user_id]}, **where)
    await world.finish_task(world.nodes["n1"])
    assert (await world.call(ssh_keys.ALLOCATION_KEYS_GET, **where)).state == "installed"
    found = await reinstalled(world)
    emptied = await world.call(ssh_keys.ALLOCATION_KEYS_GET, **where)
    assert (emptied.state, emptied.installed) == ("pending", [])
    assert await asked(world, found) == PROVISION
    await world.finish_task(found)
    assert await asked(world, found) == KEYS
    await world.finish_task(found)
    there = await world.call(ssh_keys.ALLOCATION_KEYS_GET, **where)
    assert (there.state, there.installed) == ("installed", [registered.fingerprint])


async def test_certificates_that_were_revoked_stay_refused_on_the_new_installation(world: World) -> None:
    allocation = await world.allocation("n1")
    granted = await world.machine_access(world.token, allocation.allocation_id)
    revoke: dict[str, Any] = {"reason": "the laptop was stolen"}
    await world.call(access.GRANT_REVOKE, revoke, grant_id=granted.grant_id)
    await world.finish_task(world.nodes["n1"])
    await grants_reconcile.sweep(world.site)
    found = await reinstalled(world)
    await world.finish_task(found)
    await grants_reconcile.sweep(world.site)
    task = await world.next_task(found)
    assert task is not None
    assert (task["type"], task["params"]["revoked_serials"]) == ("ssh.trust", [int(granted.serial)])
    await world.finish_task(found)
    await grants_reconcile.sweep(world.site)
    assert await asked(world, found) == "", "once it has heard, it is not told again"
