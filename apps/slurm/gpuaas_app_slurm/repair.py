"""The handlers of repair: make a machine of the cluster again what it should be, beside running jobs.

People request it, and the app's own health check, see `plan`."""

from functools import partial

from gpuaas_sdk.controller import Member, Operation, Temporary
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm import reports, roles
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import config, nodes, repairs, slurm, state


async def controller(op: Operation, settings: Settings) -> None:
    inputs = config.parse_inputs(op.instance.inputs)

    async def repair(member: Member, machine: Machine) -> None:
        roles_here = roles.roles_on(op.members, member.allocation_id)
        await repairs.controller(machine, roles_here, inputs.cluster_name, settings, op.say)
        await reports.sync_people(op, machine, inputs, settings)

    for member in op.to_do:
        await _on_machine(op, member, settings, partial(repair, member))
        await reports.ready_controller(op, member, inputs)


async def node(op: Operation, settings: Settings) -> None:
    """Repair workers and login machines."""
    inputs = config.parse_inputs(op.instance.inputs)
    head = await op.machine(roles.controller_of(op.members))
    if not (check := await slurm.controller_answers(head)).ok:
        raise Temporary(check.reason)

    async def repair(member: Member, machine: Machine) -> None:
        roles_here = roles.roles_on(op.members, member.allocation_id)
        await repairs.node(machine, head, roles_here, inputs.auth, settings, op.say)

    async def repair_member(member: Member) -> None:
        await _on_machine(op, member, settings, partial(repair, member))
        await _report(op, member, head)

    await op.each(op.to_do, repair_member)


async def _on_machine(op: Operation, member: Member, settings: Settings, work: reports.Work) -> None:
    async def step() -> None:
        await reports.with_machine(op, member, "repair the machine", settings, work)

    await op.step("repair the machine", step, member=member)


async def _report(op: Operation, member: Member, head: Machine) -> None:
    """A member that people drained stays drained; every other one is ready."""
    machine = await op.machine(member)
    node = await nodes.read(head, machine.hostname)
    if node is not None and state.drained_by_app(node):
        await op.report(member, status="drained", reason="")
    else:
        await reports.ready_worker(op, member, head)
