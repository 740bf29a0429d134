"""The people of a project: the list, its event, and the accounts on the project's machines."""

import asyncio
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract import access, audit, bindings, capacity, errors, events, identity, node, posix, ssh_keys, users
from gpuaas_platform.access.machines import reconcile as grants_reconcile
from gpuaas_platform.allocations.keys import store as key_store
from msgspec.structs import replace
from platform_world import Node, Person, World, enrol_body, ssh_public_key

EVENT = "identity.posix.changed"


async def people(world: World, token: str = "", **where: str) -> dict[str, posix.PosixPerson]:
    page = await world.call(posix.POSIX_PEOPLE, token=token or world.token, **where)
    return {person.name: person for person in page.items}


async def member(world: World, name: str, role: str = "project_member") -> Person:
    person = await world.person(name)
    await world.call(bindings.PROJECT_BINDING_CREATE, {"user_id": person.user_id, "role": role})
    return person


async def take_role(world: World, person: Person) -> None:
    roles = (await world.call(bindings.PROJECT_BINDING_LIST)).items
    (held,) = [role for role in roles if role.user_id == person.user_id]
    await world.call(bindings.PROJECT_BINDING_DELETE, binding_id=held.binding_id)


async def register_key(world: World, person: Person) -> ssh_keys.SshKey:
    body = {"public_key": ssh_public_key(Ed25519PrivateKey.generate())}
    return await world.call(ssh_keys.SSH_KEY_CREATE, body, token=person.token)


async def announced(world: World) -> list[Any]:
    """Run the loop of people, and return the payloads of all events so far."""
    await world.sweep_people()
    items = (await world.call(events.EVENT_LIST, query={"limit": 500})).items
    return [event.payload for event in items if event.type == EVENT]


async def allocated(world: World, name: str = "n1") -> tuple[Node, str]:
    allocation = await world.allocation(name)
    return world.nodes[name], allocation.allocation_id


async def enter(world: World, person: Person, allocation_id: str, way: str | None = "person") -> access.MachineAccess:
    return await world.machine_access(person.token, allocation_id, **{"as": way})


async def test_the_list_has_everyone_who_may_log_in_and_everyone_who_could(world: World) -> None:
    ada, bea = await member(world, "ada"), await member(world, "bea", "project_admin")
    await member(world, "vi", "viewer")
    key = await register_key(world, ada)
    await world.sweep_people()
    listed = await people(world)
    assert set(listed) == {"admin", "ada", "bea"}
    assert (listed["ada"].state, listed["ada"].is_admin, listed["ada"].public_keys) == (
        "active",
        False,
        [key.public_key],
    )
    assert listed["bea"].is_admin
    await take_role(world, ada)
    await world.call(users.USER_DISABLE, user_id=bea.user_id)
    after = await people(world)
    assert [(after[name].state, after[name].is_admin) for name in ("ada", "bea")] == [("left", False)] * 2
    assert after["ada"].public_keys == []
    assert after["ada"].uid == listed["ada"].uid


async def test_the_list_is_read_in_pages(world: World) -> None:
    for name in ("ada", "bea", "cyd"):
        await member(world, name)
    first = await world.call(posix.POSIX_PEOPLE, query={"page_size": 3})
    rest = await world.call(posix.POSIX_PEOPLE, query={"page_size": 3, "page_token": first.next_page_token})
    assert [len(first.items), len(rest.items), rest.next_page_token] == [3, 1, None]


async def test_a_controller_reads_the_people_of_its_project_and_of_no_other(world: World) -> None:
    await world.entitled_app()
    controller = await world.service_account()
    await member(world, "ada")
    assert set(await people(world, controller)) == {"admin", "ada"}
    org_id = (await world.call(identity.PROJECT_GET)).org_id
    other = (await world.call(identity.PROJECT_CREATE, {"name": "other"}, org_id=org_id)).project_id
    with pytest.raises(errors.NotFound):
        await people(world, controller, project_id=other)


