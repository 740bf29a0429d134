"""A decommission while a move of the controller did not end: Slurm is on the new machine too, which is no member."""

from gpuaas_sdk.controller import MachineAway, Member, Operation, Permanent, members
from gpuaas_sdk.installs import undo
from msgspec.structs import replace

from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import moves
from gpuaas_app_slurm.workload.footprint import SLURM


async def end(op: Operation, controller: Member, settings: Settings) -> None:
    """Refuse until the move is finished or undone, which cleans one of the two machines. With force, the statement
    names what is left on the new one: only the move itself has access to it."""
    try:
        begun = await op.on(controller, moves.begun, patience_s=settings.reach_leaving_s)
        if begun is not None and not op.force:
            raise moves.not_ended(controller.node_name, begun)
    except MachineAway:
        return  # A later step refuses a silent machine, or gives it up by force.
    except Permanent as error:
        if not op.force:
            raise
        await op.say(f"continuing because force was requested, despite this error: {error}")
        return
    if begun is not None:
        at_new = replace(controller, node_name=begun.node_name, allocation_id=begun.allocation_id)
        left = undo.left_behind(SLURM, op.instance.instance_id, [controller.component_key])
        why = f"the move of the controller to {begun.node_name} did not end; {left}"
        await members.note_left(op, controller, members.left_on(at_new, SLURM, why))
