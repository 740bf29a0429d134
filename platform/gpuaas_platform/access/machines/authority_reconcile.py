"""Make the SSH authority as soon as custody is open: at the start, after an unseal, when Vault is back."""

import contextlib

from gpuaas_contract import errors

from gpuaas_platform.access.machines import authority
from gpuaas_platform.call import Site
from gpuaas_platform.custody import port as custody
from gpuaas_platform.kit import loop
from gpuaas_platform.nodes import ssh_trust

TOPIC = "ssh-authority"


async def start(site: Site) -> None:
    """A failure does not prevent the start: the loop tries again and reports what custody lacks."""
    with contextlib.suppress(errors.ApiError, custody.CustodyError):
        await authority.ensure(site)


async def sweep(site: Site) -> None:
    if await ssh_trust.authority(site.database.reader) is not None:
        return
    status = await site.custody.status()
    if status.sealed:
        raise _later(f"custody is not open ({status.key})")
    try:
        await authority.ensure(site)
    except (errors.ApiError, custody.CustodyError) as error:
        raise _later(str(error)) from error


def _later(why: str) -> loop.Later:
    return loop.Later(f"there is no SSH authority yet, so no one can enter a machine: {why}")
