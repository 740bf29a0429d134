"""Sign-in, tokens, and the making of organisations, projects and service accounts. The edge asks `authenticate`."""

import asyncio
import datetime
import hmac

import argon2
from gpuaas_contract import errors
from gpuaas_contract.identity import Binding, Org, Project, ServiceAccount, ServiceAccountKey, Token

from gpuaas_platform.call import Call, Caller, Origin, Site
from gpuaas_platform.identity import store
from gpuaas_platform.kit import clock, db, ids
from gpuaas_platform.record import service as record

_HASHER = argon2.PasswordHasher()
_NOBODY = _HASHER.hash("nobody has this password")
_EXPIRED_TOKENS_KEPT_S = 86_400


async def authenticate(reader: db.Reader, token: str, now: datetime.datetime) -> Caller:
    """Look the token up on every call, so that what was revoked stops working with the next one."""
    row = await store.token(reader, ids.digest(token))
    if row is None:
        raise errors.TokenInvalid
    if row["expires_at"] <= clock.micros(now):
        raise errors.TokenExpired
    actor_id: str = row["actor_id"]
    if row["actor_type"] == "node":
        return Caller("node", actor_id)
    if row["actor_type"] == "service_account":
        return await _service_account_caller(reader, actor_id)
    name = await store.user_name(reader, actor_id)
    if name is None:
        raise errors.TokenInvalid
    return Caller("user", actor_id, name, await store.bindings(reader, actor_id))


async def login(call: Call, name: str, password: str) -> Token:
    database = call.site.database
    row = await store.user_by_name(database.reader, name)
    matches = await asyncio.to_thread(_password_matches, row["password_hash"] if row else _NOBODY, password)
    if row is None or not matches:
        await database.write(lambda tx: _audit_failed_login(tx, call.origin, name))
        raise errors.CredentialsInvalid
    caller = Caller("user", row["user_id"], name)
    return await database.write(
        lambda tx: issue_token(tx, _origin_of(call, caller), caller, call.site.settings.session_ttl_s)
    )


async def service_account_login(call: Call, key_id: str, client_secret: str) -> Token:
    database = call.site.database
    row = await store.key(database.reader, key_id)
    expected = row["secret_digest"] if row else ids.digest("")
    if not hmac.compare_digest(expected, ids.digest(client_secret)) or row is None:
        await database.write(lambda tx: _audit_failed_login(tx, call.origin, key_id))
        raise errors.CredentialsInvalid
    caller = await _service_account_caller(database.reader, row["service_account_id"])
    lifetime_s = call.site.settings.service_account_token_ttl_s
    return await database.write(lambda tx: issue_token(tx, _origin_of(call, caller), caller, lifetime_s))


async def issue_token(tx: db.Tx, origin: Origin, caller: Caller, lifetime_s: int) -> Token:
    secret = ids.new_secret({"user": "session", "service_account": "sat", "node": "node"}[caller.actor_type])
    expires_at = clock.micros(origin.now + datetime.timedelta(seconds=lifetime_s))
    await store.add_token(tx, ids.digest(secret), caller.actor_type, caller.actor_id, expires_at)
    await store.forget_tokens(tx, clock.micros(origin.now) - _EXPIRED_TOKENS_KEPT_S * 1_000_000)
    if caller.actor_type != "node":
        await record.audit(tx, origin, "auth.token.issue", caller.actor_id)
    return Token(access_token=secret, expires_in_s=lifetime_s)


async def set_password(site: Site, origin: Origin, name: str, password: str, role: str) -> None:
    """Make a person a platform-wide `role`, or give them a new password. Used at first start and for recovery."""
    password_hash = await asyncio.to_thread(_HASHER.hash, password)

    async def use_case(tx: db.Tx) -> None:
        await store.put_user(tx, ids.new("user"), name, password_hash)
        row = await store.user_by_name(tx, name)
        if row is None:
            raise LookupError(name)
        await store.bind(tx, row["user_id"], role, "platform")
        await record.audit(tx, origin, "identity.user.set_password", name)

    await site.database.write(use_case)


async def create_org(tx: db.Tx, call: Call, name: str) -> Org:
    _check_name(name)
    if await store.ORGS.find(tx, "name = $1", name):
        raise errors.Conflict(f"There is an organisation named {name} already.")
    org = Org(org_id=ids.new("org"), name=name, created_at=call.now)
    await store.ORGS.insert(tx, org)
    return org


async def create_project(tx: db.Tx, call: Call, name: str) -> Project:
    _check_name(name)
    org_id = call.params["org_id"]
    if await store.PROJECTS.find(tx, "org_id = $1 AND name = $2", org_id, name):
        raise errors.Conflict(f"The organisation has a project named {name} already.")
    project = Project(project_id=ids.new("proj"), org_id=org_id, name=name, created_at=call.now)
    await store.PROJECTS.insert(tx, project)
    return project


async def create_service_account(tx: db.Tx, call: Call, name: str) -> ServiceAccount:
    _check_name(name)
    project = call.in_project()
    if await store.SERVICE_ACCOUNTS.find(tx, "project_id = $1 AND name = $2", project.project_id, name):
        raise errors.Conflict(f"The project has a service account named {name} already.")
    account = ServiceAccount(
        service_account_id=ids.new("sa"),
        org_id=project.org_id,
        project_id=project.project_id,
        name=name,
        state="active",
        created_by=call.caller.actor_id,
        created_at=call.now,
    )
    await store.SERVICE_ACCOUNTS.insert(tx, account)
    return account


async def create_key(tx: db.Tx, call: Call, service_account_id: str) -> ServiceAccountKey:
    account = await store.SERVICE_ACCOUNTS.get(tx, service_account_id)
    if account is None or account.project_id != call.in_project().project_id:
        raise errors.NotFound
    secret = ids.new_secret("sak")
    key_id = ids.new("key")
    await store.add_key(tx, key_id, service_account_id, ids.digest(secret))
    return ServiceAccountKey(key_id=key_id, service_account_id=service_account_id, client_secret=secret)


async def _service_account_caller(reader: db.Reader, service_account_id: str) -> Caller:
    account = await store.SERVICE_ACCOUNTS.get(reader, service_account_id)
    if account is None or account.state != "active":
        raise errors.TokenInvalid
    binding = Binding(role="service_account", scope=account.project_id)
    return Caller("service_account", service_account_id, account.name, (binding,))


async def _audit_failed_login(tx: db.Tx, origin: Origin, name: str) -> None:
    await record.audit(tx, origin, "auth.login", name[:100], result="failure")


def _password_matches(password_hash: str, password: str) -> bool:
    try:
        return _HASHER.verify(password_hash, password)
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False


def _origin_of(call: Call, caller: Caller) -> Origin:
    return Origin(caller, call.origin.correlation_id, call.now)


def _check_name(name: str) -> None:
    if not (1 <= len(name) <= 63 and name.replace("-", "").replace("_", "").isalnum() and name.isascii()):
        raise errors.ValidationFailed(
            "A name has 1 to 63 letters, digits, hyphens or underscores.", details={"field": "name"}
        )
