"""SQL of enrolment tokens, of the public keys of nodes and of the sign-in proofs that were used."""

from gpuaas_platform.kit import db


async def add_token(tx: db.Tx, digest: str, name: str, sku: str, region: str, expires_at: int) -> None:
    sql = """INSERT INTO enrolment_tokens (digest, name, sku, region, expires_at, used_by, node_id)
             VALUES ($1, $2, $3, $4, $5, '', '')"""
    await tx.run(sql, digest, name, sku, region, expires_at)


async def token(reader: db.Reader, digest: str) -> db.Row | None:
    sql = "SELECT name, sku, region, expires_at, used_by, node_id FROM enrolment_tokens WHERE digest = $1"
    return await reader.one(sql, digest)


async def use_token(tx: db.Tx, digest: str, public_key_pem: str, node_id: str) -> None:
    sql = "UPDATE enrolment_tokens SET used_by = $2, node_id = $3 WHERE digest = $1"
    await tx.run(sql, digest, public_key_pem, node_id)


async def set_key(tx: db.Tx, node_id: str, public_key_pem: str) -> None:
    sql = """INSERT INTO node_keys (node_id, public_key_pem) VALUES ($1, $2)
             ON CONFLICT (node_id) DO UPDATE SET public_key_pem = excluded.public_key_pem"""
    await tx.run(sql, node_id, public_key_pem)


async def key(reader: db.Reader, node_id: str) -> str | None:
    """The node's public key in PEM form."""
    row = await reader.one("SELECT public_key_pem FROM node_keys WHERE node_id = $1", node_id)
    return str(row[0]) if row is not None else None


async def delete_key(tx: db.Tx, node_id: str) -> None:
    await tx.run("DELETE FROM node_keys WHERE node_id = $1", node_id)


async def use_proof(tx: db.Tx, node_id: str, nonce: str, *, now: int, expires_at: int) -> bool:
    """Record the proof; return False if it was used before. A used proof is kept for as long as it would be valid."""
    await tx.run("DELETE FROM node_proofs WHERE node_id = $1 AND expires_at < $2", node_id, now)
    sql = "INSERT INTO node_proofs (node_id, nonce, expires_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
    return await tx.run(sql, node_id, nonce, expires_at) == 1
