"""Service accounts of a project or an organisation, and their keys. A key's secret is shown once. A token made with a
key expires with the key."""

import datetime
import functools
from collections.abc import Collection
from dataclasses import dataclass

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.event_types import ServiceAccountBound
from gpuaas_contract.identity import RotateServiceAccountKey, ServiceAccount, ServiceAccountKey, ServiceAccountKeyInfo
from gpuaas_contract.paths import (
    OrgAccountKeyPath,
    OrgAccountPath,
    OrgPath,
    ProjectPath,
    ServiceAccountKeyPath,
    ServiceAccountPath,
)
from gpuaas_contract.permissions import PROGRAM_KEYS, ROLES
from gpuaas_contract.wire import NoBody, Page, PageQuery

from gpuaas_platform.call import Call, Origin, Owned, Owner
from gpuaas_platform.identity import rules, store
from gpuaas_platform.identity.facts import AccountLostAccess
from gpuaas_platform.identity.tokens import store as token_store
from gpuaas_platform.kit import db, ids, paging, structs
from gpuaas_platform.record import service as record

_OWNED = "project_id = $1 AND state <> 'deleted'"
"""The accounts of a project or of an organisation."""

OwnerCall = Call[ProjectPath] | Call[OrgPath]
AccountCall = Call[ServiceAccountPath] | Call[OrgAccountPath]
KeyCall = Call[ServiceAccountKeyPath] | Call[OrgAccountKeyPath]


@dataclass(frozen=True)
class Reach:
    """What a service account can do: the apps that it operates, and its permissions."""

    apps: Collection[str]
    permissions: Collection[str]


async def create(tx: db.Tx, call: OwnerCall, name: str, reach: Reach) -> ServiceAccount:
    rules.check_account_name(name)
    owner = call.owner
    if await store.SERVICE_ACCOUNTS.find(tx, f"{_OWNED} AND name = $2", _owner_id(call), name):
        kind = "project" if owner.project_id else "organisation"
        raise errors.Conflict(f"The {kind} already has a service account named {name}.")
    account = ServiceAccount(
        service_account_id=ids.new("sa"),
        org_id=owner.org_id,
        project_id=owner.project_id,
        name=name,
        state="active",
        created_by=call.caller.actor_id,
        created_at=call.now,
        apps=sorted(reach.apps),
        permissions=sorted(reach.permissions),
    )
    await store.SERVICE_ACCOUNTS.insert(tx, account)
    call.details.update(apps=account.apps, permissions=account.permissions)
    return account


async def bind(tx: db.Tx, call: AccountCall, reach: Reach) -> ServiceAccount:
    account = await set_reach(tx, call.origin, await _not_deleted(tx, call), reach)
    call.details.update(apps=account.apps, permissions=account.permissions)
    return account


async def set_reach(
    tx: db.Tx, origin: Origin, account: ServiceAccount, reach: Reach, reason: str = ""
) -> ServiceAccount:
    """Save the apps and permissions of an account. They count from its next request on. If the permissions change, the
    projects that accept the account get the event too."""
    bound = msgspec.structs.replace(account, apps=sorted(reach.apps), permissions=sorted(reach.permissions))
    await store.SERVICE_ACCOUNTS.save(tx, bound)
    before = {"was": account.apps, "permissions_before": account.permissions}
    payload = structs.pick(ServiceAccountBound, bound, **before, bound_by=origin.caller.actor_id, reason=reason)
    accepting = await store.accepting_projects(tx, [bound.service_account_id])
    concerned = accepting.get(bound.service_account_id, []) if bound.permissions != account.permissions else []
    owners: list[Owned] = [bound, *(Owner(bound.org_id, project_id) for project_id in concerned)]
    for owner in owners:
        await record.emit(tx, origin, "identity.service_account.bound", payload, owner)
    return bound


async def list_accounts(
    reader: db.Reader, call: Call[ProjectPath, PageQuery] | Call[OrgPath, PageQuery]
) -> Page[ServiceAccount]:
    return await paging.documents(reader, store.SERVICE_ACCOUNTS, call.query, _OWNED, _owner_id(call))


async def get(reader: db.Reader, call: AccountCall) -> ServiceAccount:
    """Return the account that the path names by id or name. It must belong to the project or organisation there."""
    account = await owned(reader, _owner_id(call), call.path.service_account_id)
    if account is None:
        raise errors.NotFound
    return account


async def owned(reader: db.Reader, owner_id: str, named: str) -> ServiceAccount | None:
    """Return the account of a project or organisation with this id or name. A deleted one is found only by its id."""
    where = "project_id = $1 AND (service_account_id = $2 OR (name = $2 AND state <> 'deleted'))"
    return rules.with_id_or_name(await store.SERVICE_ACCOUNTS.find(reader, where, owner_id, named), named)


async def accepted(reader: db.Reader, project_id: str, named: str) -> store.Acceptance | None:
    """Return the acceptance, by a project, of the account with this id or name."""
    present = await store.ACCEPTED_ACCOUNTS.find(reader, "project_id = $1", project_id)
    return rules.with_id_or_name(present, named)


