"""The loop of nodes: silent nodes become lost, tasks without a result expire, old tasks are deleted.

It looks with a reader and writes only when something is due.
"""

from gpuaas_platform import call
from gpuaas_platform.kit import db
from gpuaas_platform.nodes import presence
from gpuaas_platform.nodes.tasks import service as tasks

TOPIC = "nodes"


async def sweep(site: call.Site) -> None:
    origin, reader = call.system_origin(site.clock()), site.database.reader
    presence_is_due = await presence.is_due(reader, site, origin.now)
    tasks_are_due = await tasks.is_due(reader, site, origin.now)

    async def use_case(tx: db.Tx) -> None:
        if presence_is_due:
            await presence.sweep(tx, site, origin)
        if tasks_are_due:
            await tasks.sweep(tx, site, origin)

    if presence_is_due or tasks_are_due:
        await site.database.write(use_case)
