"""The platform's SSH authority. Its private key is in custody and is read from there for each signature.

If a process is interrupted, the next call of `ensure` completes its work, and `secrets.reconcile` deletes a value that
was stored but not recorded. Earlier releases kept the key in a file; `ensure` deletes that file as its last step.
"""

import contextlib

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract import errors

from gpuaas_platform.access import values
from gpuaas_platform.allocations import service as allocations
from gpuaas_platform.call import Site, system_origin
from gpuaas_platform.custody import port as custody
from gpuaas_platform.kit import db, keys, loop
from gpuaas_platform.nodes import ssh_trust
from gpuaas_platform.nodes.ssh_trust import Authority
from gpuaas_platform.record import service as record

log = structlog.get_logger()

TOPIC = "ssh-authority"
"""Topic that wakes the loop that creates the SSH authority once secrets can be stored: after an unseal, or when Vault
responds again."""


async def ensure(site: Site) -> None:
    """Create the authority if there is none. Two processes that do this at the same time get the same authority."""
    present = await ssh_trust.authority(site.database.reader) or await _make(site)
    left, path = ssh_trust.key_in_file(site), ssh_trust.file(site)
    if left is None:
        return
    if keys.openssh_public(left) != present.public_key:  # keep the file: it may be the only copy of its key
        log.warning(
            "ssh_authority.file_differs",
            file=str(path),
            fix="the file has another key than the SSH authority: move it away or delete it",
        )
        return
    path.unlink(missing_ok=True)
    log.info("ssh_authority.file_removed", file=str(path))


async def start(site: Site) -> None:
    """Create the authority at startup if possible. After a failure the loop tries again and logs what is missing."""
    with contextlib.suppress(errors.ApiError, custody.CustodyError):
        await ensure(site)


async def sweep(site: Site) -> None:
    if await ssh_trust.authority(site.database.reader) is not None:
        return
    status = await site.custody.status()
    if status.sealed:
        raise _later(f"custody is not open ({status.key})")
    try:
        await ensure(site)
    except (errors.ApiError, custody.CustodyError) as error:
        raise _later(str(error)) from error


async def signing_key(site: Site) -> Ed25519PrivateKey:
    """Return the authority's private key for one signature. The caller must not store it."""
    present = await ssh_trust.authority(site.database.reader)
    if present is None:
        await values.check(site)
        raise errors.Unavailable(
            "The SSH authority has not been made yet.",
            fix="Repeat the request when the store of secrets (custody) answers again.",
        )
    try:
        value = await values.read(site, present.secret_id, custody.SecretMissing)
    except custody.SecretMissing as error:
        log.error("ssh_authority.key_missing", secret_id=present.secret_id)
        fix = f"An operator starts the server with the custody that holds {present.secret_id}."
        raise errors.Unavailable("The key of the SSH authority is not in this custody.", fix=fix) from error
    return keys.parse(value, present.secret_id)


async def _make(site: Site) -> Authority:
    """Create the authority from the key file of an earlier release, which machines already trust, or from a new key."""
    key = ssh_trust.key_in_file(site) or Ed25519PrivateKey.generate()

    async def make(tx: db.Tx, secret_id: str) -> Authority:
        made = Authority(keys.openssh_public(key), secret_id)
        await ssh_trust.set_authority(tx, made)
        tx.wake(allocations.LOOP)
        origin, details = system_origin(site.clock()), {"public_key": made.public_key}
        await record.audit(tx, origin, "access.authority.keep", secret_id, details=details)
        return made

    return await values.keep(site, keys.private_pem(key), ssh_trust.authority, make, kind="sshca")


def _later(why: str) -> loop.Later:
    return loop.Later(f"there is no SSH authority yet, so no one can enter a machine: {why}")
