"""Sign-in, sign-out, tokens and sessions of users, service accounts and nodes. `admission` checks the tokens."""

import datetime
import hmac
from typing import NoReturn

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.identity import Login, Me, ServiceAccountLogin, Token
from gpuaas_contract.paths import Path, SessionPath
from gpuaas_contract.sessions import Session
from gpuaas_contract.wire import NoBody, Page, PageQuery

from gpuaas_platform.call import Call, Caller, Origin, Site
from gpuaas_platform.identity import authority, store
from gpuaas_platform.identity.tokens import store as token_store
from gpuaas_platform.identity.users import first_password, passwords
from gpuaas_platform.identity.users import store as user_store
from gpuaas_platform.kit import attempts, clock, db, ids, paging, peers
from gpuaas_platform.kit.attempts import Key
from gpuaas_platform.kit.refusals import Refusal
from gpuaas_platform.record import service as record


async def me(reader: db.Reader, call: Call) -> Me:
    caller = await authority.with_all_roles(reader, call.caller, call.now)
    return Me(
        actor_type=caller.actor_type,
        actor_id=caller.actor_id,
        name=caller.name,
        bindings=list(caller.bindings),
        session_id=caller.session_id,
        session_expires_at=caller.session_expires_at,
    )


async def login(call: Call, body: Login) -> Token:
    site = call.site
    user = await store.user_by_name(site.database.reader, body.name)
    password_hash, user_id = (user["password_hash"], user["user_id"]) if user else ("", "")
    keys = await attempt_keys(call, user_id, body.name)
    try:
        matches = await passwords.matches(site.attempts, keys, call.now, password_hash, body.password)
    except errors.TooManyAttempts as error:
        refuse(call, error, "auth.login", account=user_id)
    if user is None or not matches or user["state"] != "active":
        refuse(call, errors.CredentialsInvalid(), "auth.login", account=user_id)
    site.attempts.forget(keys[0])
    caller = Caller("user", user_id, body.name)

    async def use_case(tx: db.Tx) -> Token:
        # The password check takes time. In that time the password may have changed, or the user was disabled.
        present = await store.user(tx, caller.actor_id)
        if present is None or present["state"] != "active" or present["password_hash"] != password_hash:
            raise errors.CredentialsInvalid
        await user_store.remember_network(tx, user_id, _network_digest(call, user_id), call.now)
        return await issue_token(tx, origin_of(call, caller), caller, site.settings.session_ttl_s)

    token = await site.database.write(use_case)
    if body.name == first_password.ADMIN and not call.dry_run:
        first_password.forget(site.settings.data_dir)
    return token


async def service_account_login(call: Call, body: ServiceAccountLogin) -> Token:
    key = await token_store.key_secret(call.site.database.reader, body.key_id, call.now)
    expected = key["secret_digest"] if key else ids.digest("")
    if not hmac.compare_digest(expected, ids.digest(body.client_secret)) or key is None:
        account = key["service_account_id"] if key else ""
        refuse(call, errors.CredentialsInvalid(), "auth.login", account=account)
    return await call.site.database.write(lambda tx: _token_for_key(tx, call, body.key_id))


async def issue_token(
    tx: db.Tx,
    origin: Origin,
    caller: Caller,
    lifetime_s: int,
    *,
    key_id: str = "",
    until: datetime.datetime | None = None,
) -> Token:
    """Issue a token. It expires at `until` at the latest: a token made with a key expires with the key."""
    secret = ids.new_secret({"user": "session", "service_account": "sat", "node": "node"}[caller.actor_type])
    expires_at = origin.now + datetime.timedelta(seconds=lifetime_s)
    expires_at = min(expires_at, until) if until else expires_at
    await token_store.add_token(tx, ids.digest(secret), caller, key_id, origin.now, expires_at)
    if caller.actor_type != "node":
        await record.audit(tx, origin, "auth.token.issue", caller.actor_id)
    return Token(access_token=secret, expires_in_s=int((expires_at - origin.now).total_seconds()))


