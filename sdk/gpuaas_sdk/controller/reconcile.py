"""Check instances that no operation works on. The app's reconcile handler is woken by instance id, reads the current
state and reports what it observes. `runner` starts this; a missed wake-up costs one interval, never correctness."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

import structlog
from gpuaas_contract.errors import ApiError
from gpuaas_contract.identity import ME
from gpuaas_contract.instances import INSTANCE_GET, INSTANCE_LIST, MEMBER_LIST, Instance, Member
from gpuaas_contract.lifecycles import MemberStatus
from gpuaas_contract.runtime import (
    RUNTIME_REPORT,
    ObservedMember,
    RefusedObservation,
    ReportedCondition,
    ReportRuntime,
)

from gpuaas_sdk.client import Client
from gpuaas_sdk.controller import rules
from gpuaas_sdk.outcomes import NoAnswer

log = structlog.get_logger()

_LIVE = {"live": "true"}
CHECKED_STATUSES = frozenset({"running", "degraded", "stopped", "failed"})
"""Instances in another status are not checked: an operation changes the whole instance, or nothing is deployed."""


class Reconciliation:
    """One check of one instance, passed to the reconcile handler."""

    def __init__(self, client: Client, holder: str, instance: Instance, members: Iterable[Member]) -> None:
        self.instance = instance
        self._members = {member.member_id: member for member in members}
        self._client = client
        self._holder = holder

    @property
    def members(self) -> tuple[Member, ...]:
        """Every live member, as read at the start or returned by a report since then."""
        return tuple(self._members.values())

    def seen(
        self,
        member: Member,
        status: MemberStatus | None = None,
        *,
        reason: str = "",
        detail: dict[str, Any] | None = None,
        version: str | None = None,
    ) -> ObservedMember:
        """Return an observation of a member for `report_runtime`. Without a status, detail or version, it stays."""
        return ObservedMember(
            member_id=member.member_id,
            revision=member.revision,
            status=status or member.status,
            status_reason=rules.clipped(reason),
            adapter_detail=detail,
            observed_version=version,
        )

    async def report_runtime(
        self, conditions: Iterable[ReportedCondition] = (), members: Iterable[ObservedMember] = ()
    ) -> list[RefusedObservation]:
        """Report observations and return those that the platform refused because the member has changed."""
        answer = await self._client.call(
            RUNTIME_REPORT,
            ReportRuntime(
                holder=self._holder,
                observed_revision=self.instance.revision,
                conditions=list(conditions),
                members=list(members),
            ),
            project_id=self.instance.project_id,
            instance_id=self.instance.instance_id,
        )
        self.instance = answer.instance
        self._members |= {member.member_id: member for member in answer.members}
        for refused in answer.refused:
            log.info("observation.refused", member_id=refused.member_id, code=refused.code, error=refused.message)
        return answer.refused


Reconcile = Callable[[Reconciliation], Awaitable[None]]


@dataclass(frozen=True)
class ReconcileSettings:
    """How instances are checked between operations."""

    interval_s: float = 15.0
    """The interval between two checks of an instance, plus or minus 20 %; a wake-up checks it earlier."""
    check_s_max: float = 60.0
    """Time limit of one check of one instance. A check that takes longer is cancelled."""
    checks_max: int = 8
    """The number of instances that are checked at the same time."""


DEFAULT_SETTINGS = ReconcileSettings()


class Reconciler:
    """Runs the reconcile handler for every instance of the app: at an interval, and when woken."""

    def __init__(
        self,
        client: Client,
        *,
        app_slug: str,
        project_id: str,
        name: str,
        reconcile: Reconcile,
        is_busy: Callable[[str], bool],
        settings: ReconcileSettings = DEFAULT_SETTINGS,
    ) -> None:
        """`is_busy` returns whether this process works on an operation of the instance."""
        self._client = client
        self._app_slug = app_slug
        self._project_id = project_id
        self._name = name
        self._reconcile = reconcile
        self._is_busy = is_busy
        self._settings = settings
        self._actor_id = ""
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()
        self._checks: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()

    def wake(self, instance_id: str) -> None:
        """Check this instance as soon as a worker is free."""
        if instance_id not in self._queued:
            self._queued.add(instance_id)
            self._queue.put_nowait(instance_id)

    def interrupt(self, instance_id: str) -> None:
        """Cancel a running check of the instance, because an operation starts to change it."""
        if instance_id in self._checks:
            self._checks[instance_id].cancel()

    async def run(self) -> None:
        """Check instances until cancelled. An error is logged, and the instance is checked again after the interval."""
        async with asyncio.TaskGroup() as workers:
            for _ in range(self._settings.checks_max):
                workers.create_task(self._work())
            while True:
                await self._logged("sweep", self._wake_all)
                await asyncio.sleep(rules.jittered_s(self._settings.interval_s))

    async def _wake_all(self) -> None:
        self._actor_id = self._actor_id or (await self._client.call(ME)).actor_id
        async for instance in self._client.pages(INSTANCE_LIST, query=_LIVE, project_id=self._project_id):
            is_own = instance.operator_service_account_id in ("", self._actor_id)
            if instance.app_slug == self._app_slug and is_own and instance.status in CHECKED_STATUSES:
                self.wake(instance.instance_id)

    async def _work(self) -> None:
        while True:
            instance_id = await self._queue.get()
            self._queued.discard(instance_id)
            if instance_id in self._checks:
                self._again.add(instance_id)
            else:
                await self._check(instance_id)

    async def _check(self, instance_id: str) -> None:
        with structlog.contextvars.bound_contextvars(app=self._app_slug, instance_id=instance_id):
            check = asyncio.create_task(self._logged("check", lambda: self._reconcile_now(instance_id)))
        self._checks[instance_id] = check
        try:
            await asyncio.wait({check})
        finally:
            check.cancel()
            del self._checks[instance_id]
        if instance_id in self._again:
            self._again.discard(instance_id)
            self.wake(instance_id)

    async def _reconcile_now(self, instance_id: str) -> None:
        """Run the reconcile handler, unless an operation of this process or on the whole instance runs.

        If another process works on a member, the platform refuses observations of that member."""
        if self._is_busy(instance_id):
            return
        path: dict[str, Any] = {"project_id": self._project_id, "instance_id": instance_id}
        async with asyncio.timeout(self._settings.check_s_max):
            instance = await self._client.call(INSTANCE_GET, **path)
            if instance.status not in CHECKED_STATUSES:
                return
            members = [member async for member in self._client.pages(MEMBER_LIST, query=_LIVE, **path)]
            await self._reconcile(Reconciliation(self._client, self._name, instance, members))

    async def _logged(self, task: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except (ApiError, NoAnswer) as error:
            log.warning("reconcile.failed", task=task, error=error.message, fix=error.fix)
        except Exception:
            # An exception in the app's handler must not stop the controller, which also runs the app's operations.
            log.exception("reconcile.crashed", task=task)
