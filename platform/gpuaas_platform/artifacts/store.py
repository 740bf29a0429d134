"""SQL of artifacts, signatures, trust keys and deliveries. Of a delivery's token only the digest is stored."""

from collections.abc import Sequence

import msgspec
from gpuaas_contract.artifacts import SHARED, Artifact, Envelope
from gpuaas_contract.deliveries import Delivery
from gpuaas_contract.trust_keys import TrustKey

from gpuaas_platform.artifacts import rules
from gpuaas_platform.kit import clock, db
from gpuaas_platform.kit.tables import Table

ARTIFACTS = Table(
    "artifacts",
    Artifact,
    "artifact_id",
    scope=lambda artifact: artifact.scope,
    name=lambda artifact: artifact.name,
    digest=lambda artifact: artifact.digest,
    app_slug=lambda artifact: artifact.app_slug,
    trust=lambda artifact: artifact.trust,
    size_bytes=lambda artifact: artifact.size_bytes,
    ended_at=lambda artifact: clock.micros(ended) if (ended := rules.ended_at(artifact)) else 0,
)
_BATCH = 500
"""Most values in one IN list, because both engines limit the parameters of a statement."""
TRUST_KEYS = Table("trust_keys", TrustKey, "trust_key_ref", scope=lambda key: key.scope)


async def named(reader: db.Reader, scope: str, name: str, digest: str) -> list[Artifact]:
    """Return the artifacts with this name and digest. Of shared ones, each owner can have one."""
    where = "scope = $1 AND name = $2 AND digest = $3 ORDER BY app_slug"
    return await ARTIFACTS.find(reader, where, scope, name, digest)


async def with_digest(reader: db.Reader, scope: str, digest: str) -> list[Artifact]:
    return await ARTIFACTS.find(reader, "digest = $1 AND scope = $2 ORDER BY artifact_id", digest, scope)


async def was_uploaded(reader: db.Reader, scope: str, digest: str) -> bool:
    """Return whether the content with this digest was stored for an artifact of the scope, under any name."""
    return any(artifact.content_checked_at is not None for artifact in await with_digest(reader, scope, digest))


async def revoked(reader: db.Reader, scope: str, digest: str) -> Artifact | None:
    """Return an artifact with this digest, under any name, that was revoked in the scope or by the platform."""
    where = "trust = 'revoked' AND digest = $1 AND scope IN ($2, $3) LIMIT 1"
    artifacts = await ARTIFACTS.find(reader, where, digest, scope, SHARED)
    return artifacts[0] if artifacts else None


async def ended_at(reader: db.Reader, digests: Sequence[str]) -> dict[str, int]:
    """Return, for each digest, when its last artifact ended; 0 if an artifact has not ended. Digests without artifacts
    are left out."""
    sql = f"""SELECT digest, CASE WHEN MIN(ended_at) = 0 THEN 0 ELSE MAX(ended_at) END FROM artifacts
              WHERE digest IN ({db.marks(len(digests))}) GROUP BY digest"""  # noqa: S608 - marks are ours
    return {row[0]: int(row[1]) for row in await reader.all(sql, *digests)}


async def called(reader: db.Reader, scope: str, named: str) -> list[Artifact]:
    """Return the artifacts of the scope with this digest or, if there is none, with this name."""
    by_digest = await with_digest(reader, scope, named)
    return by_digest or await ARTIFACTS.find(reader, "scope = $1 AND name = $2 ORDER BY artifact_id", scope, named)


async def storage(reader: db.Reader, scopes: Sequence[str], ended_after: int) -> tuple[int, int]:
    """Return total bytes and number of the scopes' artifacts that have not ended, or ended after `ended_after`."""
    size_bytes, count = 0, 0
    for batch in db.chunks(scopes, _BATCH):
        sql = f"""SELECT CAST(COALESCE(SUM(size_bytes), 0) AS BIGINT), COUNT(*) FROM artifacts
                  WHERE scope IN ({db.marks(len(batch), 2)}) AND (ended_at = 0 OR ended_at > $1)"""  # noqa: S608
        for row in await reader.all(sql, ended_after, *batch):
            size_bytes, count = size_bytes + int(row[0]), count + int(row[1])
    return size_bytes, count


async def storage_of_app(reader: db.Reader, app_slug: str, ended_after: int) -> int:
    """Return total bytes of the app's shared artifacts that have not ended, or ended after `ended_after`."""
    sql = """SELECT CAST(COALESCE(SUM(size_bytes), 0) AS BIGINT) FROM artifacts
             WHERE app_slug = $1 AND app_slug <> '' AND (ended_at = 0 OR ended_at > $2)"""
    row = await reader.one(sql, app_slug, ended_after)
    return int(row[0]) if row is not None else 0


async def keep_signature(tx: db.Tx, artifact_id: str, envelope: Envelope) -> None:
    sql = """INSERT INTO artifact_signatures (artifact_id, envelope) VALUES ($1, $2)
             ON CONFLICT (artifact_id) DO UPDATE SET envelope = excluded.envelope"""
    await tx.run(sql, artifact_id, msgspec.json.encode(envelope).decode())


async def signature(reader: db.Reader, artifact_id: str) -> Envelope | None:
    row = await reader.one("SELECT envelope FROM artifact_signatures WHERE artifact_id = $1", artifact_id)
    return msgspec.json.decode(row[0], type=Envelope) if row is not None else None


async def add_delivery(tx: db.Tx, delivery: Delivery, project_id: str, token_digest: str) -> None:
    sql = """INSERT INTO artifact_deliveries (delivery_id, artifact_id, expires_at, project_id, token_digest)
             VALUES ($1, $2, $3, $4, $5)"""
    expires_at = clock.micros(delivery.expires_at)
    await tx.run(sql, delivery.delivery_id, delivery.artifact_id, expires_at, project_id, token_digest)


async def delivery(reader: db.Reader, delivery_id: str) -> db.Row | None:
    sql = "SELECT project_id, artifact_id, token_digest, expires_at FROM artifact_deliveries WHERE delivery_id = $1"
    return await reader.one(sql, delivery_id)


async def end_deliveries(tx: db.Tx) -> None:
    await tx.run("DELETE FROM artifact_deliveries")


async def is_old(reader: db.Reader, before: int) -> bool:
    return await reader.one("SELECT 1 FROM artifact_deliveries WHERE expires_at < $1 LIMIT 1", before) is not None


async def forget(tx: db.Tx, before: int, limit: int) -> None:
    old = "SELECT delivery_id FROM artifact_deliveries WHERE expires_at < $1 LIMIT $2"
    await tx.run(f"DELETE FROM artifact_deliveries WHERE delivery_id IN ({old})", before, limit)  # noqa: S608
