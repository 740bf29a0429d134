"""Claim operations and run their handlers. Started by `App.main` (or a test); dying at any moment is harmless, since
the lease lapses and the next claim goes on where the record ends."""

import asyncio
import uuid
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

import structlog
from gpuaas_contract.errors import ApiError, CredentialsInvalid, LeaseLost
from gpuaas_contract.instances import Instance
from gpuaas_contract.operations import Operation as OperationRecord
from gpuaas_contract.runtime import CLAIM, COMPLETE, FAIL, Claim, ClaimOperation, CompleteOperation, FailOperation

from gpuaas_sdk import machine
from gpuaas_sdk.client import Client
from gpuaas_sdk.controller import reconcile, rules
from gpuaas_sdk.controller.handlers import Handlers, Said
from gpuaas_sdk.controller.lease import Lease
from gpuaas_sdk.controller.machines import Connect
from gpuaas_sdk.controller.operation import Operation
from gpuaas_sdk.controller.reconcile import Reconciler, ReconcileSettings
from gpuaas_sdk.failures import Permanent
from gpuaas_sdk.outcomes import NoAnswer

log = structlog.get_logger()


@dataclass(frozen=True)
class RunnerSettings:
    lease_s: int = 15
    """How long a dead controller blocks its operations."""
    claim_wait_s: float = 20.0
    """How long one claim waits at the platform for work."""
    operations_max: int = 64
    """Operations that run at once. Most of them wait; one that waits for a day must not keep out a preview."""
    refused_pause_s: float = 5.0
    """Pause after the platform refused or did not answer a claim."""
    stop_s: float = 10.0
    """How long cancelled handlers may take to clean up at the end."""
    reconcile: ReconcileSettings = reconcile.DEFAULT_SETTINGS
    """How instances are looked after between operations."""


DEFAULT_SETTINGS = RunnerSettings()


@dataclass(frozen=True)
class _Claimed:
    record: OperationRecord
    instance: Instance
    claim: Claim
    lease: Lease


@dataclass(frozen=True)
class _Run:
    task: asyncio.Task[None]
    lease: Lease


