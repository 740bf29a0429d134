"""People's SSH keys, and the complete set of them that each allocation's machine is told to have.

Level-triggered: the sweep compares what the machine has with what the people who were chosen, their keys and their
roles say now, and tells the machine again until it has it.
"""

from collections.abc import Sequence

from gpuaas_contract import errors
from gpuaas_contract.capacity import Allocation
from gpuaas_contract.event_types import AllocationKeysChanged
from gpuaas_contract.ssh_keys import SSH_KEYS_PER_PERSON_MAX, AddSshKey, AllocationKeys, SshKey

from gpuaas_platform.allocations import service
from gpuaas_platform.allocations import store as capacity_store
from gpuaas_platform.allocations.keys import rules, store
from gpuaas_platform.call import Call, Origin, Site
from gpuaas_platform.identity.users import service as users
from gpuaas_platform.kit import clock, db, ids, names
from gpuaas_platform.nodes import service as nodes
from gpuaas_platform.record import service as record

TASK = "allocation.install_authorized_keys"
_LIVING = ("requested", "provisioning", "active")


async def add(tx: db.Tx, call: Call, body: AddSshKey) -> SshKey:
    if call.caller.actor_type != "user":
        raise errors.PermissionDenied("Only people have SSH keys; a service account gets a certificate.")
    user_id, parsed = call.caller.actor_id, rules.read_public_key(body.public_key, body.comment)
    present = await store.SSH_KEYS.find(tx, "user_id = $1", user_id)
    if any(key.fingerprint == parsed.fingerprint for key in present):
        raise errors.Conflict("You have registered this key already.", details={"fingerprint": parsed.fingerprint})
    if len(present) >= SSH_KEYS_PER_PERSON_MAX:
        raise errors.Conflict(f"You have {len(present)} keys, which is the most.", fix="Delete one you do not use.")
    key = SshKey(
        ssh_key_id=ids.new("sshkey"),
        user_id=user_id,
        algorithm=parsed.algorithm,
        fingerprint=parsed.fingerprint,
        comment=parsed.comment,
        public_key=parsed.line,
        created_at=call.now,
    )
    await store.SSH_KEYS.insert(tx, key)
    await _look_again(tx, call, key)
    return key


async def delete(tx: db.Tx, call: Call, ssh_key_id: str) -> SshKey:
    """By id, fingerprint, or a comment that only one of the caller's keys has."""
    own = await store.SSH_KEYS.find(tx, "user_id = $1", call.caller.actor_id)
    found = [key for key in own if ssh_key_id in (key.ssh_key_id, key.fingerprint, key.comment)]
    key = names.only(found, ssh_key_id, lambda found: found.ssh_key_id)
    if key is None:
        raise errors.NotFound(f"You have no SSH key {ssh_key_id}.")
    await store.delete_key(tx, key.ssh_key_id)
    await _look_again(tx, call, key)
    return key


async def choose(tx: db.Tx, call: Call, allocation_id: str, user_ids: Sequence[str]) -> AllocationKeys:
    allocation = await service.in_project(tx, call.in_project().project_id, allocation_id)
    if allocation.status not in _LIVING:
        raise errors.Conflict(f"The allocation is {allocation.status}; nobody gets into it any more.")
    named = [await users.id_of(tx, call, user_id) for user_id in user_ids]
    if None in named:
        unknown = user_ids[named.index(None)]
        raise errors.ValidationFailed(f"There is no person {unknown}.", details={"field": "user_ids"})
    wanted = sorted({user_id for user_id in named if user_id})
    call.details["user_ids"] = wanted
    await store.set_people(tx, allocation.allocation_id, wanted)
    present = await store.key_set(tx, allocation.allocation_id)
    await _settle_one(tx, call.site, call.origin, allocation, present or rules.new_set(allocation.allocation_id))
    return await shown(tx, call, allocation.allocation_id)


async def shown(reader: db.Reader, call: Call, allocation_id: str) -> AllocationKeys:
    allocation_id = (await service.in_project(reader, call.in_project().project_id, allocation_id)).allocation_id
    present = await store.key_set(reader, allocation_id) or rules.new_set(allocation_id)
    chosen = (await store.chosen(reader, [allocation_id], clock.micros(call.now))).get(allocation_id, [])
    has_it = present.digest == rules.digest(rules.lines(rules.wanted(chosen))) and not present.asked
    return AllocationKeys(
        allocation_id=allocation_id,
        people=rules.shown(chosen),
        state="installed" if has_it else "pending",
        installed=present.installed,
        installed_at=present.installed_at,
        error=present.error,
    )


async def settle(tx: db.Tx, site: Site, origin: Origin) -> None:
    for present in await store.due(tx, clock.micros(origin.now)):
        allocation = await capacity_store.ALLOCATIONS.get(tx, present.allocation_id)
        if allocation is None or allocation.status not in _LIVING:
            await store.forget(tx, present.allocation_id)
        else:
            await _settle_one(tx, site, origin, allocation, present)


async def told(tx: db.Tx, origin: Origin, allocation: Allocation, task_id: str, error: str) -> None:
    """The machine has answered, or its time was up."""
    present = await store.key_set(tx, allocation.allocation_id)
    if present is None:
        return
    after = rules.answered(present, task_id, error, origin.now)
    await store.save(tx, after, 0)
    if after.installed != present.installed:
        payload = AllocationKeysChanged(
            allocation_id=allocation.allocation_id, node_name=allocation.node_name, installed=after.installed
        )
        where = {"org_id": allocation.org_id, "project_id": allocation.project_id}
        await record.emit(tx, origin, "capacity.allocation.keys_installed", payload, **where)


async def _settle_one(tx: db.Tx, site: Site, origin: Origin, allocation: Allocation, present: rules.KeySet) -> None:
    found = await store.chosen(tx, [allocation.allocation_id], clock.micros(origin.now))
    keys = rules.wanted(found.get(allocation.allocation_id, []))
    after, has_user = present, allocation.status != "requested"
    if has_user and rules.next_step(present, rules.digest(rules.lines(keys)), origin.now) == "tell":
        after = rules.asked(present, keys, await _tell(tx, site, origin, allocation, rules.lines(keys)))
    await store.save(tx, after, clock.micros(origin.now + rules.RECHECK_AFTER))


async def _tell(tx: db.Tx, site: Site, origin: Origin, allocation: Allocation, lines: Sequence[str]) -> str:
    params: dict[str, object] = {
        "allocation_id": allocation.allocation_id,
        "user": allocation.username_on_node,
        "public_keys": list(lines),
    }
    return await nodes.queue_task(tx, site, origin, allocation.node_id, TASK, allocation.allocation_id, params)


async def _look_again(tx: db.Tx, call: Call, key: SshKey) -> None:
    call.details["fingerprint"] = key.fingerprint
    await store.look_at_sets_of(tx, key.user_id)
    tx.wake(capacity_store.LOOP)
