"""SQL of access credentials. Keys are in custody; here is under which id."""

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


async def active_named(reader: db.Reader, project_id: str, name: str) -> Credential | None:
    found = await CREDENTIALS.find(reader, "project_id = $1 AND name = $2 AND state = 'active'", project_id, name)
    return found[0] if found else None


async def named(reader: db.Reader, project_id: str, name: str) -> Credential | None:
    found = await CREDENTIALS.find(reader, "project_id = $1 AND name = $2 ORDER BY credential_id", project_id, name)
    active = [credential for credential in found if credential.state == "active"]
    return names.only(active or found, name, lambda credential: credential.credential_id)


async def secret_id(reader: db.Reader, credential_id: str) -> str:
    """Where the present key lies in custody; empty once it is destroyed."""
    row = await reader.one("SELECT secret_id FROM credential_keys WHERE credential_id = $1", credential_id)
    return str(row[0]) if row is not None else ""


async def set_secret_id(tx: db.Tx, credential_id: str, found: str) -> None:
    await tx.run(
        """INSERT INTO credential_keys (credential_id, secret_id) VALUES ($1, $2)
           ON CONFLICT (credential_id) DO UPDATE SET secret_id = excluded.secret_id""",
        credential_id,
        found,
    )


async def forget_secret_id(tx: db.Tx, credential_id: str) -> None:
    await tx.run("DELETE FROM credential_keys WHERE credential_id = $1", credential_id)
