"""People's SSH keys, and the complete set of keys that open the user with sudo of each allocation's machine.

Everyone's keys also open their own account, without sudo: see `allocations.people`.

The loop compares the keys on each machine with the chosen people, their keys and their role bindings. It queues tasks
until the machine has the wanted keys.
"""

import datetime
import functools
from collections import defaultdict
from collections.abc import Mapping, Sequence

from gpuaas_contract import errors
from gpuaas_contract.capacity import Allocation
from gpuaas_contract.event_types import AllocationKeysChanged
from gpuaas_contract.lifecycles import LIVE_ALLOCATION
from gpuaas_contract.paths import AllocationPath, Path, SshKeyPath
from gpuaas_contract.ssh_keys import SSH_KEYS_PER_PERSON_MAX, AddSshKey, AllocationKeys, SetAllocationPeople, SshKey
from gpuaas_contract.wire import NoBody, PageQuery

from gpuaas_platform.allocations import installation
from gpuaas_platform.allocations import service as allocations
from gpuaas_platform.allocations.installation import InstalledSet
from gpuaas_platform.allocations.keys import rules, store
from gpuaas_platform.call import Call, Origin, Site
from gpuaas_platform.identity import authority
from gpuaas_platform.identity.posix import service as posix
from gpuaas_platform.identity.users import service as users
from gpuaas_platform.kit import clock, db, ids, names, paging, structs
from gpuaas_platform.kit.paging import EncodedPage
from gpuaas_platform.nodes.tasks import service as tasks
from gpuaas_platform.record import service as record

TASK = "allocation.install_authorized_keys"
_PERMISSION = "access.machine.root"
"""The keys log in as the allocation's user, which has sudo."""


async def add(tx: db.Tx, call: Call, body: AddSshKey) -> SshKey:
    if call.caller.actor_type != "user":
        fix = "Use machine access, which gives a certificate."
        raise errors.PermissionDenied("Only people have SSH keys; a service account gets a certificate.", fix=fix)
    user_id, parsed = call.caller.actor_id, rules.read_public_key(body.public_key, body.comment)
    present = await store.SSH_KEYS.find(tx, "user_id = $1", user_id)
    if any(key.fingerprint == parsed.fingerprint for key in present):
        raise errors.Conflict("You have registered this key already.", details={"fingerprint": parsed.fingerprint})
    if len(present) >= SSH_KEYS_PER_PERSON_MAX:
        fix = "Delete one that you do not use: gpuaas ssh-key list, then gpuaas ssh-key delete KEY"
        raise errors.Conflict(f"You have {len(present)} keys, which is the limit.", fix=fix)
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
    await _mark_due(tx, call, key)
    return key


async def list_keys(reader: db.Reader, call: Call[Path, PageQuery]) -> EncodedPage[SshKey]:
    return await paging.encoded(reader, store.SSH_KEYS, call.query, "user_id = $1", call.caller.actor_id)


async def delete(tx: db.Tx, call: Call[SshKeyPath], _: NoBody) -> SshKey:
    """Delete a key of the caller, named by id, fingerprint, or a comment that only one of their keys has."""
    name = call.path.ssh_key_id
    own = await store.SSH_KEYS.find(tx, "user_id = $1", call.caller.actor_id)
    matching = [key for key in own if name in (key.ssh_key_id, key.fingerprint, key.comment)]
    key = names.only(matching, name, lambda match: match.ssh_key_id)
    if key is None:
        raise errors.NotFound(f"You have no SSH key {name}.")
    await store.SSH_KEYS.delete(tx, key.ssh_key_id)
    await _mark_due(tx, call, key)
    return key


async def choose(tx: db.Tx, call: Call[AllocationPath], body: SetAllocationPeople) -> AllocationKeys:
    """Set the people whose keys are on the allocation's machine."""
    allocation = await allocations.get(tx, call)
    if allocation.status not in LIVE_ALLOCATION:
        raise errors.Conflict(f"The allocation is {allocation.status}; no one can log in to it any more.")
    wanted = set()
    for named in body.user_ids:
        user_id = await users.id_of(tx, call, named)
        if user_id is None:
            raise errors.ValidationFailed(f"There is no person {named}.", details={"field": "user_ids"})
        wanted.add(user_id)
    call.details["user_ids"] = sorted(wanted)
    await store.set_people(tx, allocation.allocation_id, sorted(wanted))
    present = await store.key_set(tx, allocation.allocation_id) or installation.new_set(allocation.allocation_id)
    chosen = await _chosen(tx, [allocation.allocation_id], call.now)
    await _install(tx, call.site, call.origin, allocation, present, chosen[allocation.allocation_id])
    return await get(tx, call)


async def get(reader: db.Reader, call: Call[AllocationPath]) -> AllocationKeys:
    allocation_id = (await allocations.get(reader, call)).allocation_id
    present = await store.key_set(reader, allocation_id) or installation.new_set(allocation_id)
    chosen = (await _chosen(reader, [allocation_id], call.now))[allocation_id]
    is_installed = present.digest == rules.digest(chosen) and not present.asked
    state = "installed" if is_installed else "pending"
    return structs.pick(AllocationKeys, present, people=rules.shown(chosen), state=state)


