"""The platform's SSH authority: its private key is a value in custody like any other, read for each signature.

`ensure` completes what an interrupted process left. A value that was stored and never recorded is deleted by
`secrets.reconcile`; the file of an earlier release is removed last.
"""

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract import errors

from gpuaas_platform.access import values
from gpuaas_platform.allocations import service as allocations
from gpuaas_platform.call import Site, system_origin
from gpuaas_platform.custody import port as custody
from gpuaas_platform.kit import db, keys
from gpuaas_platform.nodes import ssh_trust
from gpuaas_platform.nodes.ssh_trust import Authority
from gpuaas_platform.record import service as record

log = structlog.get_logger()


async def ensure(site: Site) -> None:
    """Make the authority if there is none. Two processes that do so at once get the same."""
    present = await ssh_trust.authority(site.database.reader) or await _make(site)
    _remove_file(site, present)


async def signing_key(site: Site) -> Ed25519PrivateKey:
    """Return the private key for one signature; the caller does not store it."""
    present = await ssh_trust.authority(site.database.reader)
    if present is None:
        await values.check(site)
        raise errors.Unavailable("The SSH authority has not been made yet.", fix="Ask again when custody answers.")
    try:
        value = await values.read(site, present.secret_id, custody.SecretMissing)
    except custody.SecretMissing as error:
        log.error("ssh_authority.key_missing", secret_id=present.secret_id)
        raise errors.Unavailable(
            "The key of the SSH authority is not in this custody.",
            fix=f"An operator starts the server with the custody that holds {present.secret_id}.",
        ) from error
    return keys.parse(value, present.secret_id)


async def _make(site: Site) -> Authority:
    """Use the key that machines trust already, if an earlier release left one."""
    key = ssh_trust.key_in_file(site) or Ed25519PrivateKey.generate()

    async def make(tx: db.Tx, secret_id: str) -> Authority:
        await values.keep_until(tx, site, secret_id, values.FOR_EVER)
        made = Authority(keys.openssh_public(key), secret_id)
        await ssh_trust.set_authority(tx, made)
        tx.wake(allocations.LOOP)
        origin, details = system_origin(site.clock()), {"public_key": made.public_key}
        await record.audit(tx, origin, "access.authority.keep", secret_id, details=details)
        return made

    return await values.keep(site, keys.private_pem(key), ssh_trust.authority, make, kind="sshca")


def _remove_file(site: Site, present: Authority) -> None:
    """A file that holds another key may be the only copy of it, so it stays."""
    left, path = ssh_trust.key_in_file(site), ssh_trust.file(site)
    if left is None:
        return
    if keys.openssh_public(left) != present.public_key:
        log.warning("ssh_authority.file_differs", file=str(path), fix="move the file away or delete it")
        return
    path.unlink(missing_ok=True)
    log.info("ssh_authority.file_removed", file=str(path))
