"""Service accounts and their keys. A key's secret is shown once. A token made with a key expires with the key."""

import datetime
import functools
from collections.abc import Collection
from dataclasses import dataclass

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.event_types import ServiceAccountBound
from gpuaas_contract.identity import RotateServiceAccountKey, ServiceAccount, ServiceAccountKey, ServiceAccountKeyInfo
from gpuaas_contract.paths import ProjectPath, ServiceAccountKeyPath, ServiceAccountPath
from gpuaas_contract.permissions import PROGRAM_KEYS, ROLES
from gpuaas_contract.wire import NoBody, Page, PageQuery

from gpuaas_platform.call import Call, Origin
from gpuaas_platform.identity import rules, store
from gpuaas_platform.identity.tokens import store as token_store
from gpuaas_platform.kit import db, ids, paging, structs
from gpuaas_platform.record import service as record

_IN_PROJECT = "project_id = $1 AND state <> 'deleted'"


@dataclass(frozen=True)
class Reach:
    """What a service account can do: the apps that it operates, and its permissions."""

    apps: Collection[str]
    permissions: Collection[str]


async def create(tx: db.Tx, call: Call[ProjectPath], name: str, reach: Reach) -> ServiceAccount:
    rules.check_name(name)
    project = call.in_project()
    if await store.SERVICE_ACCOUNTS.find(tx, f"{_IN_PROJECT} AND name = $2", project.project_id, name):
        raise errors.Conflict(f"The project already has a service account named {name}.")
    account = ServiceAccount(
        service_account_id=ids.new("sa"),
        org_id=project.org_id,
        project_id=project.project_id,
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


async def bind(tx: db.Tx, call: Call[ServiceAccountPath], reach: Reach) -> ServiceAccount:
    account = await set_reach(tx, call.origin, await _not_deleted(tx, call), reach)
    call.details.update(apps=account.apps, permissions=account.permissions)
    return account


async def set_reach(
    tx: db.Tx, origin: Origin, account: ServiceAccount, reach: Reach, reason: str = ""
) -> ServiceAccount:
    """Save the apps and permissions of an account. They count from its next request on."""
    bound = msgspec.structs.replace(account, apps=sorted(reach.apps), permissions=sorted(reach.permissions))
    await store.SERVICE_ACCOUNTS.save(tx, bound)
    payload = structs.pick(ServiceAccountBound, bound, was=account.apps, bound_by=origin.caller.actor_id, reason=reason)
    await record.emit(tx, origin, "identity.service_account.bound", payload, bound)
    return bound


async def list_accounts(reader: db.Reader, call: Call[ProjectPath, PageQuery]) -> Page[ServiceAccount]:
    return await paging.documents(reader, store.SERVICE_ACCOUNTS, call.query, _IN_PROJECT, call.path.project_id)


async def get(reader: db.Reader, call: Call[ServiceAccountPath]) -> ServiceAccount:
    """Return the account that the path names by id or name. It must belong to the project of the path."""
    account = await _named(reader, call.path.project_id, call.path.service_account_id)
    if account is None:
        raise errors.NotFound
    return account


async def owned_by(reader: db.Reader, project_id: str) -> list[str]:
    return await store.SERVICE_ACCOUNTS.keys(reader, _IN_PROJECT, project_id)


async def active(reader: db.Reader, project_id: str, named: str) -> ServiceAccount | None:
    """Return the project's active account with this id or name; None if there is none."""
    account = await _named(reader, project_id, named)
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


async def disable(tx: db.Tx, call: Call[ServiceAccountPath], _: NoBody) -> ServiceAccount:
    account = await _not_deleted(tx, call)
    await token_store.end_tokens_of(tx, account.service_account_id)
    return await _to_state(tx, account, "disabled")


async def enable(tx: db.Tx, call: Call[ServiceAccountPath], _: NoBody) -> ServiceAccount:
    return await _to_state(tx, await _not_deleted(tx, call), "active")


async def delete(tx: db.Tx, call: Call[ServiceAccountPath], _: NoBody) -> ServiceAccount:
    account = await get(tx, call)
    await token_store.end_keys_of(tx, account.service_account_id)
    await token_store.end_tokens_of(tx, account.service_account_id)
    return await _to_state(tx, account, "deleted")


async def create_key(tx: db.Tx, call: Call[ServiceAccountPath], _: NoBody) -> ServiceAccountKey:
    account = await _not_deleted(tx, call)
    secret, key_id = ids.new_secret("sak"), ids.new("key")
    await token_store.add_key(
        tx, key_id, account.service_account_id, ids.digest(secret), created_by=call.caller.actor_id, now=call.now
    )
    return ServiceAccountKey(key_id=key_id, service_account_id=account.service_account_id, client_secret=secret)


async def list_keys(reader: db.Reader, call: Call[ServiceAccountPath, PageQuery]) -> Page[ServiceAccountKeyInfo]:
    account = await get(reader, call)
    read = functools.partial(token_store.keys_of, reader, account.service_account_id, call.now)
    return await paging.page("keys", call.query, read, lambda key: key.key_id)


async def rotate_key(tx: db.Tx, call: Call[ServiceAccountKeyPath], body: RotateServiceAccountKey) -> ServiceAccountKey:
    old = await _key(tx, call)
    new = await create_key(tx, call, NoBody())
    ends_at = call.now + datetime.timedelta(seconds=body.grace_s)
    if body.grace_s == 0:
        await token_store.end_key(tx, old.key_id)
    elif old.expires_at is None or old.expires_at > ends_at:
        await token_store.let_key_expire(tx, old.key_id, ends_at)
    return new


async def revoke_key(tx: db.Tx, call: Call[ServiceAccountKeyPath], _: NoBody) -> ServiceAccountKeyInfo:
    key = await _key(tx, call)
    await token_store.end_key(tx, key.key_id)
    return key


async def _key(tx: db.Tx, call: Call[ServiceAccountKeyPath]) -> ServiceAccountKeyInfo:
    account = await get(tx, call)
    key = await token_store.key(tx, account.service_account_id, call.path.key_id, call.now)
    if key is None:
        raise errors.NotFound("The service account has no key with this id.")
    return key


async def _named(reader: db.Reader, project_id: str, named: str) -> ServiceAccount | None:
    """Return the project's account with this id or name. A deleted account can be found only by its id."""
    account = await store.SERVICE_ACCOUNTS.get(reader, named)
    if account is None:
        accounts = await store.SERVICE_ACCOUNTS.find(reader, f"{_IN_PROJECT} AND name = $2", project_id, named)
        account = next(iter(accounts), None)
    return account if account is not None and account.project_id == project_id else None


async def _not_deleted(tx: db.Tx, call: Call[ServiceAccountPath]) -> ServiceAccount:
    account = await get(tx, call)
    if account.state == "deleted":
        raise errors.Conflict(f"The service account {account.name} was deleted.", fix="Create a new one.")
    return account


async def _to_state(tx: db.Tx, account: ServiceAccount, state: str) -> ServiceAccount:
    changed = msgspec.structs.replace(account, state=state)
    await store.SERVICE_ACCOUNTS.save(tx, changed)
    return changed