async def due(reader: db.Reader, now: datetime.datetime, *, compare_all: bool) -> list[str]:
    """Return ids of allocations whose key set needs a write. `compare_all`: compare every key set with the roles."""
    at = clock.micros(now)
    stored = await store.key_sets(reader, store.NEVER if compare_all else at)
    chosen = await _chosen(reader, None, now) if compare_all and stored else {}

    def needs_write(item: store.StoredSet) -> bool:
        if item.check_at <= at or item.allocation_status not in LIVE_ALLOCATION:
            return True
        is_prepared = item.allocation_status != "requested"
        return is_prepared and installation.must_install(
            item.key_set, rules.digest(chosen[item.key_set.allocation_id]), now
        )

    return [item.key_set.allocation_id for item in stored if needs_write(item)]


async def install(tx: db.Tx, site: Site, origin: Origin, allocation_ids: Sequence[str]) -> None:
    """Queue the tasks that install the wanted keys on these machines. Delete the key sets of released allocations."""
    present, chosen = await allocations.many(tx, allocation_ids), await _chosen(tx, allocation_ids, origin.now)
    for allocation_id in allocation_ids:
        allocation, key_set = present.get(allocation_id), await store.key_set(tx, allocation_id)
        if allocation is None or allocation.status not in LIVE_ALLOCATION:
            await store.delete(tx, allocation_id)
        elif key_set is not None:
            await _install(tx, site, origin, allocation, key_set, chosen[allocation_id])


async def installation_ended(tx: db.Tx, origin: Origin, allocation: Allocation, task_id: str, error: str) -> None:
    """Record the result of an installation of keys, or that the machine did not answer in time."""
    present = await store.key_set(tx, allocation.allocation_id)
    if present is None:
        return
    after = installation.ended(present, task_id, error, origin.now)
    await store.save(tx, after, clock.micros(after.retry_at) if after.retry_at else 0)
    if after.installed != present.installed:
        payload = structs.pick(AllocationKeysChanged, allocation, installed=after.installed)
        await record.emit(tx, origin, "capacity.allocation.keys_installed", payload, allocation)


async def forget_installed(tx: db.Tx, allocation_id: str) -> None:
    """Record that the machine has no keys, because it was reinstalled."""
    if await store.key_set(tx, allocation_id) is not None:
        await store.save(tx, installation.new_set(allocation_id), 0)


async def _chosen(
    reader: db.Reader, allocation_ids: Sequence[str] | None, now: datetime.datetime
) -> Mapping[str, list[rules.Chosen]]:
    """Return allocation id -> chosen people, for these allocations or for all. Who may log in is checked at each call.

    The number of SQL statements does not depend on the number of allocations."""
    people = await store.people(reader, allocation_ids)
    actors = await authority.actors(reader, {person.user_id for person in people}, now)

    @functools.cache
    def may_enter(user_id: str, org_id: str, project_id: str) -> bool:
        scopes = authority.scopes_of(org_id, project_id)
        return authority.can(actors[user_id].caller, _PERMISSION, scopes) == "allowed"

    chosen: dict[str, list[rules.Chosen]] = defaultdict(list)
    for person in people:
        if (actor := actors.get(person.user_id)) is not None:
            with_key = rules.Chosen(
                user_id=person.user_id,
                name=actor.caller.name,
                is_active=actor.state == "active",
                may_enter=may_enter(person.user_id, person.org_id, person.project_id),
                public_key=person.key.public_key if person.key else "",
                fingerprint=person.key.fingerprint if person.key else "",
            )
            chosen[person.allocation_id].append(with_key)
    return chosen


async def _install(
    tx: db.Tx, site: Site, origin: Origin, allocation: Allocation, present: InstalledSet, chosen: Sequence[rules.Chosen]
) -> None:
    after, has_user = present, allocation.status != "requested"
    if has_user and installation.must_install(present, rules.digest(chosen), origin.now):
        keys = rules.wanted(chosen)
        allocation_id, user = allocation.allocation_id, allocation.username_on_node
        params = {"allocation_id": allocation_id, "user": user, "public_keys": rules.lines(keys)}
        about = (allocation.node_id, TASK, allocation_id)
        task_id = await tasks.queue(tx, site, origin, *about, params, project_id=allocation.project_id)
        after = installation.asked(present, rules.digest(chosen), [key.fingerprint for key in keys], task_id)
    is_pausing = installation.is_pausing(after, origin.now)
    await store.save(tx, after, clock.micros(after.retry_at) if is_pausing and after.retry_at else store.NEVER)


async def _mark_due(tx: db.Tx, call: Call, key: SshKey) -> None:
    call.details["fingerprint"] = key.fingerprint
    await store.mark_due(tx, key.user_id)
    tx.wake(allocations.LOOP)
    tx.wake(posix.TOPIC)
