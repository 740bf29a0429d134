"""Look after instances between operations: keep their stewardships, and run the app's health handler for each at an
interval and when woken. `runner` starts this; a missed wake-up costs one interval, never correctness."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import structlog
from gpuaas_contract.errors import ApiError, LeaseLost
from gpuaas_contract.instances import INSTANCE_GET, MEMBER_LIST
from gpuaas_contract.runtime import LEASE_S_MAX, ReportedCondition
from gpuaas_contract.stewardships import STEWARD_LEASE_S

from gpuaas_sdk import machine
from gpuaas_sdk.client import Client
from gpuaas_sdk.controller import logs, rules
from gpuaas_sdk.controller.gauges import Gauges
from gpuaas_sdk.controller.inputs import Forms
from gpuaas_sdk.controller.operation.machines import Connect
from gpuaas_sdk.controller.people import People
from gpuaas_sdk.controller.reconciliation import Health, Reconciliation, Watch
from gpuaas_sdk.controller.self_report import NotedFailure, SelfReport
from gpuaas_sdk.controller.stewardships import Stewardships
from gpuaas_sdk.outcomes import NoAnswer

log = structlog.get_logger()

_LIVE = {"live": "true"}
CHECKED_STATUSES = frozenset({"running", "degraded", "stopped", "failed"})
"""Instances in another status are not looked at: an operation changes the whole instance, or nothing is deployed."""
HEALTH_CHECK_WORKS = "HealthCheckWorks"
"""The condition that the kit reports itself: whether the app's health handler works.

