"""SQL of tokens, service-account keys and started sign-ins. Only digests of secrets are stored."""

import datetime

from gpuaas_contract.identity import ServiceAccountKeyInfo

from gpuaas_platform.kit import clock, db

_KEY = "key_id, service_account_id, created_by, created_at, last_used_at, expires_at"


async def add_token(
    tx: db.Tx,
    digest: str,
    actor_type: str,
    actor_id: str,
    *,
    token_id: str,
    key_id: str,
    created_at: int,
    expires_at: int,
) -> None:
    await tx.run(
        """INSERT INTO tokens (digest, actor_type, actor_id, token_id, key_id, created_at, expires_at)
           VALUES ($1, $2, $3, $4, $5, $6, $7)""",
        digest,
        actor_type,
        actor_id,
        token_id,
        key_id,
        created_at,
        expires_at,
    )


async def token(reader: db.Reader, digest: str) -> db.Row | None:
    return await reader.one(
        "SELECT actor_type, actor_id, token_id, key_id, expires_at FROM tokens WHERE digest = $1", digest
    )


async def live_token(reader: db.Reader, actor_id: str, token_id: str, now: datetime.datetime) -> db.Row | None:
    return await reader.one(
        """SELECT token_id, key_id, created_at, expires_at FROM tokens
           WHERE token_id = $1 AND actor_id = $2 AND expires_at > $3""",
        token_id,
        actor_id,
        clock.micros(now),
    )


async def live_tokens(
    reader: db.Reader, actor_id: str, now: datetime.datetime, *, after: str, limit: int
) -> list[db.Row]:
    rows = await reader.all(
        """SELECT token_id, key_id, created_at, expires_at FROM tokens
           WHERE actor_id = $1 AND token_id > $2 AND expires_at > $3 ORDER BY token_id LIMIT $4""",
        actor_id,
        after,
        clock.micros(now),
        limit,
    )
    return list(rows)


async def end_token(tx: db.Tx, token_id: str) -> None:
    await tx.run("DELETE FROM tokens WHERE token_id = $1", token_id)


async def end_tokens_of(tx: db.Tx, actor_id: str, *, apart_from: str = "") -> None:
    await tx.run("DELETE FROM tokens WHERE actor_id = $1 AND token_id <> $2", actor_id, apart_from)


async def add_key(
    tx: db.Tx, key_id: str, service_account_id: str, secret_digest: str, *, created_by: str, now: datetime.datetime
) -> None:
    await tx.run(
        """INSERT INTO service_account_keys
           (key_id, service_account_id, secret_digest, created_by, created_at, last_used_at, expires_at)
           VALUES ($1, $2, $3, $4, $5, 0, 0)""",
        key_id,
        service_account_id,
        secret_digest,
        created_by,
        clock.micros(now),
    )


async def key_secret(reader: db.Reader, key_id: str, now: datetime.datetime) -> db.Row | None:
    """The digest that a sign-in is checked against; none once the key has expired."""
    return await reader.one(
        """SELECT service_account_id, secret_digest, expires_at FROM service_account_keys
           WHERE key_id = $1 AND (expires_at = 0 OR expires_at > $2)""",
        key_id,
        clock.micros(now),
    )


async def key(
    reader: db.Reader, service_account_id: str, key_id: str, now: datetime.datetime
) -> ServiceAccountKeyInfo | None:
    row = await reader.one(
        f"""SELECT {_KEY} FROM service_account_keys WHERE key_id = $1 AND service_account_id = $2
            AND (expires_at = 0 OR expires_at > $3)""",  # noqa: S608 - columns are ours
        key_id,
        service_account_id,
        clock.micros(now),
    )
    return _shown_key(row) if row is not None else None


async def keys_of(
    reader: db.Reader, service_account_id: str, now: datetime.datetime, *, after: str, limit: int
) -> list[ServiceAccountKeyInfo]:
    rows = await reader.all(
        f"""SELECT {_KEY} FROM service_account_keys WHERE service_account_id = $1 AND key_id > $2
            AND (expires_at = 0 OR expires_at > $3) ORDER BY key_id LIMIT $4""",  # noqa: S608
        service_account_id,
        after,
        clock.micros(now),
        limit,
    )
    return [_shown_key(row) for row in rows]


async def note_key_use(tx: db.Tx, key_id: str, now: datetime.datetime) -> None:
    await tx.run("UPDATE service_account_keys SET last_used_at = $2 WHERE key_id = $1", key_id, clock.micros(now))


async def end_key(tx: db.Tx, key_id: str) -> None:
    await tx.run("DELETE FROM service_account_keys WHERE key_id = $1", key_id)
    await tx.run("DELETE FROM tokens WHERE key_id = $1", key_id)


async def let_key_expire(tx: db.Tx, key_id: str, at: datetime.datetime) -> None:
    """Tokens made with the key expire with it."""
    micros = clock.micros(at)
    await tx.run("UPDATE service_account_keys SET expires_at = $2 WHERE key_id = $1", key_id, micros)
    await tx.run("UPDATE tokens SET expires_at = $2 WHERE key_id = $1 AND expires_at > $2", key_id, micros)


async def end_keys_of(tx: db.Tx, service_account_id: str) -> None:
    await tx.run("DELETE FROM service_account_keys WHERE service_account_id = $1", service_account_id)


async def add_sign_in(tx: db.Tx, state_digest: str, code_verifier: str, nonce: str, expires_at: int) -> None:
    await tx.run(
        "INSERT INTO oidc_sign_ins (state_digest, code_verifier, nonce, expires_at) VALUES ($1, $2, $3, $4)",
        state_digest,
        code_verifier,
        nonce,
        expires_at,
    )


async def take_sign_in(tx: db.Tx, state_digest: str, now: datetime.datetime) -> db.Row | None:
    """Return what was kept for this state, and delete it: a sign-in can be finished once."""
    row = await tx.one(
        "SELECT code_verifier, nonce FROM oidc_sign_ins WHERE state_digest = $1 AND expires_at > $2",
        state_digest,
        clock.micros(now),
    )
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
