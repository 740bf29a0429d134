"""SQL of tokens, service account keys and started sign-ins. Of tokens and keys, only digests are stored."""

import datetime
from collections.abc import Collection, Sequence

from gpuaas_contract.identity import ServiceAccountKeyInfo

from gpuaas_platform.call import Caller
from gpuaas_platform.kit import clock, db, ids

_LIVE_SESSION = "SELECT token_id, key_id, created_at, expires_at FROM tokens WHERE actor_id = $1 AND expires_at > $2"
_LIVE_KEY = """SELECT key_id, service_account_id, secret_digest, created_by, created_at, last_used_at, expires_at
    FROM service_account_keys WHERE (expires_at = 0 OR expires_at > $1)"""


async def add_token(
    tx: db.Tx, digest: str, actor: Caller, key_id: str, created_at: datetime.datetime, expires_at: datetime.datetime
) -> None:
    sql = """INSERT INTO tokens (digest, actor_type, actor_id, token_id, key_id, created_at, expires_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7)"""
    created, expires = clock.micros(created_at), clock.micros(expires_at)
    await tx.run(sql, digest, actor.actor_type, actor.actor_id, ids.new("ses"), key_id, created, expires)


async def live_token(reader: db.Reader, actor_id: str, token_id: str, now: datetime.datetime) -> db.Row | None:
    return await reader.one(f"{_LIVE_SESSION} AND token_id = $3", actor_id, clock.micros(now), token_id)


async def live_tokens(
    reader: db.Reader, actor_id: str, now: datetime.datetime, after: str, limit: int
) -> Sequence[db.Row]:
    sql = f"{_LIVE_SESSION} AND token_id > $3 ORDER BY token_id LIMIT $4"
    return await reader.all(sql, actor_id, clock.micros(now), after, limit)


async def existing(reader: db.Reader, token_ids: Collection[str]) -> set[str]:
    """Return those of the tokens that were not revoked. Expired ones are among them until they are forgotten."""
    if not token_ids:
        return set()
    sql = f"SELECT token_id FROM tokens WHERE token_id IN ({db.marks(len(token_ids))})"  # noqa: S608 - marks are ours
    return {row[0] for row in await reader.all(sql, *token_ids)}


async def end_token(tx: db.Tx, token_id: str) -> None:
    await tx.run("DELETE FROM tokens WHERE token_id = $1", token_id)


async def end_tokens_of(tx: db.Tx, actor_id: str, *, apart_from: str = "") -> None:
    await tx.run("DELETE FROM tokens WHERE actor_id = $1 AND token_id <> $2", actor_id, apart_from)


async def end_all(tx: db.Tx) -> int:
    """End all sessions and the sign-ins in progress. Return the number of sessions."""
    await tx.run("DELETE FROM oidc_sign_ins")
    return await tx.run("DELETE FROM tokens")


async def add_key(
    tx: db.Tx, key_id: str, service_account_id: str, secret_digest: str, *, created_by: str, now: datetime.datetime
) -> None:
    sql = """INSERT INTO service_account_keys
             (key_id, service_account_id, secret_digest, created_by, created_at, last_used_at, expires_at)
             VALUES ($1, $2, $3, $4, $5, 0, 0)"""
    await tx.run(sql, key_id, service_account_id, secret_digest, created_by, clock.micros(now))


async def key_secret(reader: db.Reader, key_id: str, now: datetime.datetime) -> db.Row | None:
    """Return the key with the digest of its secret, to check a sign-in; None if the key is unknown or expired."""
    return await reader.one(f"{_LIVE_KEY} AND key_id = $2", clock.micros(now), key_id)


async def key(
    reader: db.Reader, service_account_id: str, key_id: str, now: datetime.datetime
) -> ServiceAccountKeyInfo | None:
    row = await key_secret(reader, key_id, now)
    return _shown_key(row) if row is not None and row["service_account_id"] == service_account_id else None


async def keys_of(
    reader: db.Reader, service_account_id: str, now: datetime.datetime, after: str, limit: int
) -> list[ServiceAccountKeyInfo]:
    sql = f"{_LIVE_KEY} AND service_account_id = $2 AND key_id > $3 ORDER BY key_id LIMIT $4"
    return [_shown_key(row) for row in await reader.all(sql, clock.micros(now), service_account_id, after, limit)]


async def note_key_use(tx: db.Tx, key_id: str, now: datetime.datetime) -> None:
    await tx.run("UPDATE service_account_keys SET last_used_at = $2 WHERE key_id = $1", key_id, clock.micros(now))


async def end_key(tx: db.Tx, key_id: str) -> None:
    await tx.run("DELETE FROM service_account_keys WHERE key_id = $1", key_id)
    await tx.run("DELETE FROM tokens WHERE key_id = $1", key_id)


async def let_key_expire(tx: db.Tx, key_id: str, at: datetime.datetime) -> None:
    """Set when the key expires. Tokens made with the key expire no later."""
    micros = clock.micros(at)
    await tx.run("UPDATE service_account_keys SET expires_at = $2 WHERE key_id = $1", key_id, micros)
    await tx.run("UPDATE tokens SET expires_at = $2 WHERE key_id = $1 AND expires_at > $2", key_id, micros)


async def end_keys_of(tx: db.Tx, service_account_id: str) -> None:
    await tx.run("DELETE FROM service_account_keys WHERE service_account_id = $1", service_account_id)


async def add_sign_in(tx: db.Tx, state_digest: str, code_verifier: str, nonce: str, expires_at: int) -> None:
    sql = "INSERT INTO oidc_sign_ins (state_digest, code_verifier, nonce, expires_at) VALUES ($1, $2, $3, $4)"
    await tx.run(sql, state_digest, code_verifier, nonce, expires_at)


async def take_sign_in(tx: db.Tx, state_digest: str, now: datetime.datetime) -> db.Row | None:
    """Return the started sign-in with this state, and delete it: a sign-in can be finished only once."""
    sql = "SELECT code_verifier, nonce FROM oidc_sign_ins WHERE state_digest = $1 AND expires_at > $2"
    row = await tx.one(sql, state_digest, clock.micros(now))
    await tx.run("DELETE FROM oidc_sign_ins WHERE state_digest = $1", state_digest)
    return row


def _shown_key(row: db.Row) -> ServiceAccountKeyInfo:
    return ServiceAccountKeyInfo(
        key_id=row["key_id"],
        service_account_id=row["service_account_id"],
        created_by=row["created_by"],
        created_at=clock.moment(row["created_at"]),
        last_used_at=clock.moment_or_none(row["last_used_at"]),
        expires_at=clock.moment_or_none(row["expires_at"]),
    )
