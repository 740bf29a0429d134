"""The ends of the operations of a project, from its events: one reader for all of them. To watch each operation would
take more of the processor than the operations."""

import asyncio
from collections import defaultdict

from gpuaas_contract import events
from gpuaas_contract.events import Event
from gpuaas_sdk.client import Client

_PAGE = 500


class Ends:
    """Remembers each event about the end of an operation. An operation should have one."""

    def __init__(self) -> None:
        self._cursor = 0
        self._statuses: defaultdict[str, list[str]] = defaultdict(list)
        self._ended: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def follow(self, client: Client, project_id: str) -> None:
        """Read events until cancelled."""
        async for event in client.events(project_id, after=self._cursor):
            self._note(event)

    async def catch_up(self, client: Client, project_id: str) -> None:
        """Read all events that exist now. Do not follow them at the same time."""
        while True:
            query = {"after": self._cursor, "limit": _PAGE}
            page = await client.call(events.EVENT_LIST, query=query, project_id=project_id)
            if not page.items:
                return
            for event in page.items:
                self._note(event)

    async def wait(self, operation_id: str) -> None:
        await self._ended[operation_id].wait()

    def statuses(self, operation_id: str) -> list[str]:
        """Return the status in each event about the end of the operation."""
        return self._statuses[operation_id]

    def _note(self, event: Event) -> None:
        self._cursor = event.cursor
        if event.type == "apps.operation.ended":
            operation_id = str(event.payload["operation_id"])
            self._statuses[operation_id].append(str(event.payload["status"]))
            self._ended[operation_id].set()
