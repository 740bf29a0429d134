"""The public key of the SSH authority, which machines trust. It can be read while custody is sealed.

`access.machines.authority` creates the authority and signs with the private key, which is in custody.
"""

from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gpuaas_platform.call import Site
from gpuaas_platform.kit import db, keys


@dataclass(frozen=True)
class Authority:
    public_key: str
    secret_id: str
    """Id of the private key in custody."""


async def authority(reader: db.Reader) -> Authority | None:
    row = await reader.one("SELECT public_key, secret_id FROM ssh_authority")
    return Authority(row[0], row[1]) if row is not None else None


async def set_authority(tx: db.Tx, made: Authority) -> None:
    """Store the authority. There is only one: the database refuses a second row."""
    sql = "INSERT INTO ssh_authority (only_row, public_key, secret_id) VALUES (1, $1, $2)"
    await tx.run(sql, made.public_key, made.secret_id)


async def remove_authority(tx: db.Tx) -> None:
    """Remove the authority, so that the next start of a server creates another one."""
    await tx.run("DELETE FROM ssh_authority")


async def public_keys(reader: db.Reader, site: Site) -> list[str]:
    """Return the public keys that machines must trust; empty before there is an authority.

    A key file of an earlier release counts too: machines trust that key and need the list of revoked serials."""
    present = await authority(reader)
    if present is not None:
        return [present.public_key]
    left = key_in_file(site)
    return [keys.openssh_public(left)] if left is not None else []


def file(site: Site) -> Path:
    """Return the path where earlier releases stored the authority's key unencrypted, before it was in custody."""
    return site.settings.data_dir / "keys" / "ssh-authority.pem"


def key_in_file(site: Site) -> Ed25519PrivateKey | None:
    """Return the key in the file, or None. Another process may move the key to custody and delete the file."""
    try:
        return keys.read(file(site))
    except FileNotFoundError:
        return None
