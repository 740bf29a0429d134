"""Claim the operations of an app and run their handlers. `App.main` or a test starts it. The process may die at any
moment: its leases expire, and the next claim continues each operation from what the platform has stored."""

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

import structlog
from gpuaas_contract.errors import ApiError, CredentialsInvalid
from gpuaas_contract.instances import Instance
from gpuaas_contract.operations import ASKING_KINDS, INSTANCE_KINDS
from gpuaas_contract.operations import Operation as OperationRecord
from gpuaas_contract.runtime import CLAIM, LEASE_S_MAX, Claim, ClaimOperation
from gpuaas_contract.wire import WAIT_S_MAX
from msgspec.structs import replace

from gpuaas_sdk import machine, traces
from gpuaas_sdk.client import Client
from gpuaas_sdk.controller import execution, health, logs
from gpuaas_sdk.controller.execution import Execution
from gpuaas_sdk.controller.gauges import Gauges
from gpuaas_sdk.controller.handlers import Handlers
from gpuaas_sdk.controller.health import HealthLoop, HealthSettings
from gpuaas_sdk.controller.lease import Lease
from gpuaas_sdk.controller.logs import OperationLog
from gpuaas_sdk.controller.operation import Operation
from gpuaas_sdk.controller.operation.machines import Connect
from gpuaas_sdk.controller.redaction import Redaction
from gpuaas_sdk.controller.self_report import SelfReport
from gpuaas_sdk.outcomes import NoAnswer
from gpuaas_sdk.traces import Spans

log = structlog.get_logger()


