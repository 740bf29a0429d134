"""The steps of one operation. Each is reported to the platform and retried after temporary errors.

The platform stores which steps succeeded, so they are not repeated after a crash of the controller."""

import asyncio
import datetime
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
import structlog
from gpuaas_contract.errors import LeaseLost
from gpuaas_contract.lifecycles import StepState
from gpuaas_contract.runtime import STEP_REPORT, ReportStep

from gpuaas_sdk import checks, traces
from gpuaas_sdk.controller import rules
from gpuaas_sdk.controller.lease import Lease
from gpuaas_sdk.failures import Permanent, Temporary
from gpuaas_sdk.machine.transcript import TranscriptDigest, TranscriptLine
from gpuaas_sdk.outcomes import NoAnswer

log = structlog.get_logger()

Result = TypeVar("Result")

WAIT = "wait"
"""Name of the step that shows what an operation waits for between its other steps; a later wait has a number."""

STOPPED = "stopped because the operation was cancelled"


@dataclass
class _RunningStep:
    name: str
    member_id: str
    message: str = ""
    digest: TranscriptDigest = field(default_factory=TranscriptDigest)

    @property
    def key(self) -> tuple[str, str]:
        return self.name, self.member_id


@dataclass(frozen=True)
class Limits:
    """How long a step may be tried, apart from the operation's deadline; none: until then."""

    attempts: int | None = None
    """After this many `Temporary` errors the step fails."""
    within_s: float | None = None
    """After this time the step is stopped and fails, with all its attempts."""


UNLIMITED = Limits()

# A context variable, because the steps of several members run at the same time.
_CURRENT_STEP: ContextVar[_RunningStep | None] = ContextVar("gpuaas_current_step", default=None)


