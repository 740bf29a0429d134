"""Signing in and out, tokens and sessions. `admission` reads what is made here; nodes get tokens here too."""

import datetime
import hmac
from typing import NoReturn

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.identity import Binding, Token
from gpuaas_contract.sessions import Session

from gpuaas_platform.call import Call, Caller, Origin, Site
from gpuaas_platform.identity import store
from gpuaas_platform.identity.tokens import store as token_store
from gpuaas_platform.identity.users import passwords
from gpuaas_platform.kit import clock, db, ids
from gpuaas_platform.record import service as record

_EXPIRED_TOKENS_KEPT_S = 86_400
_NAME_KEPT_MAX = 100


async def all_bindings(reader: db.Reader, caller: Caller, now: datetime.datetime) -> tuple[Binding, ...]:
    """Every role a caller has; a call carries only those that reach its target."""
    return await store.bindings(reader, caller.actor_id, now) if caller.actor_type == "user" else caller.bindings


async def login(call: Call, name: str, password: str) -> Token:
    site = call.site
    user = await store.user_by_name(site.database.reader, name)
    password_hash = user["password_hash"] if user else ""
    keys = attempt_keys(call, name)
    matches = await passwords.matches(site.attempts, keys, call.now, password_hash, password)
    if user is None or not matches or user["state"] != "active":
        await _refuse(call, name)
    site.attempts.forget(keys[0])
    caller = Caller("user", user["user_id"], name)

    async def use_case(tx: db.Tx) -> Token:
        # The password took its time to check; meanwhile it may have been changed, or its owner disabled.
        present = await store.user(tx, caller.actor_id)
        if present is None or present["state"] != "active" or present["password_hash"] != password_hash:
            raise errors.CredentialsInvalid
        return await issue_token(tx, origin_of(call, caller), caller, site.settings.session_ttl_s)

    return await site.database.write(use_case)


async def service_account_login(call: Call, key_id: str, client_secret: str) -> Token:
    key = await token_store.key_secret(call.site.database.reader, key_id, call.now)
    expected = key["secret_digest"] if key else ids.digest("")
    if not hmac.compare_digest(expected, ids.digest(client_secret)) or key is None:
        await _refuse(call, key_id)

    async def use_case(tx: db.Tx) -> Token:
        return await _token_for_key(tx, call, key_id)

    return await call.site.database.write(use_case)


async def issue_token(
    tx: db.Tx,
    origin: Origin,
    caller: Caller,
    lifetime_s: int,
    *,
    key_id: str = "",
    until: datetime.datetime | None = None,
) -> Token:
    """`until` cuts the lifetime short: nothing made with a key outlives it."""
    secret = ids.new_secret({"user": "session", "service_account": "sat", "node": "node"}[caller.actor_type])
    expires_at = origin.now + datetime.timedelta(seconds=lifetime_s)
    expires_at = min(expires_at, until) if until else expires_at
    await token_store.add_token(
        tx,
        ids.digest(secret),
        caller.actor_type,
        caller.actor_id,
        token_id=ids.new("ses"),
        key_id=key_id,
        created_at=clock.micros(origin.now),
        expires_at=clock.micros(expires_at),
    )
    await token_store.forget_tokens(tx, clock.micros(origin.now) - _EXPIRED_TOKENS_KEPT_S * 1_000_000)
    if caller.actor_type != "node":
        await record.audit(tx, origin, "auth.token.issue", caller.actor_id)
    return Token(access_token=secret, expires_in_s=int((expires_at - origin.now).total_seconds()))


async def end_tokens_of(tx: db.Tx, actor_id: str) -> None:
    """End every token of this actor: its next call is refused."""
    await token_store.end_tokens_of(tx, actor_id)


async def sessions(reader: db.Reader, call: Call, *, after: str, limit: int) -> list[Session]:
    rows = await token_store.live_tokens(reader, call.caller.actor_id, call.now, after=after, limit=limit)
    return [_shown_session(row, call) for row in rows]


async def end_session(tx: db.Tx, call: Call, session_id: str) -> Session:
    row = await token_store.live_token(tx, call.caller.actor_id, session_id, call.now)
    if row is None:
        raise errors.NotFound("You have no such session.")
    await token_store.end_token(tx, session_id)
    return _shown_session(row, call)


async def make_first_admin(site: Site, origin: Origin, name: str, password: str) -> bool:
    """Whether this call made it: processes that start at once on one store must not each show a password."""
    password_hash = await passwords.hashed(password)

    async def use_case(tx: db.Tx) -> bool:
        if await store.user_by_name(tx, name) is not None:
            return False
        await _let_in(tx, origin, name, password_hash, "platform_admin")
        return True

    return await site.database.write(use_case)


async def set_password(site: Site, origin: Origin, name: str, password: str, role: str) -> None:
    """Make a person a platform-wide `role`, or let them in again. Used for recovery."""
    password_hash = await passwords.hashed(password)
    await site.database.write(lambda tx: _let_in(tx, origin, name, password_hash, role))


def attempt_keys(call: Call, name: str) -> tuple[str, str]:
    """Failures count against the name and against the address they come from."""
    return f"name:{name[:_NAME_KEPT_MAX]}", f"peer:{call.peer}"


def origin_of(call: Call, caller: Caller) -> Origin:
    return msgspec.structs.replace(call.origin, caller=caller)


async def _let_in(tx: db.Tx, origin: Origin, name: str, password_hash: str, role: str) -> None:
    user = await store.user_by_name(tx, name)
    user_id = user["user_id"] if user else await store.add_user(tx, name, created_by="platform", now=origin.now)
    await store.set_password_hash(tx, user_id, password_hash)
    await store.set_user_state(tx, user_id, "active")
    await token_store.end_tokens_of(tx, user_id)
    await store.bind(tx, user_id, role, "platform", created_by="platform", now=origin.now)
    await record.audit(tx, origin, "identity.user.set_password", name)


async def _token_for_key(tx: db.Tx, call: Call, key_id: str) -> Token:
    key = await token_store.key_secret(tx, key_id, call.now)
    account = await store.SERVICE_ACCOUNTS.get(tx, key["service_account_id"]) if key else None
    if key is None or account is None or account.state != "active":
        raise errors.CredentialsInvalid
    await token_store.note_key_use(tx, key_id, call.now)
    caller = Caller("service_account", account.service_account_id, account.name)
    return await issue_token(
        tx,
        origin_of(call, caller),
        caller,
        call.site.settings.service_account_token_ttl_s,
        key_id=key_id,
        until=clock.moment_or_none(key["expires_at"]),
    )


async def _refuse(call: Call, name: str) -> NoReturn:
    async def use_case(tx: db.Tx) -> None:
        await record.audit(tx, call.origin, "auth.login", name[:_NAME_KEPT_MAX], result="failure")

    await call.site.refusals.write(use_case)
    raise errors.CredentialsInvalid


def _shown_session(row: db.Row, call: Call) -> Session:
    return Session(
        session_id=row["token_id"],
        created_at=clock.moment(row["created_at"]),
        expires_at=clock.moment(row["expires_at"]),
        current=row["token_id"] == call.caller.session_id,
        key_id=row["key_id"],
    )
