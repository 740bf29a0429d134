"""The loop of this domain: silent nodes become lost, tasks nobody answered become failures with a way out."""

from gpuaas_platform import call
from gpuaas_platform.capacity import nodes, service
from gpuaas_platform.kit import db

TOPIC = "capacity"


async def sweep(site: call.Site) -> None:
    origin = call.system_origin(site.clock())

    async def use_case(tx: db.Tx) -> None:
        await nodes.mark_lost(tx, site, origin)
        await service.expire_tasks(tx, site, origin)

    await site.database.write(use_case)
