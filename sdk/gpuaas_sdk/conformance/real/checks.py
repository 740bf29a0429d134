"""The checks that need no fault in the platform and no look at a machine, and why the others are left out."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from gpuaas_contract.errors import ExitUnavailable
from gpuaas_contract.lifecycles import ENDED_OPERATION
from gpuaas_contract.operations import UNDONE, Operation

from gpuaas_sdk.conformance import stage
from gpuaas_sdk.conformance.checks import CHECKS
from gpuaas_sdk.conformance.plan import Move
from gpuaas_sdk.conformance.real import stage as real_stage
from gpuaas_sdk.conformance.real.feasible import Tour
from gpuaas_sdk.conformance.real.requests import Place
from gpuaas_sdk.conformance.real.site import Site
from gpuaas_sdk.conformance.real.stage import RealStage
from gpuaas_sdk.conformance.trial import Trial
from gpuaas_sdk.conformance.verdicts import Failed, NotApplicable

RESTARTED = 4
"""How many operations the controller is restarted between."""
LOOK_S = 0.5
CANCELS_MAX = 10
"""How often one operation is cancelled, each time one step later."""


@dataclass(frozen=True)
class RealTrial:
    """One run on a real platform."""

    site: Site
    place: Place
    tour: Tour

    def stage(self, controllers: int = 1) -> AbstractAsyncContextManager[RealStage]:
        """Set up a stage with this many controllers."""
        return real_stage.opened(self.place, self.site, controllers)


async def operations(trial: RealTrial) -> None:
    async with trial.stage() as on:
        for move in trial.tour.moves:
            await on.perform(move)


async def two_replicas(trial: RealTrial) -> None:
    async with trial.stage(controllers=2) as on:
        for move in trial.tour.moves:
            await on.perform(move)


async def restart_between_operations(trial: RealTrial) -> None:
    async with trial.stage() as on:
        for move in trial.tour.moves[:RESTARTED]:
            await on.perform(move)
            await on.kill(next(iter(on.controllers)))
            await on.start()


async def health_promises(trial: RealTrial) -> None:
    promised = set(trial.place.subject.manifest.health)
    if not promised:
        raise NotApplicable("the manifest lists no health conditions")
    async with trial.stage() as on:
        await on.perform(Move("deploy"))
        missing = promised
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(on.driver.silent_s, real_stage.PATIENCE_S / 5)):
                while missing := promised - {entry.type for entry in (await on.instance()).conditions}:  # noqa: ASYNC110 - no event
                    await asyncio.sleep(LOOK_S)
        if missing:
            raise Failed(
                f"{', '.join(sorted(missing))} was not reported after the deploy",
                "Report it in the health handler, or remove it from `health` of the manifest.",
                "read-model surface",
            )


async def kill_at_every_step(trial: RealTrial) -> None:
    """Kill the controller as soon as the platform shows the end of a step."""
    async with trial.stage(controllers=2) as on:
        killed: set[tuple[str, str, str]] = set()

        async def kill_once(operation: Operation) -> None:
            done = [step.name for step in operation.steps if step.state == "succeeded"]
            steps = {(operation.kind, operation.component_key, name) for name in done}
            if operation.status in ENDED_OPERATION or operation.lease is None or steps <= killed:
                return
            killed.update(steps)
            await on.kill(operation.lease.holder)
            await on.start()

        for move in trial.tour.moves:
            await on.perform(move, kill_once)
        if not killed:
            raise NotApplicable("the app reports no steps, or they end too fast to be seen")


async def cancel_at_every_step(trial: RealTrial) -> None:
    cancelled = 0
    async with trial.stage() as on:
        for move in trial.tour.moves:
            for number in range(1, CANCELS_MAX + 1) if move.kind in UNDONE else ():
                if not await _is_cancelled(on, move, number):
                    break
                cancelled += 1
            else:
                await on.perform(move)
    if not cancelled:
        raise NotApplicable("no operation could be cancelled: the app has no undo handlers, or steps end too fast")


async def _is_cancelled(on: RealStage, move: Move, number: int) -> bool:
    """Cancel the operation when it shows this many steps. Return False if it succeeded before."""
    before, asked = await on.statuses(), list[str]()

    async def cancel_once(operation: Operation) -> None:
        steps = {step.name for step in operation.steps}
        if operation.status == "running" and len(steps) >= number and not asked:
            with contextlib.suppress(ExitUnavailable):
                await on.cancel(operation)
                asked.append(operation.operation_id)

    operation = await on.ended(await on.request(move), cancel_once)
    if operation.status == "succeeded":
        return False
    after = {} if move.kind == "deploy" else await on.statuses()
    if operation.status != "cancelled" or after != before:
        raise Failed(
            f"{move} was cancelled in its step {number} and {stage.describe(operation)}; members were "
            f"{before or 'none'} and are {after or 'none'}",
            "Let the undo handler take back everything that the handler did, and report the status before.",
        )
    await _clear_deploy(on, move)
    return True


async def _clear_deploy(on: RealStage, move: Move) -> None:
    """A cancelled deploy leaves an instance without members, which has no further use."""
    if move.kind == "deploy":
        await on.clear()
        on.place.instance_id = ""


def _on_manifest(name: str) -> "Check":
    async def run(trial: RealTrial) -> None:
        await CHECKS[name].run(Trial(trial.place.subject))

    return run


Check = Callable[[RealTrial], Awaitable[None]]
REAL: dict[str, Check] = {
    "operations": operations,
    "health-promises": health_promises,
    "restart-between-operations": restart_between_operations,
    "kill-at-every-step": kill_at_every_step,
    "two-replicas": two_replicas,
    "cancel-at-every-step": cancel_at_every_step,
    "lifecycle": _on_manifest("lifecycle"),
    "runbook": _on_manifest("runbook"),
}
_LOOK = "needs a look at the machine, which the kit has on simulated machines only"
_WIRE = "needs a fault between the controller and the platform"
_MACHINE = "needs a machine that fails on command"
_WORK = "needs work that the driver starts, which it does on simulated machines only"
_CALLS = "needs the calls of the controller, which only the fake platform records"
LEFT_OUT = {
    "version-reporting": _LOOK,
    "residue": _LOOK,
    "lost-heartbeats": _WIRE,
    "pause-past-the-lease": _LOOK,
    "lost-replies": _WIRE,
    "doubled-calls": _WIRE,
    "deadline": "needs a clock that the kit can set",
    "retry-after-partial-failure": _MACHINE,
    "stop-rule": _MACHINE,
    "breaker": _MACHINE,
    "failures-are-reported": _MACHINE,
    "machine-silent": _MACHINE,
    "node-lost": _MACHINE,
    "drain-honesty": _WORK,
    "evidence-honesty": _WORK,
    "preview-honesty": _WORK,
    "permissions": _CALLS,
    "boundaries": _CALLS,
    "correlation": _CALLS,
    "artifact-sources": _CALLS,
}
"""Why each of the other checks is not possible on a real platform."""
