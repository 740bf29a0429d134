"""Checks that kill, pause and double the controller."""

import signal
from typing import Any

from gpuaas_contract.operations import Operation
from gpuaas_contract.runtime import HEARTBEAT, MEMBER_REPORT, STEP_REPORT

from gpuaas_sdk.conformance import stage
from gpuaas_sdk.conformance.plan import Move
from gpuaas_sdk.conformance.registry import check
from gpuaas_sdk.conformance.trial import REPEAT, Trial
from gpuaas_sdk.conformance.verdicts import Failed, NotApplicable
from gpuaas_sdk.testing.platform.edge import Fate, Received


@check("kill-at-every-step", "The result is the same if the controller is killed at the end of any step.")
async def kill_at_every_step(trial: Trial) -> None:
    """Kill it after the work of a step, before the platform stores that it succeeded, and before the report of a
    member, when its steps are stored: once for each role."""
    async with trial.stage(controllers=2) as on:
        killed: set[tuple[str, str, str]] = set()

        async def kill_once(operation: Operation, member_id: str, moment: str) -> Fate:
            role = on.platform.member(member_id).component_key if member_id else operation.component_key
            chosen = (operation.kind, role, moment)
            if chosen in killed or operation.lease is None:
                return "serve"
            if operation.lease.holder not in on.controllers:
                return "drop"  # it was killed while this call was on its way
            killed.add(chosen)
            await on.kill(operation.lease.holder)
            await on.start()
            return "drop"

        async def at_step(operation: Operation, body: Any) -> Fate:
            if body.state != "succeeded":
                return "serve"
            return await kill_once(operation, body.member_id, f"step {body.name}")

        async def at_report(received: Received) -> Fate:
            if received.name != MEMBER_REPORT.name:
                return "serve"
            operation = on.platform.operation(received.path["operation_id"])
            return await kill_once(operation, received.path["member_id"], f"report {received.body.status}")

        on.on_step, on.on_call = at_step, at_report
        await trial.tour(on)
        if not killed:
            raise NotApplicable("the app reports no steps")


@check("lost-heartbeats", "If heartbeats are lost, the next claim continues the work and repeats no effect.")
async def lost_heartbeats(trial: Trial) -> None:
    async with trial.stage() as on:
        lost: set[Move] = set()
        current: list[Move] = []

        async def begin(move: Move) -> None:
            current[:] = [move]

        async def lose(received: Received) -> Fate:
            """Lose the first lease of every operation, at the end of its first step."""
            if received.name == HEARTBEAT.name and current[0] not in lost:
                return "drop"
            if received.name == STEP_REPORT.name and received.body.state == "succeeded" and current[0] not in lost:
                lost.add(current[0])
                on.platform.expire_lease(received.path["operation_id"])
            return "serve"

        on.on_call = lose
        await trial.tour(on, begin)
        if not lost:
            raise NotApplicable("the app reports no steps")


@check("pause-past-the-lease", "A controller that was paused past its lease changes nothing when it continues.")
async def pause_past_the_lease(trial: Trial) -> None:
    reference, move = await trial.reference(), trial.move("add", "deploy")
    after = trial.moves[trial.moves.index(move) + 1 :]
    if not after:
        raise NotApplicable(f"there is no operation after {move} to wake the paused controller with")
    async with trial.stage(controllers=2) as on:
        await on.perform_until(trial.moves, move)
        paused: list[str] = []
        before: dict[str, int] = {}

        async def pause_once(operation: Operation, body: Any) -> Fate:
            if body.state == "succeeded" and not paused and operation.lease is not None:
                paused.append(operation.lease.holder)
                on.controllers[paused[0]].signal(signal.SIGSTOP)
                on.expire_leases(paused[0])
                before.update({name: len(machine.ordered) for name, machine in on.machines.by_name.items()})
                return "drop"
            return "serve"

        on.on_step = pause_once
        async with on.without_leases(paused):
            operation = await on.perform(move)
        if not paused:
            raise NotApplicable(f"{move} reports no steps")
        for name in [name for name in on.controllers if name != paused[0]]:
            await on.kill(name)
        on.controllers[paused[0]].signal(signal.SIGCONT)
        await on.perform(after[0])  # the paused controller works again, so it has noticed what happened
        _check_old_writes(on, operation, before)
        if different := stage.difference(reference.after[after[0]], on.states()):
            raise Failed(f"after {after[0]} {different}", REPEAT)


def _check_old_writes(on: stage.Stage, operation: Operation, before: dict[str, int]) -> None:
    """Raise `Failed` if a command arrived with access of an older claim. One may have been on its way."""
    for machine in on.machines.by_name.values():
        old = [order for order in machine.ordered[before[machine.name] :] if _is_old(order.user, operation)]
        if len(old) > 1:
            raise Failed(
                f"the controller sent {len(old)} commands to {machine.name} with the access of a claim that another "
                "controller had taken over",
                "Work only inside handlers: the kit stops them when the lease is lost. Start no tasks of your own.",
            )


def _is_old(user: str, operation: Operation) -> bool:
    operation_id, _, epoch = user.rpartition(".")
    return operation_id == operation.operation_id and int(epoch) < operation.epoch


@check("two-replicas", "Two controllers of the app share the work and disturb each other nowhere.")
async def two_replicas(trial: Trial) -> None:
    async with trial.stage(controllers=2) as on:
        await trial.tour(on)
