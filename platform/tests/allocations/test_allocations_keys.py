"""People's SSH keys: registered by each, chosen by a project, on machines as one complete set, gone with the role."""

import base64
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract import audit, bindings, capacity, errors, events, node, ssh_keys, users
from gpuaas_platform.allocations.keys import rules as allocation_keys_rules
from platform_world import Node, Person, World, ssh_public_key

TASK = "allocation.install_authorized_keys"


def openssh(key: Any) -> str:
    made = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return str(made.decode())


def new_key() -> str:
    return ssh_public_key(Ed25519PrivateKey.generate())


async def register(world: World, person: Person, public_key: str = "") -> ssh_keys.SshKey:
    body = ssh_keys.AddSshKey(public_key=public_key or new_key())
    return await world.call(ssh_keys.SSH_KEY_CREATE, body, token=person.token)


async def allocated(world: World) -> tuple[Node, str]:
    n1 = await world.node("n1")
    (made,) = (await world.call(capacity.ALLOCATION_CREATE, {})).items
    await world.finish_task(n1)
    return n1, made.allocation_id


async def admin(world: World, name: str) -> Person:
    return await world.person(name, "project_admin", world.project_id)


async def choose(world: World, allocation_id: str, *people: Person) -> ssh_keys.AllocationKeys:
    body = {"user_ids": [person.user_id for person in people]}
    return await world.call(ssh_keys.ALLOCATION_KEYS_SET, body, allocation_id=allocation_id)


async def shown(world: World, allocation_id: str) -> ssh_keys.AllocationKeys:
    return await world.call(ssh_keys.ALLOCATION_KEYS_GET, allocation_id=allocation_id)


async def install_next_set(world: World, gpu_node: Node) -> list[str]:
    """Return the keys that the node is asked to install, and report that it installed them."""
    task = await world.next_task(gpu_node)
    assert task is not None
    assert task["type"] == TASK
    await world.call(node.TASK_RESULT, {"status": "succeeded"}, token=gpu_node.token, task_id=task["task_id"])
    return list(task["params"]["public_keys"])


async def later(world: World, seconds: float = 11) -> None:
    world.clock.forward(seconds)
    await world.sweep()


async def test_a_person_registers_lists_and_deletes_keys_of_their_own(world: World) -> None:
    ada, bea = await admin(world, "ada"), await admin(world, "bea")
    key = await register(world, ada, f"{new_key()} ada@laptop")
    assert (key.user_id, key.algorithm, key.comment) == (ada.user_id, "ssh-ed25519", "ada@laptop")
    assert (await world.call(ssh_keys.SSH_KEY_LIST, token=ada.token)).items == [key]
    assert (await world.call(ssh_keys.SSH_KEY_LIST, token=bea.token)).items == []
    with pytest.raises(errors.NotFound):
        await world.call(ssh_keys.SSH_KEY_DELETE, token=bea.token, ssh_key_id=key.ssh_key_id)
    await world.call(ssh_keys.SSH_KEY_DELETE, token=ada.token, ssh_key_id=key.ssh_key_id)
    assert (await world.call(ssh_keys.SSH_KEY_LIST, token=ada.token)).items == []


async def test_the_same_key_twice_one_key_too_many_and_a_service_accounts_key_are_refused(world: World) -> None:
    ada = await admin(world, "ada")
    key = await register(world, ada)
    with pytest.raises(errors.Conflict, match="already") as refused:
        await register(world, ada, f"{key.public_key} another comment")
    assert refused.value.details == {"fingerprint": key.fingerprint}
    for _ in range(ssh_keys.SSH_KEYS_PER_PERSON_MAX - 1):
        await register(world, ada)
    with pytest.raises(errors.Conflict, match="the limit"):
        await register(world, ada)
    account = await world.service_account()
    with pytest.raises(errors.PermissionDenied, match="Only people"):
        await world.call(ssh_keys.SSH_KEY_CREATE, {"public_key": new_key()}, token=account)


@pytest.mark.parametrize(
    "generate",
    [
        pytest.param(Ed25519PrivateKey.generate, id="ed25519"),
        pytest.param(partial(rsa.generate_private_key, 65537, 3072), id="rsa-3072"),
        pytest.param(partial(ec.generate_private_key, ec.SECP256R1()), id="nistp256"),
        pytest.param(partial(ec.generate_private_key, ec.SECP384R1()), id="nistp384"),
        pytest.param(partial(ec.generate_private_key, ec.SECP521R1()), id="nistp521"),
    ],
)
def test_the_kinds_of_keys_that_are_accepted(generate: Callable[[], Any]) -> None:
    key = openssh(generate())
    assert allocation_keys_rules.read_public_key(f"  {key} me\n", "").line == key


