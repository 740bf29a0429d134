"""The check of the circuit breaker: the platform opens it only if the app reports failed members as failed."""

from gpuaas_contract.errors import CircuitOpen
from gpuaas_contract.lifecycles import SERVING_MEMBER
from gpuaas_contract.operations import Operation

from gpuaas_sdk.conformance import stage
from gpuaas_sdk.conformance.plan import Move
from gpuaas_sdk.conformance.registry import check
from gpuaas_sdk.conformance.stage import Stage
from gpuaas_sdk.conformance.trial import Trial
from gpuaas_sdk.conformance.verdicts import Failed, NotApplicable

FAILURES_MAX = 20
"""A role that allows more failures is not tried: each one takes as long as an add."""


@check("breaker", "If members fail to join again and again, adds are refused, the others work on, and a reset ends it.")
async def breaker(trial: Trial) -> None:
    move = trial.move("add")
    declared = next(role.breaker for role in trial.manifest.roles if role.component_key == move.role)
    if declared.failures > FAILURES_MAX:
        raise NotApplicable(
            f"the breaker of {move.role} opens after {declared.failures} failures, which takes too long"
        )
    async with trial.stage() as on:
        await on.perform_until(trial.moves, move)
        served = {member.member_id for member in on.members if member.status in SERVING_MEMBER}
        await _fail_until_open(on, move, declared.failures)
        _check_refused(on, move)
        _check_still_serving(trial, on, move, served)
        on.platform.reset_breaker(on.instance, move.role)
        await _add_after_reset(on, move)
        trial.check_serving(on, move)


async def _fail_until_open(on: Stage, move: Move, failures: int) -> None:
    """Add a member on a machine on which every command fails, and retry until the breaker must be open."""
    node = on.free_nodes()[0]
    on.machines.machine(node).is_broken = True
    operation = await on.ended(on.request(move))
    for number in range(1, failures + 1):
        _check_counted(on, move, operation, number)
        if number < failures:
            operation = await on.ended(on.platform.retry(operation.operation_id))


def _check_counted(on: Stage, move: Move, operation: Operation, number: int) -> None:
    counted = on.platform.breaker(on.instance, move.role).failures
    if operation.status != "failed" or counted != number:
        [target] = operation.targets
        member = on.platform.member(target.member_id)
        raise Failed(
            f"every command on {member.node_name} failed in attempt {number} of {move}, but the breaker of {move.role} "
            f"counts {counted}: the operation {stage.describe(operation)}, and its member is {member.status}",
            "Let the error of the machine end the work on the member: op.each reports the member as failed. Report no "
            "other status for it, and refuse only before the first change.",
        )


def _check_refused(on: Stage, move: Move) -> None:
    try:
        on.request(move)
    except CircuitOpen:
        return
    raise Failed(
        f"{move} was accepted with an open breaker",
        "This is no problem of the app: report it to the platform.",
        "missing platform primitive",
    )


def _check_still_serving(trial: Trial, on: Stage, move: Move, served: set[str]) -> None:
    """Raise `Failed` if a member that served before the failures does not any more."""
    for member in (on.platform.member(member_id) for member_id in sorted(served)):
        if member.status not in SERVING_MEMBER:
            raise Failed(
                f"{move} failed on another machine, and the member on {member.node_name} is now {member.status}",
                "Change the members that serve only after the new one works.",
            )
    trial.check_serving(on, move)


async def _add_after_reset(on: Stage, move: Move) -> None:
    operation = await on.ended(on.request(move))
    if operation.status != "succeeded":
        raise Failed(
            f"after the reset of the breaker, {move} on a machine that works {stage.describe(operation)}",
            "Leave members that failed to join out of the work on the others.",
        )
