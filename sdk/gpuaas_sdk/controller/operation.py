"""What a handler holds while it works on one operation: steps, reports, machines. Made by `runner`; every word it
says to the platform carries the claim's epoch."""

import asyncio
import datetime
from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVarTuple

import structlog
from gpuaas_contract.access import MACHINE_ACCESS, MachineAccess, RequestMachineAccess
from gpuaas_contract.errors import ApiError, LeaseLost
from gpuaas_contract.instances import AccessBundle, Instance, Member
from gpuaas_contract.lifecycles import GONE_MEMBER, MemberStatus, StepState
from gpuaas_contract.operations import INSTANCE_KINDS, Evidence
from gpuaas_contract.operations import Operation as OperationRecord
from gpuaas_contract.runtime import (
    ACCESS_PUBLISH,
    MEMBER_REPORT,
    STEP_REPORT,
    PublishAccess,
    ReportMember,
    ReportStep,
)

from gpuaas_sdk.controller import rules
from gpuaas_sdk.controller.lease import Lease
from gpuaas_sdk.controller.machines import CERTIFICATE_TTL_S, Connect, Machines
from gpuaas_sdk.failures import Permanent, Temporary
from gpuaas_sdk.machine import Machine
from gpuaas_sdk.outcomes import NoAnswer

log = structlog.get_logger()

Arguments = TypeVarTuple("Arguments")


@dataclass
class _RunningStep:
    name: str
    member_id: str
    message: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.name, self.member_id


# A context variable, because the steps of several members run at the same time.
_CURRENT_STEP: ContextVar[_RunningStep | None] = ContextVar("gpuaas_current_step", default=None)


