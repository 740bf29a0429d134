"""What one check on a real platform has: an instance of the app, and controllers that the kit starts and kills."""

import asyncio
import contextlib
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from gpuaas_contract.errors import ApiError
from gpuaas_contract.instances import INSTANCE_GET, Instance
from gpuaas_contract.operations import OPERATION_CANCEL, Operation, TakeExit

from gpuaas_sdk.conformance import controllers, stage
from gpuaas_sdk.conformance.controllers import Controller
from gpuaas_sdk.conformance.plan import Move
from gpuaas_sdk.conformance.real import requests
from gpuaas_sdk.conformance.real.requests import REASON, Place
from gpuaas_sdk.conformance.real.site import Site
from gpuaas_sdk.conformance.verdicts import Failed
from gpuaas_sdk.outcomes import NoAnswer

PATIENCE_S = 300.0
"""How long an operation may take at least: programs really start, and a killed controller's lease must pass."""
PREFIX = "conformance"
"""The names of instances and controllers of the kit begin with it."""
Each = Callable[[Operation], Awaitable[None]]


class RealStage:
    """Everything that one check plays with. `opened` makes it."""

    def __init__(self, place: Place, site: Site, folder: Path) -> None:
        self.place, self.driver = place, place.subject.driver
        self.controllers: dict[str, Controller] = {}
        self._site, self._folder = site, folder
        self._patience_s = max(PATIENCE_S, self.driver.patience_s)

    async def start(self, count: int = 1) -> None:
        """Start controllers of the app."""
        for _ in range(count):
            name = f"{PREFIX}@{secrets.token_hex(4)}"
            self.controllers[name] = await controllers.start(
                self.place.subject,
                name,
                server=self._site.server,
                project=self._site.project,
                key=self._site.credentials.resolve(),
                at=self._folder,
                ca_file=self._site.ca_file,
            )

    async def kill(self, name: str) -> None:
        """Kill a controller."""
        if name not in self.controllers:
            raise Failed(
                f"{name} took the operation, and it is no controller of the kit",
                "Stop the other controllers of the app in this project while the checks run.",
                "environment problem",
            )
        await self.controllers.pop(name).kill()

    async def close(self) -> None:
        """Kill all controllers."""
        await asyncio.gather(*(controller.kill() for controller in self.controllers.values()))
        self.controllers.clear()

    async def instance(self) -> Instance:
        """Return the instance as it is now."""
        where: dict[str, Any] = {"project_id": self.place.project_id, "instance_id": self.place.instance_id}
        return await self.place.client.call(INSTANCE_GET, **where)

    async def statuses(self) -> dict[str, str]:
        """Return the status of each live member, by its machine."""
        if not self.place.instance_id:
            return {}
        return {member.node_name: member.status for member in await requests.live_members(self.place)}

    async def request(self, move: Move) -> Operation:
        """Request the operation of a move. Each deploy makes another instance."""
        if move.kind == "deploy":
            self.place.name = f"{PREFIX}-{secrets.token_hex(4)}"
        return await requests.request(self.place, move)

    async def cancel(self, operation: Operation) -> None:
        """Cancel the operation, as a user does."""
        where: dict[str, Any] = {"project_id": self.place.project_id, "operation_id": operation.operation_id}
        await self.place.client.call(OPERATION_CANCEL, TakeExit(reason=REASON), **where)

    async def ended(self, operation: Operation, each: Each | None = None) -> Operation:
        """Wait until the operation has ended. `each` gets it after every change."""
        watched = self.place.client.watch_operation(self.place.project_id, operation.operation_id)
        try:
            async with asyncio.timeout(self._patience_s):
                async for operation in watched:
                    if each is not None:
                        await each(operation)
        except TimeoutError:
            raise stage.late(self.controllers.values(), operation, "did not end", self._patience_s) from None
        return operation

    async def perform(self, move: Move, each: Each | None = None) -> Operation:
        """Request the operation of a move and wait for its success."""
        operation = await self.ended(await self.request(move), each)
        if operation.status != "succeeded":
            raise Failed(
                f"{move} {stage.describe(operation)}",
                f"Read the log of the operation: gpuaas op log {operation.operation_id}",
            )
        return operation

    async def clear(self) -> None:
        """Decommission what a check has left, so that the next one has all machines."""
        if not self.place.instance_id or (await self.instance()).status == "deleted":
            return
        await self.close()
        await self.start()
        ended = await self.ended(await self.request(Move("decommission")))
        if ended.status != "succeeded":
            raise Failed(
                f"the instance {self.place.name} is left, because its decommission {stage.describe(ended)}",
                f"Decommission it: gpuaas decommission {self.place.name}",
            )


@contextlib.asynccontextmanager
async def opened(place: Place, site: Site, count: int = 1) -> AsyncIterator[RealStage]:
    """Start controllers for one check; at its end, decommission the instance and kill them."""
    with tempfile.TemporaryDirectory(prefix="gpuaas-conformance-") as folder:
        on = RealStage(_fresh(place), site, Path(folder))
        try:
            await on.start(count)
            yield on
            await on.clear()
        except Exception:
            try:
                await on.clear()
            except (Failed, ApiError, NoAnswer, OSError):
                _name_left(on.place)  # the verdict is about the first error
            raise
        except asyncio.CancelledError:
            _name_left(on.place)
            raise
        finally:
            await on.close()


def _name_left(place: Place) -> None:
    if place.instance_id:
        sys.stderr.write(f"The instance {place.name} is left: gpuaas decommission {place.name}\n")


def _fresh(place: Place) -> Place:
    """Return the place without an instance."""
    return Place(place.client, place.project_id, place.subject, place.allocation_ids, version=place.version)
