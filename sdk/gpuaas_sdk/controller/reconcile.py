"""Look after instances that no operation works on: the app's reconcile handler is woken by key, reads the whole truth
and says what it sees. Started by `runner`; a missed wake-up costs one interval, never correctness."""

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
SETTLED = frozenset({"running", "degraded", "stopped", "failed"})
"""In every other state an operation works on the whole instance, or there is nothing to look at."""


class Reconciliation:
    """One look at one instance, as it is now."""

    def __init__(self, client: Client, holder: str, instance: Instance, members: Iterable[Member]) -> None:
        self.instance = instance
        self._members = {member.member_id: member for member in members}
        self._client = client
        self._holder = holder

    @property
    def members(self) -> tuple[Member, ...]:
        """Every live member, as read at the start or answered to a report since."""
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
        """An observation of a member in the revision it was read; what is left out stays as it was."""
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
        """Say what was seen. What the platform refuses has changed meanwhile; the next look reads it anew."""
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
            log.info("observation refused", member_id=refused.member_id, code=refused.code, why=refused.message)
        return answer.refused


Reconcile = Callable[[Reconciliation], Awaitable[None]]


@dataclass(frozen=True)
class ReconcileSettings:
    interval_s: float = 15.0
    """How often every instance is looked at even if nobody woke it, give or take a fifth."""
    look_s_max: float = 60.0
    """A look that takes longer is given up; the next one starts afresh."""
    looks_max: int = 8
    """Instances looked at at once."""


DEFAULT_SETTINGS = ReconcileSettings()


class Reconciler:
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
        """`is_busy` says whether this process works on an operation of the instance."""
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
        self._looking: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()

    def wake(self, instance_id: str) -> None:
        """Look at this instance soon; at once, unless all hands are busy."""
        if instance_id not in self._queued:
            self._queued.add(instance_id)
            self._queue.put_nowait(instance_id)

    def stand_back(self, instance_id: str) -> None:
        """An operation begins: a look that is under way would tell of things half changed."""
        if instance_id in self._looking:
            self._looking[instance_id].cancel()

    async def run(self) -> None:
        """Look until cancelled. Whatever goes wrong is logged and tried again at the next turn."""
        async with asyncio.TaskGroup() as hands:
            for _ in range(self._settings.looks_max):
                hands.create_task(self._work())
            while True:
                await self._logged("sweep", self._sweep)
                await asyncio.sleep(rules.jittered_s(self._settings.interval_s))

    async def _sweep(self) -> None:
        self._actor_id = self._actor_id or (await self._client.call(ME)).actor_id
        async for instance in self._client.pages(INSTANCE_LIST, query=_LIVE, project_id=self._project_id):
            mine = instance.operator_service_account_id in ("", self._actor_id)
            if instance.app_slug == self._app_slug and mine and instance.status in SETTLED:
                self.wake(instance.instance_id)

    async def _work(self) -> None:
        while True:
            instance_id = await self._queue.get()
            self._queued.discard(instance_id)
            if instance_id in self._looking:
                self._again.add(instance_id)
            else:
                await self._look_at(instance_id)

    async def _look_at(self, instance_id: str) -> None:
        with structlog.contextvars.bound_contextvars(app=self._app_slug, instance_id=instance_id):
            look = asyncio.create_task(self._logged("look", lambda: self._look(instance_id)))
        self._looking[instance_id] = look
        try:
            await asyncio.wait({look})
        finally:
            look.cancel()
            del self._looking[instance_id]
        if instance_id in self._again:
            self._again.discard(instance_id)
            self.wake(instance_id)

    async def _look(self, instance_id: str) -> None:
        """Another process may work on the instance as well; the platform refuses what that one answers for."""
        if self._is_busy(instance_id):
            return
        where: dict[str, Any] = {"project_id": self._project_id, "instance_id": instance_id}
        async with asyncio.timeout(self._settings.look_s_max):
            instance = await self._client.call(INSTANCE_GET, **where)
            if instance.status not in SETTLED:
                return
            live = [member async for member in self._client.pages(MEMBER_LIST, query=_LIVE, **where)]
            await self._reconcile(Reconciliation(self._client, self._name, instance, live))

    async def _logged(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except (ApiError, NoAnswer) as error:
            log.warning("reconcile refused", what=what, why=error.message, fix=error.fix)
        except Exception:
            # The app's own bug must not end the controller, which also runs its operations.
            log.exception("reconcile failed", what=what)