end_tokens_of = token_store.end_tokens_of
"""Delete all tokens of an actor, so that its next call is refused."""
existing_sessions = token_store.existing
"""Return the ids of sessions that were not revoked. Those that expired less than a day ago are among them."""
end_all_sessions = token_store.end_all
"""Delete the tokens of all actors. After a restore, tokens that were revoked since the backup would be valid again."""


async def list_sessions(reader: db.Reader, call: Call[Path, PageQuery]) -> Page[Session]:
    async def read(after: str, limit: int) -> list[Session]:
        rows = await token_store.live_tokens(reader, call.caller.actor_id, call.now, after, limit)
        return [_shown_session(row, call) for row in rows]

    return await paging.page("sessions", call.query, read, lambda session: session.session_id)


async def end_session(tx: db.Tx, call: Call[SessionPath], _: NoBody) -> Session:
    return await _end_session(tx, call, call.path.session_id)


async def logout(tx: db.Tx, call: Call, _: NoBody) -> Session:
    return await _end_session(tx, call, call.caller.session_id)


async def _end_session(tx: db.Tx, call: Call, session_id: str) -> Session:
    row = await token_store.live_token(tx, call.caller.actor_id, session_id, call.now)
    if row is None:
        raise errors.NotFound("You have no such session.")
    await token_store.end_token(tx, session_id)
    return _shown_session(row, call)


async def make_first_admin(site: Site, origin: Origin, name: str, password: str) -> bool:
    """Create the first admin; return whether this call did. If processes start together, one may show a password."""
    if await store.user_by_name(site.database.reader, name) is not None:
        return False
    password_hash = await passwords.hashed(password)

    async def use_case(tx: db.Tx) -> bool:
        if await store.user_by_name(tx, name) is not None:
            return False
        await _enable(tx, origin, name, password_hash, "platform_admin")
        return True

    return await site.database.write(use_case)


async def set_password(site: Site, origin: Origin, name: str, password: str, role: str) -> None:
    """For recovery: set a user's password and give them a platform role. Creates the user if needed."""
    password_hash = await passwords.hashed(password)
    await site.database.write(lambda tx: _enable(tx, origin, name, password_hash, role))


def refuse(call: Call, error: errors.ApiError, action: str, *, account: str = "", reason: str = "") -> NoReturn:
    """Count the failed sign-in for the audit trail, then raise the error."""
    origin = call.origin
    refusal = Refusal(
        action, origin.route, origin.peer, origin.correlation_id, origin.now, error.code, account=account, reason=reason
    )
    call.site.refusals.count(refusal)
    raise error


async def attempt_keys(call: Call, user_id: str, name: str) -> list[Key]:
    """Return the keys under which failed sign-ins are counted. The first is of this name and network only.

    Failures that others cause slow a sign-in down, except from a network where this user has signed in before."""
    network = peers.network_of(call.peer)
    own = Key(f"own:{network}:{name}", attempts.OWN)
    if await user_store.is_known_network(call.site.database.reader, user_id, _network_digest(call, user_id)):
        return [own]
    return [own, Key(f"name:{name}", attempts.SHARED), Key(f"network:{network}", attempts.SHARED)]


def _network_digest(call: Call, user_id: str) -> str:
    return call.site.keys.request_digest(f"network\n{user_id}\n{peers.network_of(call.peer)}".encode())


def origin_of(call: Call, caller: Caller) -> Origin:
    return msgspec.structs.replace(call.origin, caller=caller)


async def _enable(tx: db.Tx, origin: Origin, name: str, password_hash: str, role: str) -> None:
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
    lifetime_s, until = call.site.settings.service_account_token_ttl_s, clock.moment_or_none(key["expires_at"])
    return await issue_token(tx, origin_of(call, caller), caller, lifetime_s, key_id=key_id, until=until)


def _shown_session(row: db.Row, call: Call) -> Session:
    return Session(
        session_id=row["token_id"],
        created_at=clock.moment(row["created_at"]),
        expires_at=clock.moment(row["expires_at"]),
        current=row["token_id"] == call.caller.session_id,
        key_id=row["key_id"],
    )
