"""Give each person a login name and a number when they get their first role in an organisation.

Write transactions run one at a time, so two people never get the same number. `allocations.people` puts the accounts on
machines."""

import datetime
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from gpuaas_contract import errors
from gpuaas_contract.paths import OrgPath
from gpuaas_contract.posix import PosixIdentity, SetPosixIdentity

from gpuaas_platform.call import Call
from gpuaas_platform.identity import store as identity_store
from gpuaas_platform.identity.posix import rules, store
from gpuaas_platform.identity.users import service as users
from gpuaas_platform.kit import db
from gpuaas_platform.kit.settings import Settings

TOPIC = identity_store.PEOPLE_TOPIC
_SKIPPED_AFTER_RESTORE = 500
"""More numbers than an organisation gives between a backup and its restore. They may own files on machines."""
identity_of = store.get
missing = store.missing
reserve = store.reserve


async def ensure(tx: db.Tx, settings: Settings, org_id: str, user_id: str, now: datetime.datetime) -> PosixIdentity:
    """Return the person's identity in the organisation. Give them one if they have none."""
    tx.wake(TOPIC)
    present = await store.get(tx, org_id, user_id)
    if present is not None:
        return present
    row = await identity_store.user(tx, user_id)
    name = str(row["name"]) if row is not None else ""
    given = await store.of_orgs(tx, org_id)
    taken = {identity.login for identity in given} | await store.reserved(tx)
    next_uid = await store.next_uid(tx, org_id, settings.posix_uid_first)
    uid = rules.free_uid(next_uid, {identity.uid for identity in given}, settings.posix_uid_last)
    await store.set_next_uid(tx, org_id, uid + 1)
    return await _add(tx, org_id, user_id, rules.free_login(name, taken.__contains__), uid, now)


async def set_identity(tx: db.Tx, call: Call[OrgPath], body: SetPosixIdentity) -> PosixIdentity:
    """Set login and number of a person who has none. A repeat with the same values changes nothing."""
    org_id, user_id = call.owner.org_id, await users.id_of(tx, call, body.user_id)
    present = await store.get(tx, org_id, user_id)
    if present is not None and (present.login, present.uid) == (body.login, body.uid):
        return present
    if present is not None:
        raise errors.Conflict(
            f"This person is {present.login} with number {present.uid} in the organisation. Both never change, because "
            "files belong to the number.",
            details={"login": present.login, "uid": present.uid},
            fix="Set login and number before the person gets a role in the organisation.",
        )
    rules.check_set(body.login, body.uid, await store.reserved(tx))
    for other in await store.of_orgs(tx, org_id):
        if body.login == other.login or body.uid == other.uid:
            what = f"login {body.login}" if body.login == other.login else f"number {body.uid}"
            raise errors.Conflict(f"The {what} belongs to another person of the organisation.")
    call.details.update(user_id=user_id, login=body.login, uid=body.uid)
    return await _add(tx, org_id, user_id, body.login, body.uid, call.now)


async def skip_after_restore(tx: db.Tx) -> None:
    """Never give the numbers again that were given after the backup was made."""
    await store.skip_numbers(tx, _SKIPPED_AFTER_RESTORE)


async def identities(reader: db.Reader, org_id: str = "") -> Mapping[str, Mapping[str, PosixIdentity]]:
    """Return organisation -> person -> identity, for one organisation or for all."""
    by_org: dict[str, dict[str, PosixIdentity]] = defaultdict(dict)
    for identity in await store.of_orgs(reader, org_id):
        by_org[identity.org_id][identity.user_id] = identity
    return by_org


async def people_by_scope(
    reader: db.Reader, now: datetime.datetime, scopes: Sequence[str] | None = None
) -> Mapping[str, Collection[str]]:
    """Return scope -> ids of the people who have a role there, for these scopes or for all."""
    people: dict[str, set[str]] = defaultdict(set)
    for scope, user_id in await store.scopes_with_people(reader, now, scopes):
        people[scope].add(user_id)
    return people


async def _add(tx: db.Tx, org_id: str, user_id: str, login: str, uid: int, now: datetime.datetime) -> PosixIdentity:
    identity = PosixIdentity(user_id=user_id, org_id=org_id, login=login, uid=uid, gid=uid, created_at=now)
    await store.add(tx, identity)
    return identity