class Operation:
    def __init__(
        self,
        lease: Lease,
        record: OperationRecord,
        instance: Instance,
        members: Iterable[Member],
        *,
        connect: Connect,
    ) -> None:
        self.id = record.operation_id
        self.kind = record.kind
        self.component_key = record.component_key
        self.correlation_id = record.correlation_id
        self.reason = record.reason
        self.force = record.force
        self.deadline_at = record.deadline_at
        self.instance = instance
        self._lease = lease
        self._members = {member.member_id: member for member in members}
        self._target_ids = [target.member_id for target in record.targets]
        self._succeeded = {(step.name, step.member_id) for step in record.steps if step.state == "succeeded"}
        self._running: set[tuple[str, str]] = set()
        self._machines = Machines(self._grant, connect)

    @property
    def members(self) -> tuple[Member, ...]:
        """Every live member of the instance, as last reported."""
        return tuple(member for member in self._members.values() if member.status not in GONE_MEMBER)

    @property
    def targets(self) -> tuple[Member, ...]:
        """The members this operation is about. One that was taken away before a crash is no longer among them."""
        if self.kind in INSTANCE_KINDS:
            return self.members
        return tuple(self._members[member_id] for member_id in self._target_ids if member_id in self._members)

    async def step(
        self,
        name: str,
        function: Callable[[*Arguments], Awaitable[None]],
        *args: *Arguments,
        member: Member | None = None,
    ) -> None:
        """Run `await function(*args)` once per operation: a step that succeeded on the record is skipped.

        The name and the member identify the step, so both must be the same after a crash."""
        step = _RunningStep(name, member.member_id if member else "")
        if step.key in self._succeeded:
            return
        if step.key in self._running:
            raise RuntimeError(f"step {name!r} already runs; give each member's step its member=…")
        self._running.add(step.key)
        previous = _CURRENT_STEP.set(step)
        try:
            await self._perform(step, lambda: function(*args))
        finally:
            _CURRENT_STEP.reset(previous)
            self._running.discard(step.key)
        self._succeeded.add(step.key)

    async def say(self, message: str) -> None:
        """Tell watchers what the running step waits for. Saying the same again sends nothing."""
        step = _CURRENT_STEP.get()
        if step is None:
            log.info(message)
        elif message != step.message:
            await self._report_step(step, "running", message)

    async def each(self, members: Iterable[Member], function: Callable[[Member], Awaitable[None]]) -> None:
        """Run `await function(member)` for all at once. One that fails is reported; the others go on to their end."""
        chosen = tuple(members)
        ends = await asyncio.gather(*(self._one(member, function) for member in chosen), return_exceptions=True)
        unexpected = [end for end in ends if isinstance(end, BaseException) and not isinstance(end, Permanent)]
        for error in sorted(unexpected, key=lambda error: not isinstance(error, LeaseLost)):
            raise error
        failures = tuple((member, end) for member, end in zip(chosen, ends, strict=True) if isinstance(end, Permanent))
        if failures:
            raise rules.MembersFailed(failures, len(chosen))

    async def report(
        self,
        member: Member,
        *,
        status: MemberStatus | None = None,
        reason: str = "",
        detail: dict[str, Any] | None = None,
        version: str | None = None,
        evidence: Evidence | None = None,
    ) -> Member:
        """Say how a member is; what is left out stays as it was."""
        known = self._members.get(member.member_id, member)
        answer = await self._lease.report(
            MEMBER_REPORT,
            ReportMember(
                epoch=self._lease.epoch,
                status=status or known.status,
                status_reason=rules.clipped(reason),
                adapter_detail=detail,
                observed_version=version,
                evidence=evidence,
            ),
            member_id=member.member_id,
        )
        self._members[answer.member_id] = answer
        return answer

    async def publish_access(self, bundle: AccessBundle) -> None:
        """Write how people reach the app; replaces what was published before."""
        await self._lease.report(
            ACCESS_PUBLISH,
            PublishAccess(
                epoch=self._lease.epoch,
                endpoints=bundle.endpoints,
                paths=bundle.paths,
                commands=bundle.commands,
                notes=bundle.notes,
            ),
        )

    async def machine(self, member: Member) -> Machine:
        """The member's host, as root; good for the operation's life."""
        return await self._machines.machine(member.allocation_id, member.address)

    async def until_deadline(self, attempt: Callable[[], Awaitable[None]]) -> None:
        """Repeat what ends as `Temporary`; past the operation's deadline it counts as `Permanent`."""
        while True:
            try:
                return await attempt()
            except Temporary as error:
                pause_s = rules.pause_s(error.after_s)
                if datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=pause_s) >= self.deadline_at:
                    raise Permanent(f"The operation's deadline came first: {error}") from error
                await self.say(str(error))
                await asyncio.sleep(pause_s)

    async def close(self) -> None:
        await self._machines.close()

    async def _perform(self, step: _RunningStep, attempt: Callable[[], Awaitable[None]]) -> None:
        await self._report_step(step, "running", "")
        try:
            await self.until_deadline(attempt)
        except (LeaseLost, NoAnswer):
            raise
        except Exception as error:
            await self._report_step(step, "failed", str(error) or type(error).__name__)
            raise
        await self._report_step(step, "succeeded", "")

    async def _report_step(self, step: _RunningStep, state: StepState, message: str) -> None:
        step.message = message
        log.info("step", step=step.name, member_id=step.member_id, state=state, said=message)
        await self._lease.report(
            STEP_REPORT,
            ReportStep(
                epoch=self._lease.epoch,
                name=step.name,
                state=state,
                member_id=step.member_id,
                message=rules.clipped(message),
            ),
        )

    async def _one(self, member: Member, function: Callable[[Member], Awaitable[None]]) -> Permanent | None:
        try:
            await self.until_deadline(lambda: function(member))
        except Permanent as error:
            await self._report_failed(member, error)
            return error
        return None

    async def _report_failed(self, member: Member, error: Permanent) -> None:
        known = self._members.get(member.member_id, member)
        if known.status not in GONE_MEMBER:
            detail = None if known.adapter_detail else {"error": rules.clipped(str(error))}
            await self.report(member, status="failed", reason=str(error), detail=detail)

    async def _grant(self, allocation_id: str, public_key: str) -> MachineAccess:
        request = RequestMachineAccess(
            public_key=public_key, operation_id=self.id, epoch=self._lease.epoch, ttl_s=CERTIFICATE_TTL_S
        )
        try:
            return await self._lease.call(MACHINE_ACCESS, request, allocation_id=allocation_id)
        except LeaseLost:
            raise
        except ApiError as error:
            text = f"No access to the machine of allocation {allocation_id}: {error.message}"
            raise (Temporary(text) if error.retryable else Permanent(text, fix=error.fix)) from error
