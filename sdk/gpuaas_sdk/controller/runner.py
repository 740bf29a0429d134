"""Claim operations and run their handlers. Started by `App.main` (or a test); dying at any moment is harmless, since
the lease lapses and the next claim goes on where the record ends."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog
from gpuaas_contract.errors import ApiError, CredentialsInvalid, LeaseLost
from gpuaas_contract.instances import Instance, Member
from gpuaas_contract.operations import Operation as OperationRecord
from gpuaas_contract.runtime import CLAIM, COMPLETE, FAIL, Claim, ClaimOperation, CompleteOperation, FailOperation

from gpuaas_sdk import machine
from gpuaas_sdk.client import Client
from gpuaas_sdk.controller import rules
from gpuaas_sdk.controller.lease import Lease
from gpuaas_sdk.controller.machines import Connect
from gpuaas_sdk.controller.operation import Operation
from gpuaas_sdk.failures import Permanent
from gpuaas_sdk.outcomes import NoAnswer

log = structlog.get_logger()

Handler = Callable[[Operation], Awaitable[None]]
FindHandler = Callable[[str, str], Handler | None]
"""Operation kind and component key in, the app's handler out."""


@dataclass(frozen=True)
class RunnerSettings:
    lease_s: int = 15
    """How long a dead controller blocks its operations."""
    claim_wait_s: float = 20.0
    """How long one claim waits at the platform for work."""
    operations_max: int = 8
    """Operations that run at once."""
    refused_pause_s: float = 5.0
    """Pause after the platform refused or did not answer a claim."""
    stop_s: float = 10.0
    """How long cancelled handlers may take to clean up at the end."""


DEFAULT_SETTINGS = RunnerSettings()


@dataclass(frozen=True)
class _Claimed:
    record: OperationRecord
    instance: Instance
    members: list[Member]
    epoch: int


class Runner:
    def __init__(
        self,
        client: Client,
        *,
        app_slug: str,
        project_id: str,
        name: str,
        find_handler: FindHandler,
        settings: RunnerSettings = DEFAULT_SETTINGS,
        connect: Connect = machine.connect,
    ) -> None:
        self._client = client
        self._app_slug = app_slug
        self._project_id = project_id
        self._name = name
        self._find_handler = find_handler
        self._settings = settings
        self._connect = connect
        self._running: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Claim and run until cancelled."""
        try:
            while True:
                await self._free_slot()
                claim = await self._claim()
                if claim.operation is not None and claim.instance is not None:
                    self._start(_Claimed(claim.operation, claim.instance, claim.members, claim.epoch))
        finally:
            await self._stop()

    async def _free_slot(self) -> None:
        while len(self._running) >= self._settings.operations_max:
            await asyncio.wait(self._running.values(), return_when=asyncio.FIRST_COMPLETED)

    async def _claim(self) -> Claim:
        # One id until there is an answer: if the platform granted the claim and the answer was lost, asking again
        # returns the same lease instead of leaving the operation blocked.
        request = ClaimOperation(
            app_slug=self._app_slug,
            holder=self._name,
            claim_id=uuid.uuid4().hex,
            lease_s=self._settings.lease_s,
            wait_s=self._settings.claim_wait_s,
        )
        while True:
            try:
                return await self._client.call(CLAIM, request, project_id=self._project_id)
            except CredentialsInvalid:
                raise
            except (ApiError, NoAnswer) as error:
                log.warning("no claim; asking again", why=error.message, fix=error.fix)
                await asyncio.sleep(self._settings.refused_pause_s)

    def _start(self, claimed: _Claimed) -> None:
        operation_id = claimed.record.operation_id
        task = asyncio.create_task(self._run_one(claimed, self._running.get(operation_id)))
        self._running[operation_id] = task
        task.add_done_callback(lambda done: self._forget(operation_id, done))

    def _forget(self, operation_id: str, task: asyncio.Task[None]) -> None:
        if self._running.get(operation_id) is task:
            del self._running[operation_id]
        if not task.cancelled() and (error := task.exception()):
            log.error("the controller kit failed", operation_id=operation_id, exc_info=error)

    async def _run_one(self, claimed: _Claimed, previous: asyncio.Task[None] | None) -> None:
        record = claimed.record
        with structlog.contextvars.bound_contextvars(
            app=self._app_slug,
            operation_id=record.operation_id,
            instance_id=record.instance_id,
            correlation_id=record.correlation_id,
        ):
            if previous is not None:
                # This process lost the lease and got it again: its former handler must be gone before the next one.
                previous.cancel()
                await asyncio.wait({previous})
            log.info("claimed", kind=record.kind, epoch=claimed.epoch)
            await self._run_under_lease(claimed)

    async def _run_under_lease(self, claimed: _Claimed) -> None:
        lease = Lease(self._client, claimed.record, epoch=claimed.epoch, lease_s=self._settings.lease_s)
        operation = Operation(lease, claimed.record, claimed.instance, claimed.members, connect=self._connect)
        ending = asyncio.Event()
        handling = asyncio.create_task(self._handle(operation, lease, ending))
        keeping = asyncio.create_task(lease.keep())
        try:
            await asyncio.wait({handling, keeping}, return_when=asyncio.FIRST_COMPLETED)
            if ending.is_set():
                # The last report may end the lease before its own answer is here; it finds out by itself.
                await asyncio.wait({handling})
        finally:
            await _cancelled(handling, keeping)
            await operation.close()
        if not ending.is_set():
            log.warning("stopped without a report; the next claim goes on")

    async def _handle(self, operation: Operation, lease: Lease, ending: asyncio.Event) -> None:
        try:
            failure = await self._perform(operation, lease, ending)
            if failure is not None:
                ending.set()
                log.error("failed", kind=operation.kind, code=failure.code, why=failure.message, fix=failure.fix)
                await lease.report(FAIL, failure)
        except LeaseLost as error:
            log.warning("lease lost", why=error.message)
        except NoAnswer as error:
            log.warning("the platform does not answer; the lease will lapse", why=error.message)

    async def _perform(self, operation: Operation, lease: Lease, ending: asyncio.Event) -> FailOperation | None:
        try:
            handler = self._find_handler(operation.kind, operation.component_key)
            if handler is None:
                raise rules.NotSupported(f"{self._app_slug} has no handler for {operation.kind}")
            await operation.until_deadline(lambda: handler(operation))
            ending.set()
            await lease.report(COMPLETE, CompleteOperation(epoch=lease.epoch))
            log.info("succeeded", kind=operation.kind)
        except (LeaseLost, NoAnswer):
            raise
        except Permanent as error:
            return rules.failure_of(error, lease.epoch)
        except Exception as error:
            log.exception("handler failed")
            return rules.failure_of(error, lease.epoch)
        return None

    async def _stop(self) -> None:
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=self._settings.stop_s)


async def _cancelled(*tasks: asyncio.Task[object]) -> None:
    for task in tasks:
        task.cancel()
    for end in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(end, Exception):
            log.error("the controller kit failed", exc_info=end)
