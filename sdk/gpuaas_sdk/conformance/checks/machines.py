"""Checks with machines that fail commands, do not answer or are lost."""

from typing import Any

from gpuaas_contract.lifecycles import ENDED_OPERATION, GONE_MEMBER
from gpuaas_contract.operations import Operation

from gpuaas_sdk.conformance import stage
from gpuaas_sdk.conformance.plan import Move
from gpuaas_sdk.conformance.registry import check
from gpuaas_sdk.conformance.stage import Stage
from gpuaas_sdk.conformance.trial import REPEAT, Trial
from gpuaas_sdk.conformance.verdicts import Failed, NotApplicable
from gpuaas_sdk.testing.platform.edge import Fate


@check("failures-are-reported", "If any command on a machine fails, the operation fails or the result is complete.")
async def failures_are_reported(trial: Trial) -> None:
    """Add and remove a member again and again, each time with another command that fails on its machine."""
    reference, add = await trial.reference(), trial.move("add")
    remove = Move("remove", add.role)
    if remove not in trial.moves:
        raise NotApplicable(f"{remove} is needed to repeat the {add}, and the manifest does not list it")
    async with trial.stage() as on:
        await on.perform_until(trial.moves, add)
        node = on.free_nodes()[0]
        for number in range(1, reference.commands[add][node] + 1):
            await _fail_at(on, add, node, number, reference.after[add])
            await on.perform(remove)
        await on.perform(add)
        before = on.machines.machine(node).commands
        await on.perform(remove)
        commands, without = on.machines.machine(node).commands - before, on.states()
        for number in range(1, commands + 1):
            await on.perform(add)
            await _fail_at(on, remove, node, number, without)


async def _fail_at(on: Stage, move: Move, node: str, number: int, wanted: stage.States) -> None:
    """Let one command of the operation fail on the node. It must fail, or bring the machines into the wanted state."""
    on.machines.machine(node).fails_at = number
    operation = await on.ended(on.request(move))
    on.machines.machine(node).fails_at = 0
    on.platform.reset_breaker(on.instance, move.role)  # it is not what this check tries
    await _check_failure(on, operation, move, number)
    if different := stage.difference(wanted, on.states()):
        raise Failed(f"command {number} of {move} failed, and {move} succeeded, but {different}", _CHECKED)


_CHECKED = "Use commands with check=True, or look at the result before you report success."


async def _check_failure(on: Stage, operation: Operation, move: Move, number: int) -> None:
    """Retry an operation that failed; it must give a reason and then succeed."""
    if operation.status == "succeeded":
        return
    if operation.error is None or not operation.error.message:
        raise Failed(f"command {number} of {move} failed, and the operation gives no reason", _CHECKED)
    again = await on.ended(on.platform.retry(operation.operation_id))
    if again.status != "succeeded":
        raise Failed(f"command {number} of {move} failed once, and the retry {stage.describe(again)}", REPEAT)


@check("machine-silent", "If a machine does not answer, the operation shows what it waits for, and removes nothing.")
async def machine_silent(trial: Trial) -> None:
    move = trial.move("drain", "remove", "add")
    async with trial.stage() as on:
        await on.perform_until(trial.moves, move)
        node = on.free_nodes()[0] if move.kind == "add" else on.of_role(move.role)[-1].node_name
        on.machines.cut(node)
        operation = await on.waits(on.request(move))
        shown = " ".join(
            [*(step.message for step in operation.steps), operation.error.message if operation.error else ""]
        )
        if operation.status == "succeeded":
            raise Failed(f"{move} succeeded while {node} did not answer", "`Could not read` is never `safe`.")
        if node not in shown and on.machines.address(node) not in shown:
            raise Failed(
                f"{node} does not answer, and {move} shows {shown.strip()!r}",
                "Use op.on(member, …), which names the machine that it waits for.",
                "read-model surface",
            )
        await _expire(on, operation)
        _check_no_work_after(on, operation)


async def _expire(on: Stage, operation: Operation) -> None:
    """End an operation that waits, by its deadline."""
    if on.platform.operation(operation.operation_id).status not in ENDED_OPERATION:
        on.expire(operation.operation_id)
        await on.ended(operation)


def _check_no_work_after(on: Stage, operation: Operation) -> None:
    gone = [member.node_name for member in on.platform.records.members.values() if member.status in GONE_MEMBER]
    if gone:
        raise Failed(f"{operation.kind} removed the member on {', '.join(gone)} without a look at its machine", REPEAT)


@check("node-lost", "An add does not succeed on a node that is lost in the middle, and force removes the member.")
async def node_lost(trial: Trial) -> None:
    move = trial.move("add")
    remove = Move("remove", move.role)
    async with trial.stage() as on:
        await on.perform_until(trial.moves, move)
        node, lost = on.free_nodes()[0], list[str]()

        async def lose_once(operation: Operation, body: Any) -> Fate:
            if body.state == "running" and not lost:
                lost.append(body.name)
                on.machines.cut(node)
            return "serve"

        on.on_step = lose_once
        operation = await on.waits(on.request(move))
        if not lost:
            raise NotApplicable(f"{move} reports no steps")
        if operation.status == "succeeded":
            raise Failed(f"{move} succeeded although {node} was lost in step {lost[0]!r}", "Check the machine last.")
        await _expire(on, operation)
        if remove in trial.moves:
            await _remove_by_force(on, remove)


async def _remove_by_force(on: Stage, remove: Move) -> None:
    """Remove the member on the lost node. It must not be shown as removed if something may be left there."""
    member = on.of_role(remove.role)[-1]
    ended = await on.ended(on.request(remove, force=True, reason="the node is lost"))
    if ended.status != "succeeded":
        raise Failed(
            f"with force, {remove} on the lost node {stage.describe(ended)}",
            "With op.force, ask op.answers(member) first and leave out the machine that does not answer.",
        )
    if member.status != "requested" and on.platform.member(member.member_id).status == "removed":
        raise Failed(
            f"the member is shown as removed although {member.node_name} did not answer, so the app is still there",
            "Report `tombstoned` with what was left on the machine: members.give_up, or op.report(left=…).",
        )
