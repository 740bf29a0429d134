"""The public half of the SSH authority, which machines trust. It is readable while custody is sealed.

`access.machines.authority` makes the authority, and signs with the private half that is in custody.
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
    """Names the private half in custody."""


async def authority(reader: db.Reader) -> Authority | None:
    row = await reader.one("SELECT public_key, secret_id FROM ssh_authority")
    return Authority(row[0], row[1]) if row is not None else None


async def set_authority(tx: db.Tx, made: Authority) -> None:
    """Record the authority. There is one; the store refuses a second."""
    sql = "INSERT INTO ssh_authority (only_row, public_key, secret_id) VALUES (1, $1, $2)"
    await tx.run(sql, made.public_key, made.secret_id)


async def public_keys(reader: db.Reader, site: Site) -> list[str]:
    """Return the keys that machines have to trust; none before there is an authority.

    A key that an earlier release left in a file counts: machines trust it and need the list of ended grants."""
    present = await authority(reader)
    if present is not None:
        return [present.public_key]
    left = key_in_file(site)
    return [keys.openssh_public(left)] if left is not None else []


def file(site: Site) -> Path:
    """Where releases before custody of the authority stored it, unencrypted."""
    return site.settings.data_dir / "keys" / "ssh-authority.pem"


def key_in_file(site: Site) -> Ed25519PrivateKey | None:
    """Return the key of the file. Another process may move it to custody and delete the file at any moment."""
    try:
        return keys.read(file(site))
    except FileNotFoundError:
        return None
