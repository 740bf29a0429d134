"""Checks with work of users: what the app observes and shows about it must be true."""

from gpuaas_contract.instances import Member
from gpuaas_contract.lifecycles import ENDED_OPERATION
from gpuaas_contract.operations import PREVIEWED_KINDS

from gpuaas_sdk.conformance import stage
from gpuaas_sdk.conformance.machines import Ordered, SimulatedMachine
from gpuaas_sdk.conformance.plan import Move
from gpuaas_sdk.conformance.registry import check
from gpuaas_sdk.conformance.stage import Stage
from gpuaas_sdk.conformance.trial import Trial
from gpuaas_sdk.conformance.verdicts import Failed, NotApplicable

_NO_WORK = "the driver starts no work (Driver.begin_work)"


@check("drain-honesty", "A member is drained only after the work on its machine has ended, and no work is interrupted.")
async def drain_honesty(trial: Trial) -> None:
    move = trial.move("drain")
    async with trial.stage() as on:
        await on.perform_until(trial.moves, move)
        member = on.of_role(move.role)[-1]
        machine = on.machine(member)
        if not on.driver.begin_work(machine):
            raise NotApplicable(_NO_WORK)
        operation = await on.keeps(await on.waits(on.request(move)))
        status, left = on.platform.member(member.member_id).status, on.driver.work(machine)
        if left == 0:
            raise Failed(f"{move} ended the work on {member.node_name}", "Let running work end before you drain.")
        if operation.status == "succeeded" or status == "drained":
            raise Failed(
                f"the member on {member.node_name} is {status} while {left} piece of work runs there",
                "Report `drained` only after a look at the machine that shows no work.",
            )
        on.driver.end_work(machine)
        if operation.status not in ENDED_OPERATION:
            ended = await on.ended(operation)
            if ended.status != "succeeded":
                raise Failed(f"the work has ended, and {move} {stage.describe(ended)}", "Wait with op.until.")


@check("evidence-honesty", "No removal interrupts work that began after the app looked at the machine.")
async def evidence_honesty(trial: Trial) -> None:
    reference, move = await trial.reference(), trial.move("remove")
    add = Move("add", move.role)
    async with trial.stage() as on:
        await on.perform_until(trial.moves, trial.moves[1])
        for number in range(1, max(reference.commands[move].values()) + 1):
            if add in trial.moves:
                await on.perform(add)
            began = await _remove_with_work(on, move, number)
            if not began or add not in trial.moves:
                return  # the machine is closed for work from here on, or the role has no other member to remove


async def _remove_with_work(on: Stage, move: Move, number: int) -> bool:
    """Remove a member; a user starts work there after this number of commands. Return whether the work began."""
    machine, began = on.machine(on.of_role(move.role)[-1]), list[bool]()
    if not on.driver.begin_work(machine):
        raise NotApplicable(_NO_WORK)
    on.driver.end_work(machine)
    first = machine.commands

    async def begin(on_machine: SimulatedMachine, order: Ordered) -> None:
        if on_machine.commands - first == number and not began:
            began.append(bool(on.driver.begin_work(on_machine)))

    machine.after_command = begin
    operation = await on.waits(on.request(move))
    machine.after_command = None
    if began != [True]:
        await on.ended(operation)
        return False
    operation = await on.keeps(operation)
    if not on.driver.work(machine):
        raise Failed(
            f"{move} interrupted work on {machine.name} that began after command {number} of the operation",
            "First close the machine for new work, then look, then remove. Never use an earlier look as evidence.",
        )
    on.driver.end_work(machine)
    await on.ended(operation)
    return True


@check("preview-honesty", "A preview lists the work that runs on the machines, and changes nothing.")
async def preview_honesty(trial: Trial) -> None:
    """Preview every operation on a member with work, and on the whole instance. Not every role takes work, so the check
    asks for the newest member that does: with the newest of all, an app whose last role takes none is not judged."""
    asked = 0
    async with trial.stage() as on:
        await on.perform(Move("deploy"))
        member = next((member for member in reversed(on.members) if on.driver.begin_work(on.machine(member))), None)
        if member is None:
            raise NotApplicable(_NO_WORK)
        for move in trial.moves:
            if move.kind in PREVIEWED_KINDS - {"rollback"} and move.role in ("", member.component_key):
                asked += await _preview(on, move, member)
    if not asked:
        raise NotApplicable("the app has no preview handlers")


async def _preview(on: Stage, move: Move, member: Member) -> bool:
    """Ask for a preview and compare it with the machines. Return whether the app has one."""
    members = [member] if move.role else on.members
    runs, before = sum(on.driver.work(on.machine(member)) for member in members), on.states()
    operation = await on.ended(on.platform.ask_preview(on.instance, move.kind, members, component_key=move.role))
    if operation.preview is None:
        raise Failed(f"the preview of {move} {stage.describe(operation)}", "Return a Preview from the handler.")
    if not operation.preview.answered:
        return False
    shown = len(operation.preview.running_work)
    if shown > runs or (shown < runs and move.kind != "reconfigure"):  # many changes of settings touch no work
        raise Failed(
            f"the preview of {move} lists {shown} pieces of work, and {runs} run on the machines",
            "List all work that runs on the machines of op.targets.",
            "read-model surface",
        )
    if different := stage.difference(before, on.states()):
        raise Failed(f"the preview of {move} changed a machine: {different}", "Only read in a preview handler.")
    return True
