"""The loop of allocations: retry failed releases, prepare waiting machines, install people's keys.

It reads first and opens a write transaction only if something is due. The number of SQL statements for the read does
not depend on the number of allocations.
"""

import datetime

from gpuaas_platform import call
from gpuaas_platform.allocations import release, service
from gpuaas_platform.allocations.keys import rules as key_rules
from gpuaas_platform.allocations.keys import service as keys
from gpuaas_platform.kit import clock, db

TOPIC = service.LOOP


async def sweep(site: call.Site) -> None:
    """Run one sweep that includes the comparison of all keys."""
    await Sweep(site).sweep()


class Sweep:
    """Each sweep checks what is due. Every `RECHECK_AFTER` it also compares all machines' keys with people's roles."""

    def __init__(self, site: call.Site) -> None:
        self._site = site
        self._compared_at: datetime.datetime = clock.EPOCH

    async def sweep(self) -> None:
        site, origin = self._site, call.system_origin(self._site.clock())
        reader, now = site.database.reader, origin.now
        is_provision_due = await service.is_provision_due(reader, site, now)
        is_release_due = await release.is_retry_due(reader, now)
        compares_all = now - self._compared_at >= key_rules.RECHECK_AFTER
        key_sets_due = await keys.due(reader, now, compare_all=compares_all)

        async def use_case(tx: db.Tx) -> None:
            if is_provision_due:
                await service.provision_waiting(tx, site, origin)
            if is_release_due:
                await release.retry_due(tx, site, origin)
            if key_sets_due:
                await keys.install(tx, site, origin, key_sets_due)

        if is_provision_due or is_release_due or key_sets_due:
            await site.database.write(use_case)
        if compares_all:
            self._compared_at = now  # set after the write, so that the next sweep repeats a failed one
