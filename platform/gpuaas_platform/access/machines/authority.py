"""The platform's SSH authority: its private half is a value in custody like any other, read for each signature.

`ensure` is level-triggered: it looks at what there is and does the rest, whoever was interrupted before. A value that
was put and never got on record is destroyed by `secrets_reconcile`; the file of an earlier release goes last.
"""

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract import errors

from gpuaas_platform.access import values as keeping
from gpuaas_platform.allocations import service as allocations
from gpuaas_platform.call import Site, system_origin
from gpuaas_platform.custody import port as custody
from gpuaas_platform.kit import db, keys
from gpuaas_platform.nodes import ssh_trust
from gpuaas_platform.nodes.ssh_trust import Authority
from gpuaas_platform.record import service as record

log = structlog.get_logger()


async def ensure(site: Site) -> None:
    """Of two processes that make one, both get the same."""
    present = await ssh_trust.authority(site.database.reader) or await _make(site)
    _remove_file(site, present)


async def signing_key(site: Site) -> Ed25519PrivateKey:
    """For one signature: whoever asks does not keep it."""
    present = await ssh_trust.authority(site.database.reader)
    if present is None:
        with keeping.translated():
            await site.custody.check()
        raise errors.Unavailable("The SSH authority has not been made yet.", fix="Ask again when custody answers.")
    try:
        value = await keeping.read(site, present.secret_id, custody.SecretMissing)
    except custody.SecretMissing as error:
        log.error("custody does not have the key of the SSH authority", secret_id=present.secret_id)
        raise errors.Unavailable(
            "The key of the SSH authority is not in this custody.",
            fix=f"An operator starts the server with the custody that holds {present.secret_id}.",
        ) from error
    return keys.parse(value, present.secret_id)


async def _make(site: Site) -> Authority:
    """The key that machines trust already, if an earlier release left one."""
    key = ssh_trust.key_in_file(site) or Ed25519PrivateKey.generate()

    async def make(tx: db.Tx, secret_id: str) -> Authority:
        await keeping.keep_until(tx, site, secret_id, keeping.FOR_EVER)
        made = Authority(keys.openssh_public(key), secret_id)
        await ssh_trust.set_authority(tx, made)
        tx.wake(allocations.LOOP)
        await record.audit(
            tx,
            system_origin(site.clock()),
            "access.authority.keep",
            secret_id,
            details={"public_key": made.public_key},
        )
        return made

    return await keeping.keep(site, keys.private_pem(key), ssh_trust.authority, make, kind="sshca")


def _remove_file(site: Site, present: Authority) -> None:
    """A file that holds another key may be the only copy of it: that is for people to decide."""
    left, path = ssh_trust.key_in_file(site), ssh_trust.file(site)
    if left is None:
        return
    if keys.openssh_public(left) != present.public_key:
        log.warning("this file holds another key than the SSH authority; move it away or delete it", file=str(path))
        return
    path.unlink(missing_ok=True)
    log.info("the SSH authority is in custody; its file is removed", file=str(path))
