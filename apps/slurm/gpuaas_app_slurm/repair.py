"""The handlers of repair: make a machine of the cluster again what it should be, beside running jobs.

People request it, and the app's own health check, see `plan`."""

from functools import partial

from gpuaas_sdk.controller import MachineAway, Member, Operation, Permanent, Refused, Temporary, members
from gpuaas_sdk.installs import removals
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm import login, plan, reports, roles, unknown_nodes, user_accounts
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import config, nodes, repairs, slurm, state, users


async def controller(op: Operation, settings: Settings) -> None:
    inputs = config.parse_inputs(op.instance.inputs)

    async def repair(member: Member, machine: Machine) -> None:
        if not _concerns_people_only(op):
            roles_here = roles.roles_on(op.members, member.allocation_id)
            await repairs.controller(machine, roles_here, inputs.cluster_name, settings, op.say)
            await _keep_jobs_off(op, machine)
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
        await users.ensure_noted(machine, op.instance.instance_id, await user_accounts.of_cluster(op, head))

    async def repair_member(member: Member) -> None:
        _refuse_leaving(op, member)
        name = await reports.node_name(op, member)
        _refuse_changed(op, name, await nodes.read(head, name))
        await _on_machine(op, member, settings, partial(repair, member))
        if member.component_key == roles.LOGIN:
            await login.report_ready(op, member, inputs.users[0])
        else:
            await _report(op, member, head)

    await op.each(op.to_do, repair_member)


def _concerns_people_only(op: Operation) -> bool:
    """Return whether the app requested the repair for its people. It must not put back files that a person changed."""
    return op.by_steward and op.reason.startswith(plan.PEOPLE_CHANGED)


def _refuse_changed(op: Operation, name: str, node: state.Node | None) -> None:
    """Refuse what a person or Slurm has done to the node since the repair was requested: a restart of slurmd would undo
    it."""
    state.refuse_reboot(name, node)
    if op.by_steward and node is not None and state.down_by_others(node):
        raise Refused(
            f"{node.reason_by} has set {name} to {node.slurm_state} ({node.reason}), so the app leaves it alone",
            fix=f"to use it again: scontrol update nodename={name} state=resume",
        )


def _refuse_leaving(op: Operation, member: Member) -> None:
    """Refuse to repair a member that an operation has begun to take off its machine. Only a removal can finish that."""
    if member.adapter_detail.get(removals.BEGUN_BY):
        raise Refused(
            f"the removal of {member.node_name} has begun, so there is nothing to repair",
            fix=f"gpuaas member remove {op.instance.name} {member.node_name} --reason 'finish the removal'",
        )


async def _keep_jobs_off(op: Operation, head: Machine) -> None:
    """Keep jobs off nodes whose machines were given up. A node that an operation may be joining is left alone."""
    present = await nodes.read_all(head)  # before the members: see `members_at_rest`
    members = await op.members_at_rest(unknown_nodes.JOINING)
    for name in unknown_nodes.to_close(members or (), present):
        await op.say(f"keeping jobs off {name}: its machine was given up")
        await nodes.give_up(head, name, op.id)


async def _on_machine(op: Operation, member: Member, settings: Settings, work: members.Work) -> None:
    async def step() -> None:
        try:
            await members.on_machine(op, member, "repair the machine", work, patience_s=settings.reach_repair_s)
        except MachineAway as error:
            fault = plan.silent(op.instance.name, op.members, member, str(error))
            raise Permanent(f"{fault.text} Fix: {fault.fix}", fix=fault.fix) from error

    await op.step("repair the machine", step, member=member)


async def _report(op: Operation, member: Member, head: Machine) -> None:
    """A worker that people drained stays drained; every other one is ready."""
    machine = await op.machine(member)
    node = await nodes.read(head, machine.hostname)
    if node is not None and state.drained_by_app(node):
        await op.report(member, status="drained", reason="")
    else:
        await reports.ready_worker(op, member, head)