is_checked = any(entry.type == HEALTH_CHECK_WORKS and entry.status == "true" for entry in instance.conditions)"""


@dataclass(frozen=True)
class HealthSettings:
    """How instances are looked after between operations.

    HealthSettings(interval_s=30)"""

    interval_s: float | None = None
    """The interval between two looks at an instance, plus or minus 20 %; none: what `@app.health` declares. A wake-up
    causes an earlier look."""
    look_s_max: float = 60.0
    """Time limit of one look at one instance. A look that takes longer is cancelled."""
    looks_max: int = 8
    """The number of instances that are looked at at the same time."""
    lease_s: int = STEWARD_LEASE_S
    """The length of a stewardship. After a controller dies, another one can look after its instances
    after this time."""

    def __post_init__(self) -> None:
        if not 1 <= self.lease_s <= LEASE_S_MAX:
            raise ValueError(f"lease_s is {self.lease_s}; the platform accepts 1 to {LEASE_S_MAX} seconds.")


DEFAULT_SETTINGS = HealthSettings()


class HealthLoop:
    """Runs the health handler for every instance that this process looks after: at an interval, and when woken."""

    def __init__(
        self,
        client: Client,
        *,
        app_slug: str,
        project_id: str,
        name: str,
        health: Health,
        interval_s: float,
        connect: Connect = machine.connect,
        settings: HealthSettings = DEFAULT_SETTINGS,
        gauges: Gauges | None = None,
        forms: Forms = Forms(),  # noqa: B008 - frozen
        self_report: SelfReport | None = None,
    ) -> None:
        self._self_report = self_report or SelfReport(0)
        self._client = client
        self._gauges = gauges
        self._forms = forms
        self._app_slug = app_slug
        self._project_id = project_id
        self._name = name
        self._health = health
        self._connect = connect
        self._settings = settings
        self._interval_s = interval_s if settings.interval_s is None else settings.interval_s
        self._stewardships = Stewardships(
            client, app_slug=app_slug, project_id=project_id, name=name, lease_s=settings.lease_s
        )
        self._people = People(client, project_id, self._interval_s)
        self._watches: dict[str, Watch] = {}
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()
        self._looks: dict[str, asyncio.Task[None]] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._again: set[str] = set()
        self._closing: set[asyncio.Task[None]] = set()
        """Connections of instances that this process no longer looks after. A frozen machine does not confirm the end,
        and no lease may end while this process waits for it."""
        self._renew_now = asyncio.Event()

    @property
    def is_busy(self) -> bool:
        """Whether looks run, also those that are cancelled and clean up."""
        return bool(self._running)

    def wake(self, instance_id: str) -> None:
        """Look at this instance as soon as a worker is free. If it has no steward yet, try to become it."""
        if instance_id in self._watches:
            self._watches[instance_id].is_stale = True
        if self._stewardships.get(instance_id) is None:
            self._renew_now.set()
        else:
            self._enqueue(instance_id)

    def look_soon(self, instance_id: str) -> None:
        """Look at this instance as soon as a worker is free. What was read of it before is still true."""
        if self._stewardships.get(instance_id) is not None:
            self._enqueue(instance_id)

    def interrupt(self, instance_id: str) -> None:
        """Cancel a running look at the instance, because an operation starts to change all of it or has changed it. The
        next look reads the instance again, and ends at once if an operation on all of it runs."""
        if instance_id in self._watches:
            self._watches[instance_id].is_stale = True
        if instance_id in self._looks:
            self._looks[instance_id].cancel()

    async def run(self) -> None:
        """Look after instances until cancelled. An error is logged, and the look is repeated after the interval."""
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(self._settings.looks_max):
                    workers.create_task(self._work())
                workers.create_task(self._keep_stewardships())
                workers.create_task(self._people.watch(self._enqueue_all))
                while True:
                    await asyncio.sleep(rules.jittered_s(self._interval_s))
                    self._enqueue_all()
        finally:
            await self._stop()

    async def _keep_stewardships(self) -> None:
        while True:
            self._renew_now.clear()
            error = await self._logged("renew", self._renew)
            self._self_report.looked("", [NotedFailure("renew", *error)] if error else [])
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rules.jittered_s(self._settings.lease_s / 3)):
                    await self._renew_now.wait()

    async def _renew(self) -> None:
        changed = await self._stewardships.renew()
        # A refused report shows a loss between two renewals.
        for instance_id in changed.lost | (self._watches.keys() - set(self._stewardships.instance_ids)):
            log.info("steward.lost", instance_id=instance_id)
            self._forget(instance_id)
        for instance_id in changed.taken:
            self._forget(instance_id)
            self._enqueue(instance_id)
        if changed.taken:
            log.info("steward.taken", instances=len(changed.taken), held=len(self._stewardships.instance_ids))

    def _forget(self, instance_id: str) -> None:
        """Drop what is kept about an instance, and stop a running look: another process may look after it now. Its
        connections are closed without waiting for them."""
        self.interrupt(instance_id)
        self._self_report.forget(instance_id)
        if self._gauges is not None:
            self._gauges.drop(instance_id)
        watch = self._watches.pop(instance_id, None)
        if watch is not None:
            closing = asyncio.create_task(watch.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def _stop(self) -> None:
        for instance_id in list(self._watches):
            self._forget(instance_id)
        # All at the same time: a machine that does not answer delays its own connection only.
        if self._closing:
            await asyncio.wait(self._closing)
        with contextlib.suppress(ApiError, NoAnswer, asyncio.CancelledError):
            await self._stewardships.release()

    def _enqueue_all(self) -> None:
        for instance_id in self._stewardships.instance_ids:
            self._enqueue(instance_id)

    def _enqueue(self, instance_id: str) -> None:
        if instance_id not in self._queued:
            self._queued.add(instance_id)
            self._queue.put_nowait(instance_id)

    async def _work(self) -> None:
        while True:
            instance_id = await self._queue.get()
            self._queued.discard(instance_id)
            if instance_id in self._looks:
                self._again.add(instance_id)
            else:
                await self._start_look(instance_id)

    async def _start_look(self, instance_id: str) -> None:
        with structlog.contextvars.bound_contextvars(app=self._app_slug, instance_id=instance_id):
            look = asyncio.create_task(self._noted_look(instance_id))
        self._looks[instance_id] = look
        self._running.add(look)
        look.add_done_callback(self._running.discard)
        try:
            await asyncio.wait({look})
        finally:
            look.cancel()
            del self._looks[instance_id]
        if instance_id in self._again:
            self._again.discard(instance_id)
            self._enqueue(instance_id)

    async def _noted_look(self, instance_id: str) -> None:
        """Look at the instance, and note in the report of this process what failed."""
        failures: list[NotedFailure] = []
        error = await self._logged("look", lambda: self._look(instance_id, failures))
        if self._stewardships.get(instance_id) is not None:
            self._self_report.looked(instance_id, [*failures, *([NotedFailure("look", *error)] if error else [])])

    async def _look(self, instance_id: str, failures: list[NotedFailure]) -> None:
        """Run the health handler, unless an operation on the whole instance runs. What fails is added to `failures`.

        If an operation works on a member, the platform refuses observations of that member."""
        if self._stewardships.get(instance_id) is None:
            return
        now = await self._read(instance_id, failures)
        if now is None:
            return
        if await self._healthy(now, failures):
            self._stewardships.note_look(instance_id)

    async def _read(self, instance_id: str, failures: list[NotedFailure]) -> Reconciliation | None:
        """Return the state for a look. The instance and its members are read only if they may have changed."""
        watch, held = self._watches.setdefault(instance_id, Watch()), self._stewardships.get(instance_id)
        instance = watch.instance
        if instance is None or watch.is_stale or held is None or held.revision > instance.revision:
            path: dict[str, Any] = {"project_id": self._project_id, "instance_id": instance_id}
            async with asyncio.timeout(self._settings.look_s_max):
                instance = self._forms.applied(await self._client.call(INSTANCE_GET, **path))
                members = [member async for member in self._client.pages(MEMBER_LIST, query=_LIVE, **path)]
            watch.instance, watch.members = instance, {member.member_id: member for member in members}
            watch.is_stale, watch.reported = False, b""
            if watch.samples is not None:
                # The members have just changed, and what was sampled before is older: it would undo the change.
                watch.samples.outdate()
        if instance.status not in CHECKED_STATUSES:
            return None
        return Reconciliation(
            self._client,
            self._stewardships,
            self._name,
            instance,
            watch,
            connect=self._connect,
            wake=lambda: self._enqueue(instance_id),
            people=self._people.read,
            gauges=self._gauges,
            forms=self._forms,
            failed=failures.append,
        )

    async def _healthy(self, now: Reconciliation, failures: list[NotedFailure]) -> bool:
        """Run the handler and report whether it works, if that changed. Return whether it did."""
        try:
            async with asyncio.timeout(self._settings.look_s_max) as limit:
                await self._health(now)
        except (LeaseLost, NoAnswer):
            raise
        except Exception as error:
            if isinstance(error, ApiError) and error.retryable:
                raise  # the platform refused a request for now; that shows nothing about the app
            # An exception in the app's handler must not stop the controller, which also runs the app's operations.
            log.exception("health.crashed")
            broken = self._broken(error, timed_out=limit.expired())
            failures.append(NotedFailure("look", broken.reason, broken.message))
            await now.report([broken])
            return False
        if any(item.type == HEALTH_CHECK_WORKS and item.status != "true" for item in now.instance.conditions):
            await now.report([ReportedCondition(type=HEALTH_CHECK_WORKS, status="true")])
        return True

    def _broken(self, error: Exception, *, timed_out: bool) -> ReportedCondition:
        reason, message = "crashed", f"The health check of the app crashed: {type(error).__name__}: {error}"
        if timed_out:
            reason = "timed_out"
            message = f"The health check of the app did not end within {self._settings.look_s_max:g} s."
        # Before it is cut: a part of a secret would not be recognised.
        shown = self._self_report.log.redaction.hidden(logs.storable(message))[:1000]
        return ReportedCondition(type=HEALTH_CHECK_WORKS, status="false", reason=reason, message=shown)

    async def _logged(self, task: str, work: Callable[[], Awaitable[None]]) -> tuple[str, str] | None:
        """Do the work and log an error. Return its code and message; None if the work was done."""
        try:
            await work()
        except (ApiError, NoAnswer) as error:
            log.warning("health.failed", task=task, error=error.message, fix=error.fix)
            return error.code if isinstance(error, ApiError) else "no_answer", error.message
        except Exception as error:
            log.exception("health.crashed", task=task)
            return "crashed", f"{type(error).__name__}: {error}"
        return None