async def test_each_change_of_the_list_is_one_event_and_no_change_is_none(world: World) -> None:
    ada = await member(world, "ada")
    counts = [len(await announced(world)), len(await announced(world))]
    key = await register_key(world, ada)
    counts.append(len(await announced(world)))
    await world.call(ssh_keys.SSH_KEY_DELETE, ssh_key_id=key.ssh_key_id, token=ada.token)
    counts.append(len(await announced(world)))
    await member(world, "vi", "viewer")
    counts.append(len(await announced(world)))
    await world.call(users.USER_DISABLE, user_id=ada.user_id)
    last = await announced(world)
    assert [*counts, len(last)] == [1, 1, 2, 3, 3, 4]
    assert last[-1] == {"user_ids": [ada.user_id], "active": 1}


async def test_temporary_access_is_on_the_list_while_it_lasts(world: World) -> None:
    pat = await world.person("pat", "platform_admin", "platform")
    body = {"project_id": world.project_id, "minutes": 30, "reason": "the scheduler is down, ticket 4711"}
    await world.call(bindings.BREAK_GLASS_CREATE, body, token=pat.token)
    assert (await people(world))["pat"].state == "active"
    count = len(await announced(world))
    world.clock.forward(31 * 60)
    assert len(await announced(world)) == count + 1
    assert (await people(world))["pat"].state == "left"


async def test_a_machine_gets_the_complete_set_of_accounts_and_again_after_a_change(world: World) -> None:
    ada = await member(world, "ada")
    key = await register_key(world, ada)
    n1, allocation_id = await allocated(world)
    accounts = await world.install_people(n1)
    assert {account["login"] for account in accounts} == {"admin", "ada"}
    (hers,) = [account for account in accounts if account["login"] == "ada"]
    number = (await people(world))["ada"].uid
    assert hers == {
        "user_id": ada.user_id,
        "login": "ada",
        "uid": number,
        "gid": number,
        "principal": f"{allocation_id}/{ada.user_id}",
        "public_keys": [key.public_key],
    }
    await world.sweep_people()
    assert await world.next_task(n1) is None
    await take_role(world, ada)
    assert {account["login"] for account in await world.install_people(n1)} == {"admin"}


async def test_a_stored_key_that_agents_refuse_keeps_no_other_person_on_a_machine(world: World) -> None:
    ada, bea = await member(world, "ada"), await member(world, "bea")
    key = await register_key(world, ada)
    other = replace(key, public_key=f"sk-{key.public_key}")  # as an earlier release stored it
    await world.site.database.write(lambda tx: key_store.SSH_KEYS.save(tx, other))
    n1, _ = await allocated(world)
    accounts = await world.install_people(n1)
    assert [account["public_keys"] for account in accounts if account["login"] == "ada"] == [[]]
    await take_role(world, bea)
    assert {account["login"] for account in await world.install_people(n1)} == {"admin", "ada"}


async def test_a_failed_task_is_repeated_after_a_pause(world: World) -> None:
    n1, _ = await allocated(world)
    await world.sweep_people()
    await world.finish_task(n1, "failed")
    await world.sweep_people()
    assert await world.next_task(n1) is None
    world.clock.forward(16)
    await world.install_people(n1)


async def test_a_reinstalled_machine_gets_the_accounts_again(world: World) -> None:
    n1, allocation_id = await allocated(world)
    await world.install_people(n1)
    token = await world.call(capacity.ENROLMENT_CREATE, {"name": "n1"})
    key = Ed25519PrivateKey.generate()
    enrolled = await world.call(node.ENROL, enrol_body(token.token, "n1", key), token="")
    again = Node(enrolled.node_id, "n1", key, "")
    again.token = await world.node_login(again)
    await world.sweep()
    await world.finish_task(again)
    assert await world.install_people(again)
    assert (await world.call(capacity.ALLOCATION_GET, allocation_id=allocation_id)).status == "active"


async def test_a_person_logs_in_as_themselves_once_the_machine_has_their_account(world: World) -> None:
    ada = await member(world, "ada")
    n1, allocation_id = await allocated(world)
    with pytest.raises(errors.AccountPending, match="not on n1 yet"):
        await enter(world, ada, allocation_id)
    await world.install_people(n1)
    for way in ("person", None):
        granted = await enter(world, ada, allocation_id, way)
        assert (granted.user, granted.principal) == ("ada", f"{allocation_id}/{ada.user_id}")
    (grant, _) = (await world.call(access.GRANT_LIST)).items
    assert grant.access == "person"


