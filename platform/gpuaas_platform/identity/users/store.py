"""SQL of the networks from which a user has signed in. Only keyed digests of the networks are stored."""

import datetime

from gpuaas_platform.kit import clock, db

NETWORKS_MAX = 8
"""Most networks that are stored for a user; the one that was used least recently is replaced."""


async def is_known_network(reader: db.Reader, user_id: str, network_digest: str) -> bool:
    sql = "SELECT 1 FROM user_networks WHERE user_id = $1 AND network_digest = $2"
    return await reader.one(sql, user_id, network_digest) is not None


async def remember_network(tx: db.Tx, user_id: str, network_digest: str, now: datetime.datetime) -> None:
    sql = """INSERT INTO user_networks (user_id, network_digest, seen_at) VALUES ($1, $2, $3)
             ON CONFLICT (user_id, network_digest) DO UPDATE SET seen_at = excluded.seen_at"""
    await tx.run(sql, user_id, network_digest, clock.micros(now))
    sql = """DELETE FROM user_networks WHERE user_id = $1 AND network_digest NOT IN (
                 SELECT network_digest FROM user_networks WHERE user_id = $1 ORDER BY seen_at DESC LIMIT $2)"""
    await tx.run(sql, user_id, NETWORKS_MAX)