class Runner:
    def __init__(
        self,
        client: Client,
        *,
        project_id: str,
        name: str,
        version: str,
        handlers: Handlers,
        settings: RunnerSettings = DEFAULT_SETTINGS,
        connect: Connect = machine.connect,
    ) -> None:
        self._client = client
        self._app_slug = handlers.app_slug
        self._project_id = project_id
        self._name = name
        self._version = version
        self._handlers = handlers
        self._settings = settings
        self._connect = connect
        self._running: dict[str, _Run] = {}
        self._worked_on: Counter[str] = Counter()
        self._reconciler = self._make_reconciler()

    async def run(self) -> None:
        """Claim and run until cancelled."""
        looking = [asyncio.create_task(self._reconciler.run())] if self._reconciler else []
        try:
            while True:
                await self._free_slot()
                claim = await self._claim()
                if claim.operation is not None and claim.instance is not None:
                    self._start(_Claimed(claim.operation, claim.instance, claim, self._lease(claim.operation, claim)))
        finally:
            await _cancelled(*looking)
            await self._stop()

    def _make_reconciler(self) -> Reconciler | None:
        if self._handlers.reconcile is None:
            return None
        return Reconciler(
            self._client,
            app_slug=self._app_slug,
            project_id=self._project_id,
            name=self._name,
            reconcile=self._handlers.reconcile,
            is_busy=lambda instance_id: self._worked_on[instance_id] > 0,
            settings=self._settings.reconcile,
        )

    async def _free_slot(self) -> None:
        while len(self._running) >= self._settings.operations_max:
            tasks = [run.task for run in self._running.values()]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)

    async def _claim(self) -> Claim:
        # One id until there is an answer: if the platform granted the claim and the answer was lost, asking again
        # returns the same lease instead of leaving the operation blocked.
        request = ClaimOperation(
            app_slug=self._app_slug,
            holder=self._name,
            claim_id=uuid.uuid4().hex,
            lease_s=self._settings.lease_s,
            wait_s=self._settings.claim_wait_s,
            controller_version=self._version,
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
        self._running[operation_id] = _Run(task, claimed.lease)
        task.add_done_callback(lambda done: self._forget(operation_id, done))

    def _forget(self, operation_id: str, task: asyncio.Task[None]) -> None:
        run = self._running.get(operation_id)
        if run is not None and run.task is task:
            del self._running[operation_id]
        if not task.cancelled() and (error := task.exception()):
            log.error("the controller kit failed", operation_id=operation_id, exc_info=error)

    async def _run_one(self, claimed: _Claimed, previous: _Run | None) -> None:
        record = claimed.record
        with structlog.contextvars.bound_contextvars(
            app=self._app_slug,
            operation_id=record.operation_id,
            instance_id=record.instance_id,
            correlation_id=record.correlation_id,
        ):
            if previous is not None:
                # This process lost the lease and got it again. The old handler is stopped once and may clean up; the
                # new one must not run beside it.
                previous.lease.lose("this process claimed the operation again")
                await asyncio.wait({previous.task})
            if claimed.lease.is_lost:
                return
            log.info("claimed", kind=record.kind, epoch=claimed.claim.epoch)
            self._worked_on[record.instance_id] += 1
            if self._reconciler is not None:
                self._reconciler.stand_back(record.instance_id)
            try:
                await self._run_under_lease(claimed)
            finally:
                self._worked_on[record.instance_id] -= 1
                if self._reconciler is not None:
                    self._reconciler.wake(record.instance_id)

    async def _run_under_lease(self, claimed: _Claimed) -> None:
        claim, lease = claimed.claim, claimed.lease
        operation = Operation(lease, claimed.instance, claim.members, claim.holds, connect=self._connect)
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
            said = await self._do_or_undo(operation, lease)
            ending.set()
            done = CompleteOperation(
                epoch=lease.epoch, result=said.result, preview=said.preview, undone=operation.backs_out
            )
            ended = await lease.report(COMPLETE, done)
            log.info("completed", kind=operation.kind, status=ended.status)
        except (LeaseLost, NoAnswer):
            raise
        except Permanent as error:
            return rules.failure_of(error, lease.epoch)
        except Exception as error:
            log.exception("handler failed")
            return rules.failure_of(error, lease.epoch)
        return None

    async def _do_or_undo(self, operation: Operation, lease: Lease) -> Said:
        """Work until it is done or somebody cancels; then, and to compensate, undo."""
        if not operation.backs_out:
            doing = operation.until_deadline(lambda: self._handlers.perform(operation))
            said = await _unless(lease.cancel_requested, doing)
            if said is not None:
                return said
            log.info("cancelled; undoing", kind=operation.kind)
            await operation.turn_back()
        return await operation.until_deadline(lambda: self._handlers.undo(operation))

    def _lease(self, record: OperationRecord, claim: Claim) -> Lease:
        return Lease(self._client, record, epoch=claim.epoch, lease_s=self._settings.lease_s)

    async def _stop(self) -> None:
        tasks = [run.task for run in self._running.values()]
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


async def _unless(asked: asyncio.Event, work: Coroutine[Any, Any, Said]) -> Said | None:
    """What the work brought; None if it was asked to stop first, and has stopped."""
    working, asking = asyncio.create_task(work), asyncio.create_task(asked.wait())
    try:
        await asyncio.wait({working, asking}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        working.cancel()
        end = (await asyncio.gather(working, return_exceptions=True))[0]
    finally:
        working.cancel()
        asking.cancel()
        await asyncio.gather(working, asking, return_exceptions=True)
    if isinstance(end, LeaseLost | NoAnswer):
        raise end
    if isinstance(end, Exception):
        log.warning("the handler failed while it stopped", why=str(end) or type(end).__name__)
    return end if isinstance(end, Said) else None
