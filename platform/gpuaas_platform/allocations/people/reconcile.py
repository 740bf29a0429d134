"""The loop of people: give identities, announce changed lists, and install accounts on machines.

It reads first and opens a write transaction only if something is due."""

from gpuaas_platform import call
from gpuaas_platform.allocations.people import rules, service
from gpuaas_platform.identity.posix import service as posix
from gpuaas_platform.kit import db

TOPIC = posix.TOPIC
INTERVAL_S = rules.RECHECK_S


async def sweep(site: call.Site) -> None:
    origin = call.system_origin(site.clock())
    if await posix.missing(site.database.reader, origin.now):
        await site.database.write(lambda tx: service.give_identities(tx, site, origin))
    due = await service.due(site.database.reader, origin.now)
    if not due.project_ids and not due.allocation_ids:
        return

    async def use_case(tx: db.Tx) -> None:
        await service.announce(tx, origin, due.project_ids)
        await service.install(tx, site, origin, due.allocation_ids)

    await site.database.write(use_case)
