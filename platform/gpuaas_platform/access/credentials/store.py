"""SQL of credentials. The private key itself is in custody; the database has only its id in custody."""

from gpuaas_contract.credentials import Credential

from gpuaas_platform.kit import db, names
from gpuaas_platform.kit.tables import Table

CREDENTIALS = Table(
    "credentials",
    Credential,
    "credential_id",
    project_id=lambda credential: credential.project_id,
    name=lambda credential: credential.name,
    state=lambda credential: credential.state,
)


async def named(reader: db.Reader, project_id: str, name: str) -> Credential | None:
    every = await CREDENTIALS.find(reader, "project_id = $1 AND name = $2 ORDER BY credential_id", project_id, name)
    active = [credential for credential in every if credential.state == "active"]
    return names.only(active or every, name, lambda credential: credential.credential_id)


async def secret_id(reader: db.Reader, credential_id: str) -> str:
    """Return the id that the credential's current key has in custody; empty if the key was destroyed."""
    row = await reader.one("SELECT secret_id FROM credential_keys WHERE credential_id = $1", credential_id)
    return str(row[0]) if row is not None else ""


async def set_secret_id(tx: db.Tx, credential_id: str, new_secret_id: str) -> None:
    sql = """INSERT INTO credential_keys (credential_id, secret_id) VALUES ($1, $2)
             ON CONFLICT (credential_id) DO UPDATE SET secret_id = excluded.secret_id"""
    await tx.run(sql, credential_id, new_secret_id)


async def forget_secret_id(tx: db.Tx, credential_id: str) -> None:
    await tx.run("DELETE FROM credential_keys WHERE credential_id = $1", credential_id)