async def owned_by(reader: db.Reader, project_id: str) -> list[str]:
    return await store.SERVICE_ACCOUNTS.keys(reader, _OWNED, project_id)


async def active(reader: db.Reader, project_id: str, named: str) -> ServiceAccount | None:
    """Return the active account with this id or name that may work in the project: its own or, if it has none with this
    name, one that it accepts. None if there is none."""
    account = await owned(reader, project_id, named) or await _accepted(reader, project_id, named)
    return account if account is not None and account.state == "active" else None


to_bind = store.accounts_to_bind


async def bind_at_upgrade(tx: db.Tx, origin: Origin, account: ServiceAccount, apps: Collection[str]) -> None:
    """Bind an account of an earlier release to the apps that it operated. It keeps the permissions that it had."""
    keys = ROLES["service_account"] if apps else PROGRAM_KEYS
    bound = await set_reach(tx, origin, account, Reach(apps, keys), rules.upgrade_warning(account.name, apps))
    details = {"apps": bound.apps, "permissions": bound.permissions, "reason": "upgrade"}
    target = bound.service_account_id
    await record.audit(tx, origin, "identity.service_account.bind", target, bound, details=details)
    await store.forget_account_to_bind(tx, target)


async def disable(tx: db.Tx, call: AccountCall, _: NoBody) -> ServiceAccount:
    """Disable an account. If it belongs to a project, its leases end there. `acceptances` ends those of accounts of the
    organisation."""
    account = await _not_deleted(tx, call)
    await token_store.end_tokens_of(tx, account.service_account_id)
    await _end_leases(tx, call, account)
    return await _to_state(tx, account, "disabled")


async def enable(tx: db.Tx, call: AccountCall, _: NoBody) -> ServiceAccount:
    return await _to_state(tx, await _not_deleted(tx, call), "active")


async def delete(tx: db.Tx, call: AccountCall, _: NoBody) -> ServiceAccount:
    account = await get(tx, call)
    await token_store.end_keys_of(tx, account.service_account_id)
    await token_store.end_tokens_of(tx, account.service_account_id)
    await _end_leases(tx, call, account)
    return await _to_state(tx, account, "deleted")


async def create_key(tx: db.Tx, call: AccountCall, _: NoBody) -> ServiceAccountKey:
    account = await _not_deleted(tx, call)
    secret, key_id = ids.new_secret("sak"), ids.new("key")
    await token_store.add_key(
        tx, key_id, account.service_account_id, ids.digest(secret), created_by=call.caller.actor_id, now=call.now
    )
    return ServiceAccountKey(key_id=key_id, service_account_id=account.service_account_id, client_secret=secret)


async def list_keys(
    reader: db.Reader, call: Call[ServiceAccountPath, PageQuery] | Call[OrgAccountPath, PageQuery]
) -> Page[ServiceAccountKeyInfo]:
    account = await get(reader, call)
    read = functools.partial(token_store.keys_of, reader, account.service_account_id, call.now)
    return await paging.page("keys", call.query, read, lambda key: key.key_id)


async def rotate_key(tx: db.Tx, call: KeyCall, body: RotateServiceAccountKey) -> ServiceAccountKey:
    old = await _key(tx, call)
    new = await create_key(tx, call, NoBody())
    ends_at = call.now + datetime.timedelta(seconds=body.grace_s)
    if body.grace_s == 0:
        await token_store.end_key(tx, old.key_id)
    elif old.expires_at is None or old.expires_at > ends_at:
        await token_store.let_key_expire(tx, old.key_id, ends_at)
    return new


async def revoke_key(tx: db.Tx, call: KeyCall, _: NoBody) -> ServiceAccountKeyInfo:
    key = await _key(tx, call)
    await token_store.end_key(tx, key.key_id)
    return key


async def _key(tx: db.Tx, call: KeyCall) -> ServiceAccountKeyInfo:
    account = await get(tx, call)
    key = await token_store.key(tx, account.service_account_id, call.path.key_id, call.now)
    if key is None:
        raise errors.NotFound("The service account has no key with this id.")
    return key


async def _accepted(reader: db.Reader, project_id: str, named: str) -> ServiceAccount | None:
    acceptance = await accepted(reader, project_id, named)
    return await store.SERVICE_ACCOUNTS.get(reader, acceptance.service_account_id) if acceptance else None


async def _end_leases(tx: db.Tx, call: AccountCall, account: ServiceAccount) -> None:
    if account.project_id:
        lost = AccountLostAccess(call.origin, account.project_id, account.service_account_id)
        await call.site.reactions.react(tx, lost)


def _owner_id(call: Call) -> str:
    return call.project.project_id if call.project is not None else call.owner.org_id


async def _not_deleted(tx: db.Tx, call: AccountCall) -> ServiceAccount:
    account = await get(tx, call)
    if account.state == "deleted":
        raise errors.Conflict(f"The service account {account.name} was deleted.", fix="Create a new one.")
    return account


async def _to_state(tx: db.Tx, account: ServiceAccount, state: str) -> ServiceAccount:
    changed = msgspec.structs.replace(account, state=state)
    await store.SERVICE_ACCOUNTS.save(tx, changed)
    return changed
