"""Run one mutation per idempotency key: the first answer is stored with the change; each repeat gets that answer."""

import datetime
import hmac
from typing import NamedTuple

from gpuaas_contract import errors

from gpuaas_platform.kit import clock, db
from gpuaas_platform.kit.retention import Retained


class Repeat(NamedTuple):
    """Identifies a mutation: a key belongs to one caller and one path."""

    actor_id: str
    path: str
    key: str
    digest: str
    """Digest of the request. An idempotency key that is used again with another request is refused."""


class InFlight:
    """The mutations that run in this process; a repeat of one is refused. In another process it waits for the store."""

    def __init__(self) -> None:
        self._running: set[tuple[str, str, str]] = set()

    def start(self, repeat: Repeat) -> None:
        if repeat[:3] in self._running:
            raise errors.RequestInFlight
        self._running.add(repeat[:3])

    def end(self, repeat: Repeat) -> None:
        self._running.discard(repeat[:3])


async def replay(reader: db.Reader, repeat: Repeat) -> bytes | None:
    """Return the stored answer, or None for a new key. Writers run one at a time, so no mutation is half-done."""
    sql = "SELECT request_digest, answer FROM idempotency WHERE actor_id = $1 AND route = $2 AND idempotency_key = $3"
    row = await reader.one(sql, *repeat[:3])
    if row is None:
        return None
    if not hmac.compare_digest(row["request_digest"], repeat.digest):
        raise errors.IdempotencyKeyReused
    if not row["answer"]:
        raise errors.SecretAlreadyDelivered
    return str(row["answer"]).encode()


async def remember(tx: db.Tx, now: datetime.datetime, repeat: Repeat, answer: bytes) -> None:
    sql = """INSERT INTO idempotency (actor_id, route, idempotency_key, request_digest, answer, created_at)
             VALUES ($1, $2, $3, $4, $5, $6)"""
    await tx.run(sql, *repeat, answer.decode(), clock.micros(now))


async def _is_old(reader: db.Reader, before: int) -> bool:
    return await reader.one("SELECT 1 FROM idempotency WHERE created_at < $1 LIMIT 1", before) is not None


async def _forget(tx: db.Tx, before: int, limit: int) -> None:
    sql = """DELETE FROM idempotency WHERE (actor_id, route, idempotency_key) IN (
                 SELECT actor_id, route, idempotency_key FROM idempotency WHERE created_at < $1 LIMIT $2)"""
    await tx.run(sql, before, limit)


RETAINED = Retained("edge.idempotency", lambda settings: settings.idempotency_kept_s, _is_old, _forget)
