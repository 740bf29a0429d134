"""Take values out of custody whose time is over: expired, revoked, or put there by somebody who died on the way."""

import functools

from gpuaas_platform.access import values as keeping
from gpuaas_platform.access.secrets import service, store
from gpuaas_platform.call import Site, system_origin
from gpuaas_platform.custody import port as custody
from gpuaas_platform.kit import db, loop

TOPIC = keeping.TOPIC
_BATCH = 100


async def sweep(site: Site) -> None:
    while found := await store.due(site.database.reader, site.clock(), _BATCH):
        for secret_id in found:
            await _destroy(site, secret_id)
            await site.database.write(functools.partial(_note_destroyed, site, secret_id))


async def _destroy(site: Site, secret_id: str) -> None:
    try:
        await site.custody.delete(secret_id)
    except custody.CustodyError as error:
        raise loop.Later(f"values whose time is over stay in custody: {error}") from error


async def _note_destroyed(site: Site, secret_id: str, tx: db.Tx) -> None:
    secret = await store.SECRETS.get(tx, secret_id)
    if secret is not None and secret.state == "issued":
        await service.end(tx, system_origin(site.clock()), secret, "expired")
    await store.forget_due(tx, secret_id)
