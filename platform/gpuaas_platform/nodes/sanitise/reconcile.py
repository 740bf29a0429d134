"""The loop that sanitises nodes. It reads the state of each attempt from the provisioner and acts on what is missing.

The provisioner is called between transactions. After a crash, the next sweep sends an order again that has no record.
"""

import asyncio
from dataclasses import dataclass

import structlog
from gpuaas_contract.capacity import Node, SanitiseAttempt

from gpuaas_platform.call import Site, system_origin
from gpuaas_platform.nodes import service as nodes
from gpuaas_platform.nodes.sanitise import rules, service, store
from gpuaas_platform.nodes.sanitise.port import Progress, Provisioner, Unavailable

log = structlog.get_logger()

TOPIC = nodes.SANITISE
_PARALLEL = 16
"""How many calls to the provisioner are open at a time."""


@dataclass(frozen=True)
class Sweep:
    site: Site
    provisioner: Provisioner

    async def sweep(self) -> None:
        site, now = self.site, self.site.clock()
        if await service.is_any_due(site.database.reader, site, now):
            await site.database.write(lambda tx: service.begin_due(tx, site, system_origin(now)))
        in_progress = await store.in_progress(site.database.reader)
        limit = asyncio.Semaphore(_PARALLEL)
        async with asyncio.TaskGroup() as group:
            for node in in_progress:
                if node.sanitising is not None:
                    group.create_task(self._drive(node, node.sanitising, limit))

    async def _drive(self, node: Node, attempt: SanitiseAttempt, limit: asyncio.Semaphore) -> None:
        try:
            async with limit:
                progress = await self._ask(node, attempt)
        except Unavailable as error:
            log.warning("sanitise.provisioner_unavailable", node_id=node.node_id, error=str(error))
            progress = Progress(state="unknown", reason=str(error))
        by, origin = f"provisioner:{self.provisioner.name}", system_origin(self.site.clock())
        if rules.progressed(node, progress, by, origin.now) != node:
            await self.site.database.write(
                lambda tx: service.note(tx, origin, node.node_id, attempt.attempt_id, progress, by)
            )

    async def _ask(self, node: Node, attempt: SanitiseAttempt) -> Progress:
        """Return the state of the attempt. Send the order first if the provisioner has no record of it."""
        if attempt.is_installed:
            return Progress(state="done")
        progress = await self.provisioner.state(attempt.attempt_id)
        if progress.state != "unknown" or self.site.clock() >= attempt.ends_at:
            return progress
        order = await self.site.database.write(lambda tx: service.make_order(tx, self.site, node))
        return await self.provisioner.begin(order) if order else progress
