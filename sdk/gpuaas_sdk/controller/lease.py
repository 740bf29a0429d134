"""The lease of one operation. `execution` renews it while the handler works. All reports are sent through it, so that
nothing is reported after the lease was lost."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import structlog
from gpuaas_contract.endpoint import Answer, Endpoint, RequestBody
from gpuaas_contract.errors import ApiError, LeaseLost
from gpuaas_contract.operations import Operation, Receipt
from gpuaas_contract.runtime import HEARTBEAT, Heartbeat
from gpuaas_contract.wire import Item, NoBody, Page

from gpuaas_sdk import traces
from gpuaas_sdk.client import Client
from gpuaas_sdk.controller.logs import OperationLog
from gpuaas_sdk.outcomes import NoAnswer

log = structlog.get_logger()

FLUSHES_MAX = 20
"""How many heartbeats take lines of the log to the platform at once: all that it stores of an operation."""


class Lease:
    """The lease of one claimed operation, and the calls that depend on it."""

    def __init__(
        self,
        client: Client,
        record: Operation,
        *,
        epoch: int,
        lease_s: int,
        clock: Callable[[], float] = time.monotonic,
        log: OperationLog | None = None,
    ) -> None:
        self.epoch = epoch
        self.server = client.server
        self.record = record
        """The operation as it was claimed."""
        self.log = log or OperationLog()
        """Lines about the operation, which heartbeats and the end take to the platform."""
        self.cancel_requested = asyncio.Event()
        """Set when a user requested a cancel: the controller stops its work, undoes it and reports the end."""
        self._client = client
        self._lease_s = lease_s
        self._clock = clock
        self._renewed_at = clock()
        self._lost_reason = ""
        self._lost = asyncio.Event()

    async def call(
        self,
        endpoint: Endpoint[RequestBody, Answer],
        body: RequestBody | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        **path_params: str,
    ) -> Answer:
        """Call an endpoint of the operation's project. Raises `LeaseLost` after the lease was lost."""
        if self._lost.is_set():
            raise LeaseLost(self._lost_reason)
        path: dict[str, Any] = {"project_id": self.record.project_id, **path_params}
        try:
            return await self._client.call(endpoint, body, query=query, correlation=self.record.correlation_id, **path)
        except LeaseLost as error:
            self.lose(error.message)
            raise

    async def report(
        self, endpoint: Endpoint[RequestBody, Answer], body: RequestBody | None = None, **path_params: str
    ) -> Answer:
        """Call an endpoint of the operation itself."""
        path: dict[str, Any] = {"operation_id": self.record.operation_id, **path_params}
        return await self.call(endpoint, body, **path)

    def pages(
        self, endpoint: Endpoint[NoBody, Page[Item]], query: dict[str, Any], **path_params: str
    ) -> AsyncIterator[Item]:
        """Yield every item of a list in the operation's project."""
        return self._client.pages(endpoint, query=query, project_id=self.record.project_id, **path_params)

    def note(self, receipt: Receipt) -> None:
        """Set `cancel_requested` if the receipt of a report shows that a user requested a cancel."""
        if receipt.cancel_requested:
            self.cancel_requested.set()

    async def keep(self) -> str:
        """Renew the lease until it is lost, and return the reason.

        The first renewal is immediate, because the response to the claim may have taken a part of the lease."""
        while not self._lost.is_set():
            if self.left_s() <= 0:
                self.lose(f"the platform answered no heartbeat for {self._lease_s} s")
                break
            await self.flush()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, min(self._lease_s / 3, self.left_s()))):
                    await self._lost.wait()
        return self._lost_reason

    async def flush(self) -> None:
        """Send a heartbeat, and more of them if the lines of the log do not fit into one."""
        for _ in range(FLUSHES_MAX):
            if not await self.renew() or not self.log.is_long:
                return

    async def renew(self) -> bool:
        """Send one heartbeat with lines of the log. Return whether the platform accepted it.

        `LeaseLost` ends the lease; after any other error it stays as it is."""
        # The platform counts the lease from the receipt of the heartbeat. Here it is counted from the sending, which is
        # earlier, so this process never believes in a lease that has expired.
        sent_at, lines = self._clock(), self.log.batch()
        try:
            with traces.detached():
                receipt = await self._client.call(
                    HEARTBEAT,
                    Heartbeat(epoch=self.epoch, lease_s=self._lease_s, log=lines),
                    correlation=self.record.correlation_id,
                    timeout_s=self.left_s(),
                    project_id=self.record.project_id,
                    operation_id=self.record.operation_id,
                )
            self._renewed_at = sent_at
            self.log.sent(lines)
            self.note(receipt)
            return True
        except LeaseLost as error:
            self.lose(error.message)
        except (ApiError, NoAnswer) as error:
            log.warning("lease.renew_failed", error=error.message, lease_left_s=round(self.left_s(), 1))
        return False

    def left_s(self) -> float:
        """Return the seconds until the lease expires without another renewal."""
        return self._renewed_at + self._lease_s - self._clock()

    def lose(self, reason: str) -> None:
        """End the lease: `keep` returns, and every further call raises `LeaseLost` with the first reason."""
        self._lost_reason = self._lost_reason or reason
        self._lost.set()

    @property
    def is_lost(self) -> bool:
        """Whether the lease has ended."""
        return self._lost.is_set()