@dataclass(frozen=True)
class RunnerSettings:
    """How a runner claims and runs operations.

    App("hello", manifest=Path("manifest.yaml"), settings=RunnerSettings(operations_max=4))"""

    lease_s: int = 15
    """The length of a lease. After a controller dies, its operations can be claimed again after this time."""
    claim_wait_s: float = 20.0
    """How long one claim waits at the platform for an operation."""
    operations_max: int = 64
    """How many operations of a project run at the same time. Many, because an operation that waits must not delay a
    preview."""
    refused_pause_s: float = 5.0
    """Pause after the platform refused a claim or did not answer it."""
    stop_s: float = 10.0
    """How long cancelled handlers may take to clean up when the runner stops."""
    report_every_s: float = 5.0
    """The shortest interval between two reports of what fails in this process and of its log. A report is sent with a
    claim, so `claim_wait_s` delays it too."""
    health: HealthSettings = health.DEFAULT_SETTINGS
    """How instances are looked after between operations."""

    def __post_init__(self) -> None:
        if not 1 <= self.lease_s <= LEASE_S_MAX:
            raise ValueError(f"lease_s is {self.lease_s}; the platform accepts 1 to {LEASE_S_MAX} seconds.")
        if not 0 <= self.claim_wait_s <= WAIT_S_MAX:
            raise ValueError(f"claim_wait_s is {self.claim_wait_s}; the platform accepts 0 to {WAIT_S_MAX} seconds.")


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
    """Claims operations of one app in one project and runs them at the same time.

    runner = app.runner(client, project_id, "hello@1")
    await runner.run()"""

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
        spans: Spans | None = None,
        gauges: Gauges | None = None,
        redaction: Redaction | None = None,
    ) -> None:
        self._client = client
        self._app_slug = handlers.app_slug
        self._project_id = project_id
        self._name = name
        self._version = version
        self._handlers = handlers
        self._settings = settings
        self._connect = connect
        self._spans = spans
        self._gauges = gauges
        self._runs: dict[str, _Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._self_report = SelfReport(settings.report_every_s, redaction=redaction)
        self._health_loop = self._make_health_loop()

    async def run(self) -> None:
        """Claim and run operations until cancelled."""
        with logs.collected(self._self_report.log):
            await self._run()

    @property
    def is_busy(self) -> bool:
        """Whether handlers run. Those that do not clean up within `stop_s` still run after `run` has ended."""
        return bool(self._tasks) or (self._health_loop is not None and self._health_loop.is_busy)

    async def _run(self) -> None:
        looking = [asyncio.create_task(self._health_loop.run())] if self._health_loop else []
        try:
            while True:
                await self._free_slot()
                claim = await self._claim()
                if claim.operation is not None and claim.instance is not None:
                    lease = self._lease(claim.operation, claim)
                    self._start(_Claimed(claim.operation, claim.instance, claim, lease))
        finally:
            # Operations first: they would go further while the health loop gives up its stewardships.
            await self._stop()
            await execution.cancel(*looking)

    def _make_health_loop(self) -> HealthLoop | None:
        if self._handlers.health is None:
            return None
        return HealthLoop(
            self._client,
            app_slug=self._app_slug,
            project_id=self._project_id,
            name=self._name,
            health=self._handlers.health,
            interval_s=self._handlers.health_every_s,
            connect=self._connect,
            settings=self._settings.health,
            gauges=self._gauges,
            forms=self._handlers.forms,
            self_report=self._self_report,
        )

    async def _free_slot(self) -> None:
        while len(self._runs) >= self._settings.operations_max:
            tasks = [run.task for run in self._runs.values()]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)

    async def _claim(self) -> Claim:
        # All attempts have the same claim id. If the response to a granted claim was lost, the next attempt returns the
        # same lease; with a new id the operation would be blocked until that lease expires.
        request = ClaimOperation(
            app_slug=self._app_slug,
            holder=self._name,
            claim_id=uuid.uuid4().hex,
            lease_s=self._settings.lease_s,
            wait_s=self._settings.claim_wait_s,
            controller_version=self._version,
            undoes=self._handlers.undoes,
            report=self._self_report.due(),
        )
        while True:
            try:
                return await self._client.call(CLAIM, request, project_id=self._project_id)
            except CredentialsInvalid:
                raise
            except (ApiError, NoAnswer) as error:
                if request.report is not None and isinstance(error, ApiError) and not error.retryable:
                    # The report may be the cause, and work is more important. A later claim has the next report.
                    log.warning("report.left_out", code=error.code, error=error.message, fix=error.fix)
                    request = replace(request, report=None)
                    continue
                pause_s = self._settings.refused_pause_s
                log.warning("claim.failed", error=error.message, fix=error.fix, retry_in_s=pause_s)
                await asyncio.sleep(pause_s)

    def _lease(self, record: OperationRecord, claim: Claim) -> Lease:
        lines = OperationLog(self._self_report.log.redaction, self._project_id)
        return Lease(self._client, record, epoch=claim.epoch, lease_s=self._settings.lease_s, log=lines)

    def _start(self, claimed: _Claimed) -> None:
        operation_id = claimed.record.operation_id
        task = asyncio.create_task(self._run_claimed(claimed, self._runs.get(operation_id)))
        self._runs[operation_id] = _Run(task, claimed.lease)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._forget(operation_id, done))

    def _forget(self, operation_id: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        run = self._runs.get(operation_id)
        if run is not None and run.task is task:
            del self._runs[operation_id]
        if not task.cancelled() and (error := task.exception()):
            log.error("controller.task_crashed", operation_id=operation_id, exc_info=error)

    async def _run_claimed(self, claimed: _Claimed, previous: _Run | None) -> None:
        record = claimed.record
        about = {
            "operation_id": record.operation_id,
            "instance_id": record.instance_id,
            "correlation_id": record.correlation_id,
        }
        with (
            structlog.contextvars.bound_contextvars(app=self._app_slug, **about),
            logs.collected(claimed.lease.log),
            traces.continued(record.traceparent, self._spans, f"operation {record.kind}", _attributes(about)),
        ):
            if previous is not None:
                # This process lost the lease and claimed the operation again. Stop the old handler and wait for its
                # clean-up: two handlers must not run at the same time.
                previous.lease.lose("this process claimed the operation again")
                await asyncio.wait({previous.task})
            if not claimed.lease.is_lost:
                log.info("operation.claimed", kind=record.kind, epoch=claimed.claim.epoch)
                await self._execute(claimed)

    async def _execute(self, claimed: _Claimed) -> None:
        """Run the handler of the operation. If it changes the whole instance, the health handler waits for its end.
        While it works on some members, the others are looked at: a drain can wait for a day."""
        instance_id, claim = claimed.record.instance_id, claimed.claim
        operation = Operation(
            claimed.lease,
            claimed.instance,
            claim.members,
            claim.holds,
            connect=self._connect,
            forms=self._handlers.forms,
            step_undos=self._handlers.step_undos,
        )
        if self._health_loop is not None and claimed.record.kind in INSTANCE_KINDS:
            self._health_loop.interrupt(instance_id)
        try:
            await Execution(self._handlers, operation, claimed.lease).run()
        finally:
            if self._health_loop is not None and claimed.record.kind in ASKING_KINDS:
                # It changed no member. People and programs may run actions more often than a look takes.
                self._health_loop.look_soon(instance_id)
            elif self._health_loop is not None:
                # A look that began beside the operation waits for what is outdated now.
                self._health_loop.interrupt(instance_id)
                self._health_loop.wake(instance_id)

    async def _stop(self) -> None:
        for run in self._runs.values():
            run.task.cancel()
        # Also tasks whose operation was claimed again: they lost their lease and clean up already.
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=self._settings.stop_s)


def _attributes(about: Mapping[str, str]) -> dict[str, str]:
    return {f"gpuaas.{name}": value for name, value in about.items()}