class Steps:
    """The steps of one operation and the transcript of each."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._finished = rules.finished_steps(lease.record)
        self._running: set[tuple[str, str]] = set()
        self._open: dict[tuple[str, str], _RunningStep] = {}
        self._begun: dict[tuple[str, str], None] = {}
        """Steps that this process began, in the order of their start."""
        self._waits: dict[str, _RunningStep] = {}
        """The step that shows a wait outside any other step, by member id; empty for the whole operation."""
        self._waits_total = sum(step.name.startswith(WAIT) for step in lease.record.steps)

    async def run(
        self, name: str, member_id: str, attempt: Callable[[], Awaitable[None]], limits: Limits = UNLIMITED
    ) -> None:
        """Run the step unless it already succeeded."""
        step = _RunningStep(name, member_id)
        if step.key in self._finished:
            return
        if step.key in self._running:
            raise RuntimeError(f"step {name!r} is already running; pass member=… to run it once per member")
        self._running.add(step.key)
        previous = _CURRENT_STEP.set(step)
        try:
            with traces.span(f"step {name}", {"gpuaas.step": name, "gpuaas.member_id": member_id}):
                await self._perform(step, attempt, limits)
        finally:
            _CURRENT_STEP.reset(previous)
            self._running.discard(step.key)
        self._finished.add(step.key)

    async def say(self, message: str) -> None:
        """Report what the running step waits for. A message that is the same as the last one is not sent."""
        step = _CURRENT_STEP.get()
        if step is None:
            log.info("operation.message", message=message)
        elif message != step.message:
            await self._report(step, "running", message)

    def add_line(self, line: TranscriptLine) -> None:
        """Log a command on a machine and add it to the digest of the running step."""
        step = _CURRENT_STEP.get()
        log.info("machine.command", step=step.name if step else "", transcript=msgspec.to_builtins(line))
        # The arguments may contain values that only this controller may have, so the span has the program's name only.
        status = -1 if line.exit_status is None else line.exit_status
        traces.add(
            f"machine {line.argv[0]}",
            line.started_at,
            line.duration_ms,
            failed=status != 0,
            attributes={"gpuaas.machine": line.machine, "gpuaas.exit_status": status},
        )
        if step is not None:
            step.digest.add(line)

    async def until_deadline(self, attempt: Callable[[], Awaitable[Result]], member_id: str = "") -> Result:
        """Repeat the attempt after `Temporary` errors. Past the operation's deadline raise `Permanent`.

        Outside a step, the reason is shown as a step of its own, `wait`, which ends when the work continues."""
        while True:
            try:
                result = await attempt()
            except Temporary as error:
                pause_s = rules.pause_s(error.after_s)
                if self._is_past_deadline(pause_s):
                    raise Permanent(f"The operation reached its deadline; the last error was: {error}") from error
                await self.show_wait(str(error), member_id)
                await asyncio.sleep(pause_s)
            else:
                await self.end_wait(member_id)
                return result

    async def until(self, check: checks.Ask, every_s: float, within_s: float | None = None) -> checks.Check:
        """Ask until the check passes or the time is over. Past the operation's deadline raise `Permanent`."""
        left_s = (self._lease.record.deadline_at - datetime.datetime.now(datetime.UTC)).total_seconds()
        bound_s = max(0.0, left_s if within_s is None else min(within_s, left_s))
        answer = await checks.until(check, within_s=bound_s, every_s=every_s, show=self.show_wait)
        if not answer.ok and self._is_past_deadline(0):
            raise Permanent(f"The operation reached its deadline; it waited because: {answer.reason}")
        return answer

    async def turn_back(self) -> None:
        """Begin to undo the work: report interrupted steps as failed, and allow every step to run again."""
        for step in list(self._open.values()):
            await self._report(step, "failed", STOPPED)
        self._finished.clear()
        self._waits.clear()

    async def end_interrupted(self) -> None:
        """Report steps as failed that an earlier claim left running: an undo does not continue them."""
        for step in self._lease.record.steps:
            if step.state == "running":
                await self._report(_RunningStep(step.name, step.member_id), "failed", STOPPED)

    def _is_past_deadline(self, pause_s: float) -> bool:
        next_at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=pause_s)
        return next_at >= self._lease.record.deadline_at

    async def show_wait(self, reason: str, member_id: str = "") -> None:
        """Show why the work waits: in the running step, or in a step for the wait."""
        if _CURRENT_STEP.get() is not None:
            await self.say(reason)
            return
        step = self._waits.get(member_id)
        if step is None:
            self._waits_total += 1
            name = WAIT if self._waits_total == 1 else f"{WAIT} ({self._waits_total})"
            step = self._waits[member_id] = _RunningStep(name, member_id)
        if reason != step.message:
            await self._report(step, "running", reason)

    async def end_wait(self, member_id: str = "") -> None:
        """End the step that shows a wait, if there is one: the work continues."""
        step = self._waits.pop(member_id, None)
        if step is not None:
            await self._report(step, "succeeded", "")

    def begun(self) -> list[tuple[str, str]]:
        """Return name and member id of every step that began and was not undone since, in the order of their start."""
        earlier = rules.begun_steps(self._lease.record.steps)
        return [key for key in earlier if key not in self._begun] + list(self._begun)

    async def _perform(self, step: _RunningStep, attempt: Callable[[], Awaitable[None]], limits: Limits) -> None:
        for member_id in {"", step.member_id}:
            await self.end_wait(member_id)
        await self._report(step, "running", "")
        self._begun[step.key] = None
        try:
            await self._within(step, attempt, limits)
        except (LeaseLost, NoAnswer):
            raise
        except Exception as error:
            await self._report(step, "failed", str(error) or type(error).__name__)
            raise
        await self._report(step, "succeeded", "")

    async def _within(self, step: _RunningStep, attempt: Callable[[], Awaitable[None]], limits: Limits) -> None:
        try:
            async with asyncio.timeout(limits.within_s) as timeout:
                await self.until_deadline(_at_most(limits.attempts, attempt))
        except TimeoutError as error:
            if not timeout.expired():
                raise
            waited = f"; the last message was: {step.message}" if step.message else ""
            raise Permanent(f"{step.name} did not end within {limits.within_s:g} s{waited}") from error

    async def _report(self, step: _RunningStep, state: StepState, message: str) -> None:
        step.message = message
        self._open[step.key] = step
        log.info("step.reported", step=step.name, member_id=step.member_id, state=state, message=message)
        receipt = await self._lease.report(
            STEP_REPORT,
            ReportStep(
                epoch=self._lease.epoch,
                name=step.name,
                state=state,
                member_id=step.member_id,
                message=rules.clipped(message),
                transcript=None if state == "running" else step.digest.transcript(),
            ),
        )
        self._lease.note(receipt)
        if state != "running":
            del self._open[step.key]


def _at_most(attempts: int | None, attempt: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    """Return the attempt so that the last allowed `Temporary` error is `Permanent`."""
    failed = 0

    async def counted() -> None:
        nonlocal failed
        try:
            await attempt()
        except Temporary as error:
            failed += 1
            if attempts is None or failed < attempts:
                raise
            raise Permanent(f"{failed} attempts failed; the last error was: {error}") from error

    return counted
