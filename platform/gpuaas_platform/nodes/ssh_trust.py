"""The SSH authority as machines know it: its public half, on record so that it is known while custody is sealed.

`access.authority` makes it, and signs with the private half that is in custody.
"""

import datetime
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gpuaas_platform.allocations import store
from gpuaas_platform.call import Site
from gpuaas_platform.kit import clock, db, keys

_TELLS_OF_ENDS = "grants"
"""The loop that tells machines which certificates have ended."""


@dataclass(frozen=True)
class Authority:
    public_key: str
    secret_id: str
    """Names the private half in custody."""


async def authority(reader: db.Reader) -> Authority | None:
    row = await reader.one("SELECT public_key, secret_id FROM ssh_authority")
    return Authority(row[0], row[1]) if row is not None else None


async def set_authority(tx: db.Tx, made: Authority) -> None:
    """There is one; a second is refused by the store."""
    await tx.run(
        "INSERT INTO ssh_authority (only_row, public_key, secret_id) VALUES (1, $1, $2)",
        made.public_key,
        made.secret_id,
    )
    tx.wake(store.LOOP)


async def tell_again(tx: db.Tx, node_id: str, now: datetime.datetime) -> None:
    """A machine that was installed anew refuses no certificate yet: `access.revoking` tells it which have ended."""
    await tx.run(
        """INSERT INTO node_revocations (node_id, task_id, retry_at) VALUES ($1, '', $2)
           ON CONFLICT (node_id) DO UPDATE SET task_id = '', retry_at = excluded.retry_at""",
        node_id,
        clock.micros(now),
    )
    tx.wake(_TELLS_OF_ENDS)


async def public_keys(reader: db.Reader, site: Site) -> list[str]:
    """What machines are told to trust; nothing before there is an authority.

    One that an earlier release left in a file counts already: machines trust it, and ends of grants must reach them.
    """
    present = await authority(reader)
    if present is not None:
        return [present.public_key]
    left = key_in_file(site)
    return [keys.openssh_public(left)] if left is not None else []


def file(site: Site) -> Path:
    """Where releases before custody of the authority kept it, in the clear."""
    return site.settings.data_dir / "keys" / "ssh-authority.pem"


def key_in_file(site: Site) -> Ed25519PrivateKey | None:
    """Another process may take it over, and the file away, at any moment."""
    try:
        return keys.read(file(site))
    except FileNotFoundError:
        return None