WRONG_KEYS = {
    "nothing": "",
    "a type alone": "ssh-ed25519",
    "a key cut short": "ssh-ed25519 AAAA",
    "no base64": "ssh-ed25519 not-base64!",
    "options in front": f'command="sh" {new_key()}',
    "two keys": f"{new_key()} one\n{new_key()} two",
    "a short RSA key": openssh(rsa.generate_private_key(65537, 2048)),
    "a type that is not the key's": new_key().replace("ssh-ed25519", "ssh-rsa"),
    "a private key": "-----BEGIN OPENSSH PRIVATE KEY-----",
}


@pytest.mark.parametrize("wrong", WRONG_KEYS.values(), ids=WRONG_KEYS)
def test_an_invalid_or_weak_key_is_refused(wrong: str) -> None:
    with pytest.raises(errors.ValidationFailed) as refused:
        allocation_keys_rules.read_public_key(wrong, "")
    assert refused.value.details == {"field": "public_key"}


def test_the_fingerprint_is_the_one_openssh_shows() -> None:
    blob = base64.b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0 " + bytes(range(1, 33))).decode()
    key = allocation_keys_rules.read_public_key(f"ssh-ed25519 {blob} me", "laptop")
    assert (key.fingerprint, key.comment) == ("SHA256:mKqU+0K8OhKmA8bBQi9Rz0Q5l7/g160hIP+rJYSTNj4", "laptop")


async def test_the_machine_gets_the_complete_set_of_the_chosen_peoples_keys(world: World) -> None:
    ada, bea = await admin(world, "ada"), await admin(world, "bea")
    n1, allocation_id = await allocated(world)
    keys = [await register(world, person) for person in (ada, ada, bea)]
    pending = await choose(world, allocation_id, ada, bea)
    assert (pending.state, pending.installed) == ("pending", [])
    assert sorted(await install_next_set(world, n1)) == sorted(
        f"{key.public_key} {'bea' if key.user_id == bea.user_id else 'ada'}" for key in keys
    )
    installed = await shown(world, allocation_id)
    assert (installed.state, sorted(installed.installed)) == ("installed", sorted(key.fingerprint for key in keys))
    assert installed.installed_at == world.clock()
    event = (await world.call(events.EVENT_LIST, query={"limit": 500})).items[-1]
    assert (event.type, event.payload["installed"]) == ("capacity.allocation.keys_installed", installed.installed)
    await later(world)
    assert await world.next_task(n1) is None, "the machine has the set: nothing to send"


async def test_the_keys_of_a_person_who_is_no_longer_chosen_are_removed(world: World) -> None:
    ada, bea = await admin(world, "ada"), await admin(world, "bea")
    n1, allocation_id = await allocated(world)
    await register(world, ada)
    kept = await register(world, bea)
    await choose(world, allocation_id, ada, bea)
    await install_next_set(world, n1)
    await choose(world, allocation_id, bea)
    assert await install_next_set(world, n1) == [f"{kept.public_key} bea"]
    await choose(world, allocation_id)
    assert await install_next_set(world, n1) == []
    assert (await shown(world, allocation_id)).state == "installed"


async def test_a_new_key_is_installed_at_once_and_a_deleted_one_is_removed(world: World) -> None:
    ada = await admin(world, "ada")
    n1, allocation_id = await allocated(world)
    assert (await choose(world, allocation_id, ada)).people[0].why_not == "they have registered no key"
    assert await world.next_task(n1) is None
    key = await register(world, ada)
    await later(world, 0)
    assert await install_next_set(world, n1) == [f"{key.public_key} ada"]
    await world.call(ssh_keys.SSH_KEY_DELETE, token=ada.token, ssh_key_id=key.ssh_key_id)
    await later(world, 0)
    assert await install_next_set(world, n1) == []


async def test_the_keys_of_a_person_who_leaves_the_project_are_removed_with_the_next_set(world: World) -> None:
    ada = await world.person("ada")
    given = await world.call(
        bindings.PROJECT_BINDING_CREATE, bindings.BindRole(user_id=ada.user_id, role="project_admin")
    )
    n1, allocation_id = await allocated(world)
    await register(world, ada)
    await choose(world, allocation_id, ada)
    await install_next_set(world, n1)
    await world.call(bindings.PROJECT_BINDING_DELETE, binding_id=given.binding_id)
    assert (await shown(world, allocation_id)).state == "pending"
    await later(world)
    assert await install_next_set(world, n1) == []
    (gone,) = (await shown(world, allocation_id)).people
    why = "none of their roles in the project lets them log in as root (access.machine.root)"
    assert (gone.fingerprints, gone.why_not) == ([], why)


