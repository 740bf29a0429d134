"""Checks of operations that do not end by themselves: cancel, deadline, retry, the stop rule."""

import contextlib
from collections.abc import Sequence
from typing import Any

from gpuaas_contract.errors import ExitUnavailable
from gpuaas_contract.operations import UNDONE, Operation

from gpuaas_sdk.conformance import stage
from gpuaas_sdk.conformance.plan import Move
from gpuaas_sdk.conformance.registry import check
from gpuaas_sdk.conformance.stage import Stage
from gpuaas_sdk.conformance.trial import REPEAT, Trial
from gpuaas_sdk.conformance.verdicts import Failed, NotApplicable
from gpuaas_sdk.testing.platform.edge import Fate


@check("cancel-at-every-step", "A cancel at the start of any step stops the work and restores the machines.")
async def cancel_at_every_step(trial: Trial) -> None:
    reference, cancelled = await trial.reference(), 0
    async with trial.stage() as on:
        for move in trial.moves:
            steps = list(dict.fromkeys(step.name for step in reference.operations[move].steps))
            ended: Operation | None = None
            for step in steps if move.kind in UNDONE else []:
                before = on.states()
                ended = await _cancelled(on, move, step, steps)
                if ended.status == "succeeded":
                    break
                cancelled += 1
                if different := stage.difference(before, on.states()):
                    raise Failed(
                        f"after {move} was cancelled in step {step!r} {different}",
                        "Let the undo handler take back everything that the handler did.",
                    )
            if ended is None or ended.status != "succeeded":
                await on.perform(move)
        if not cancelled:
            raise NotApplicable("the app has no undo handlers, so a claimed operation cannot be cancelled")


async def _cancelled(on: Stage, move: Move, step: str, steps: Sequence[str]) -> Operation:
    """Cancel the operation when this step begins, and return it as it ended. If it cannot be cancelled, it succeeds."""
    later: list[str] = []

    async def cancel_once(operation: Operation, body: Any) -> Fate:
        if body.state != "running":
            return "serve"
        if operation.status == "cancelling" and body.name in steps and body.name != step:
            later.append(body.name)
        elif operation.status == "running" and body.name == step:
            with contextlib.suppress(ExitUnavailable):
                on.platform.cancel(operation.operation_id)
        return "serve"

    on.on_step = cancel_once
    operation = await on.ended(on.request(move))
    on.on_step = None
    if operation.status == "succeeded" and later:
        raise Failed(
            f"{move} was cancelled in step {step!r}, but began {len(later)} more steps "
            f"({', '.join(later)}) and succeeded",
            "Let the cancellation end the handler: catch no asyncio.CancelledError and shield no work from it.",
        )
    if operation.status not in ("cancelled", "succeeded"):
        raise Failed(
            f"{move} was cancelled in step {step!r} and {stage.describe(operation)}",
            "Let the undo handler report the status that the member had before.",
        )
    return operation


@check("deadline", "After the deadline of an operation has passed, a retry completes it.")
async def deadline(trial: Trial) -> None:
    reference, move = await trial.reference(), trial.move("add", "deploy")
    async with trial.stage() as on:
        await on.perform_until(trial.moves, move)
        expired: list[str] = []

        async def expire_once(operation: Operation, body: Any) -> Fate:
            if body.state == "succeeded" and not expired:
                expired.append(body.name)
                on.expire(operation.operation_id)
            return "serve"

        on.on_step = expire_once
        operation = await on.ended(on.request(move))
        if not expired:
            raise NotApplicable(f"{move} reports no steps")
        await _retried(on, operation, move)
        if different := stage.difference(reference.after[move], on.states()):
            raise Failed(f"after the retry of {move} {different}", REPEAT)


async def _retried(on: Stage, operation: Operation, move: Move) -> None:
    again = await on.ended(on.platform.retry(operation.operation_id))
    if again.status != "succeeded":
        raise Failed(f"the retry of {move} {stage.describe(again)}", REPEAT)


@check("retry-after-partial-failure", "If one of two members fails, the other one works, and a retry completes both.")
async def retry_after_partial_failure(trial: Trial) -> None:
    move = trial.move("add")
    async with trial.stage() as on:
        await on.perform_until(trial.moves, move)
        bad, good = on.free_nodes()[:2]
        on.machines.machine(bad).is_broken = True
        operation = await on.ended(on.request(move, count=2))
        outcomes = {on.platform.member(target.member_id).node_name: target.outcome for target in operation.targets}
        if outcomes != {bad: "failed", good: "succeeded"}:
            raise Failed(
                f"commands failed on {bad} only, and the outcomes are {outcomes}; {move} {stage.describe(operation)}",
                "Work on members with op.each, so that one failure does not stop the others.",
            )
        state = on.driver.state(on.machines.machine(good))
        on.machines.machine(bad).is_broken = False
        await _retried(on, operation, move)
        trial.check_serving(on, move)
        if different := stage.difference({good: state}, {good: on.driver.state(on.machines.machine(good))}):
            raise Failed(f"the retry changed the member that was done: {different}", "Work on op.to_do only.")


@check("stop-rule", "If too many members fail, the machines of the others are not touched.")
async def stop_rule(trial: Trial) -> None:
    move = trial.move("add")
    async with trial.stage() as on:
        await on.perform_until(trial.moves, move)
        bad, *others = on.free_nodes()[:3]
        on.machines.machine(bad).is_broken = True
        operation = await on.ended(on.request(move, count=3, stop_after_failures=1))
        touched = [name for name in others if on.machines.machine(name).commands]
        skipped = [target for target in operation.targets if target.outcome == "skipped"]
        if operation.status != "failed" or touched or len(skipped) != len(others):
            raise Failed(
                f"the first of 3 members failed with `stop_after_failures: 1`; {len(skipped)} of 2 were skipped, and "
                f"commands ran on {', '.join(touched) or 'none of them'}",
                "Work on members with op.each, which asks the stop rule before each member.",
            )
