"""The loop of this domain: silent nodes become lost, tasks nobody answered fail, failed releases are tried again,
claims that waited or lost their disk are provisioned, machines get the keys of the people who may enter them."""

from gpuaas_platform import call
from gpuaas_platform.allocations import release as allocation_release
from gpuaas_platform.allocations import service, store
from gpuaas_platform.allocations import task_results as allocation_tasks
from gpuaas_platform.allocations.keys import service as allocation_keys
from gpuaas_platform.kit import db
from gpuaas_platform.nodes import service as nodes

TOPIC = store.LOOP


async def sweep(site: call.Site) -> None:
    origin = call.system_origin(site.clock())

    async def use_case(tx: db.Tx) -> None:
        await nodes.mark_lost(tx, site, origin)
        await nodes.forget_tasks(tx, site, origin)
        await allocation_tasks.expire_tasks(tx, origin)
        await service.provision_waiting(tx, site, origin)
        await allocation_release.retry_due(tx, site, origin)
        await allocation_keys.settle(tx, site, origin)

    await site.database.write(use_case)
