"""Make the SSH authority as soon as custody is open: at the start, after an unseal, when Vault is back."""

import contextlib

from gpuaas_contract import errors

from gpuaas_platform.access import authority
from gpuaas_platform.call import Site
from gpuaas_platform.capacity import ssh_trust

TOPIC = "ssh-authority"


async def start(site: Site) -> None:
    """Never in the way of a start: what custody lacks is in the log, and said to whoever needs the authority."""
    with contextlib.suppress(errors.ApiError):
        await authority.ensure(site)


async def sweep(site: Site) -> None:
    if await ssh_trust.authority(site.database.reader) is None and not (await site.custody.status()).sealed:
        await start(site)
