"""One mutation per key: the first answer is kept with the change and given again to every repeat."""

import hmac

from gpuaas_contract import errors

from gpuaas_platform.call import Call, Caller
from gpuaas_platform.kit import clock, db


async def replay(reader: db.Reader, caller: Caller, route: str, key: str, digest: str) -> bytes | None:
    """The answer given before, or None for a new key. Writers run one after another, so none is ever half-done."""
    row = await reader.one(
        "SELECT request_digest, answer FROM idempotency WHERE actor_id = $1 AND route = $2 AND idempotency_key = $3",
        caller.actor_id,
        route,
        key,
    )
    if row is None:
        return None
    if not hmac.compare_digest(row["request_digest"], digest):
        raise errors.IdempotencyKeyReused
    if not row["answer"]:
        raise errors.SecretAlreadyDelivered
    return str(row["answer"]).encode()


async def remember(tx: db.Tx, call: Call, route: str, key: str, digest: str, answer: bytes) -> None:
    await tx.run(
        """INSERT INTO idempotency (actor_id, route, idempotency_key, request_digest, answer, created_at)
           VALUES ($1, $2, $3, $4, $5, $6)""",
        call.caller.actor_id,
        route,
        key,
        digest,
        answer.decode(),
        clock.micros(call.now),
    )


async def forget(tx: db.Tx, created_before: int, limit: int) -> int:
    return await tx.run(
        """DELETE FROM idempotency WHERE (actor_id, route, idempotency_key) IN (
               SELECT actor_id, route, idempotency_key FROM idempotency WHERE created_at < $1 LIMIT $2)""",
        created_before,
        limit,
    )