async def test_people_who_may_not_be_root_or_who_are_disabled_get_no_key_installed(world: World) -> None:
    member, ada = await world.person("vic", "project_member", world.project_id), await admin(world, "ada")
    n1, allocation_id = await allocated(world)
    for person in (member, ada):
        await register(world, person)
    await choose(world, allocation_id, member, ada)
    assert len(await install_next_set(world, n1)) == 1
    await world.call(users.USER_DISABLE, user_id=ada.user_id)
    await later(world)
    assert await install_next_set(world, n1) == []
    people = {person.name: person.why_not for person in (await shown(world, allocation_id)).people}
    assert people["ada"] == "they are disabled"
    assert "access.machine.root" in people["vic"]


async def test_a_failed_installation_of_keys_is_tried_again_until_it_succeeds(world: World) -> None:
    ada = await admin(world, "ada")
    n1, allocation_id = await allocated(world)
    await register(world, ada)
    await choose(world, allocation_id, ada)
    await world.finish_task(n1, "failed")
    stuck = await shown(world, allocation_id)
    assert (stuck.state, stuck.error) == ("pending", "boom: it broke")
    await later(world, 0)
    assert await world.next_task(n1) is None, "not at once"
    await later(world, 16)
    assert len(await install_next_set(world, n1)) == 1
    healed = await shown(world, allocation_id)
    assert (healed.state, healed.error) == ("installed", "")


async def test_a_set_that_changes_while_the_machine_is_silent_ends_as_the_last_one(world: World) -> None:
    ada = await admin(world, "ada")
    n1, allocation_id = await allocated(world)
    first = await register(world, ada)
    await choose(world, allocation_id, ada)
    second = await register(world, ada)
    await later(world, 0)
    assert await install_next_set(world, n1) == [f"{first.public_key} ada"]
    assert (await shown(world, allocation_id)).state == "pending", (
        "the answer about an earlier set does not count for the last one"
    )
    assert len(await install_next_set(world, n1)) == 2
    assert set((await shown(world, allocation_id)).installed) == {first.fingerprint, second.fingerprint}


async def test_a_released_allocation_takes_no_people_and_is_forgotten(world: World) -> None:
    ada = await admin(world, "ada")
    n1, allocation_id = await allocated(world)
    await register(world, ada)
    await choose(world, allocation_id, ada)
    await install_next_set(world, n1)
    await world.call(capacity.ALLOCATION_RELEASE, allocation_id=allocation_id)
    await world.finish_task(n1)
    with pytest.raises(errors.Conflict, match="no one can log in"):
        await choose(world, allocation_id, ada)
    await later(world)
    assert (await shown(world, allocation_id)).people == []


async def test_admins_choose_people_and_the_choice_is_on_the_record(world: World) -> None:
    ada = await world.person("ada", "project_member", world.project_id)
    _, allocation_id = await allocated(world)
    body = {"user_ids": [ada.user_id]}
    denied = await world.send(ssh_keys.ALLOCATION_KEYS_SET, body, token=ada.token, allocation_id=allocation_id)
    assert denied.status_code == 403
    with pytest.raises(errors.ValidationFailed, match="no user"):
        await world.call(ssh_keys.ALLOCATION_KEYS_SET, {"user_ids": ["user_none"]}, allocation_id=allocation_id)
    await choose(world, allocation_id, ada)
    trail = await world.call(audit.AUDIT_LIST, query={"action": "capacity.allocation_keys.set"})
    assert trail.items[-1].details == body


async def test_a_dry_run_sends_nothing_to_the_machine(world: World) -> None:
    ada = await admin(world, "ada")
    n1, allocation_id = await allocated(world)
    await register(world, ada)
    body, query = {"user_ids": [ada.user_id]}, {"dry_run": "true"}
    answer = await world.call(ssh_keys.ALLOCATION_KEYS_SET, body, query=query, allocation_id=allocation_id)
    assert (answer.state, len(answer.people)) == ("pending", 1)
    assert await world.next_task(n1) is None
    assert (await shown(world, allocation_id)).people == []