async def test_root_needs_its_own_permission_and_the_refusal_names_who_can_give_it(world: World) -> None:
    ada = await member(world, "ada")
    bea = await member(world, "bea", "project_admin")
    n1, allocation_id = await allocated(world)
    await world.install_people(n1)
    with pytest.raises(errors.PermissionDenied, match="can give you the role: admin, bea") as refused:
        await enter(world, ada, allocation_id, "root")
    assert refused.value.details == {"permission": "access.machine.root"}
    granted = await enter(world, bea, allocation_id, "root")
    assert granted.principal == allocation_id
    rows = (await world.call(audit.AUDIT_LIST, query={"page_size": 500})).items
    assert any(row.action == "authz.deny" and row.actor_id == ada.user_id for row in rows)
    assert any(row.action == "access.machine.grant" and row.details.get("access") == "root" for row in rows)


async def test_a_grant_as_root_ends_with_the_permission_for_it(world: World) -> None:
    bea = await member(world, "bea", "project_admin")
    _, allocation_id = await allocated(world)
    granted = await enter(world, bea, allocation_id, "root")
    await take_role(world, bea)
    await world.call(bindings.PROJECT_BINDING_CREATE, {"user_id": bea.user_id, "role": "project_member"})
    await grants_reconcile.sweep(world.site)
    (grant,) = (await world.call(access.GRANT_LIST)).items
    assert (grant.grant_id, grant.state) == (granted.grant_id, "ended")
    assert grant.end_reason == "the person may no longer log in to machines of the project as root"


async def test_an_old_agent_is_named_with_the_fix(world: World) -> None:
    ada = await member(world, "ada")
    n1, allocation_id = await allocated(world)
    await world.sweep_people()
    task = await world.next_task(n1)
    assert task is not None
    error = {"code": "task_type_unknown", "message": "this agent has no handler for 'allocation.people'"}
    body = {"status": "refused", "error": error}
    await world.call(node.TASK_RESULT, body, token=n1.token, task_id=task["task_id"])
    with pytest.raises(errors.AgentTooOld, match="The agent on n1 is too old") as refused:
        await enter(world, ada, allocation_id)
    assert "gpuaas agent upgrade n1" in refused.value.fix


async def test_an_account_that_cannot_be_made_keeps_no_other_person_out(world: World) -> None:
    ada, bea = await member(world, "ada"), await member(world, "bea")
    n1, allocation_id = await allocated(world)
    await world.install_people(n1, refused={ada.user_id: "uid 20001 belongs to the local user toyd"})
    assert (await enter(world, bea, allocation_id)).user == "bea"
    with pytest.raises(errors.Conflict, match="belongs to the local user toyd"):
        await enter(world, ada, allocation_id)
    world.clock.forward(61)
    await world.install_people(n1)
    assert (await enter(world, ada, allocation_id)).user == "ada"


async def test_who_waits_for_other_people_is_answered_when_the_list_has_changed(world: World) -> None:
    await world.sweep_people()
    known = (await world.call(posix.POSIX_PEOPLE_DIGEST)).digest
    assert (await world.call(posix.POSIX_PEOPLE_DIGEST, query={"known": known, "wait_s": 0})).digest == known
    waiting = asyncio.ensure_future(world.call(posix.POSIX_PEOPLE_DIGEST, query={"known": known, "wait_s": 30}))
    ada = await member(world, "ada")
    await world.sweep_people()
    changed = (await waiting).digest
    assert changed != known
    await take_role(world, ada)
    await world.sweep_people()
    assert (await world.call(posix.POSIX_PEOPLE_DIGEST)).digest not in (known, changed), "ada is listed as left now"


async def test_changes_while_a_machine_is_busy_become_one_more_task(world: World) -> None:
    n1, _ = await allocated(world)
    await world.sweep_people()
    running = await world.next_task(n1)
    for name in ("ada", "bea", "cyd"):
        await member(world, name)
        await world.sweep_people()
    assert await world.next_task(n1) == running, "the machine may work on the first one"
    await world.finish_task(n1)
    last = await world.next_task(n1)
    assert last is not None
    assert {account["login"] for account in last["params"]["people"]} == {"admin", "ada", "bea", "cyd"}
    await world.finish_task(n1)
    await world.sweep_people()
    assert await world.next_task(n1) is None
