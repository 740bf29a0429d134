"""The handlers of deploy and add: install Slurm, join the machines, run a first job. Registered by `controller`."""

import asyncio
from dataclasses import dataclass
from functools import partial

from gpuaas_sdk.checks import Check
from gpuaas_sdk.controller import Member, Operation, Permanent, Refused
from gpuaas_sdk.machine import Machine, MachineUnreachable

from gpuaas_app_slurm import homes_of_cluster, login, reports, roles
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import (
    cluster,
    config,
    facts,
    home,
    nodes,
    receipts,
    reporter,
    slurm,
    state,
    uninstall,
)

POLL_S = 0.2


@dataclass(frozen=True)
class Joining:
    """What every step of one deploy or add needs."""

    op: Operation
    inputs: config.Inputs
    settings: Settings
    homes: home.Home

    @property
    def controller(self) -> Member:
        return roles.controller_of(self.op.members)


async def deploy(op: Operation, settings: Settings) -> None:
    inputs = config.parse_inputs(op.instance.inputs)
    config.check_users(inputs.users)
    config.check_times(inputs)
    roles.refuse_shared_logins(op.members)
    controller = roles.controller_of(op.members)
    reached = await op.each(op.to_do, lambda member: _reach(op, member, settings), raises=False)
    if _is_failed(op, controller):
        return  # There is no cluster without its controller.
    present = tuple(member for member in op.members if not _is_failed(op, member))
    homes = await homes_of_cluster.chosen(op, controller, present, inputs)
    joining = Joining(op, inputs, settings, homes)
    installed = await op.each(reached.ok, lambda member: _prepare(joining, member, present), raises=False)
    if _is_failed(op, controller):
        return
    await _join_and_prove(joining, roles.nodes_of(installed.ok))
    await _report_on(op, controller, settings, present)
    await reports.ready_controller(op, controller, inputs)
    await reports.publish_access(op)


async def add(op: Operation, settings: Settings) -> None:
    inputs = config.parse_inputs(op.instance.inputs)
    await reports.head(op)
    homes = await homes_of_cluster.checked(op, roles.controller_of(op.members), op.to_do, inputs)
    joining = Joining(op, inputs, settings, homes)
    installed = await op.each(op.to_do, lambda member: _install(joining, member, ()), raises=False)
    await _join_and_prove(joining, installed.ok)
    await reports.publish_access(op)


async def _reach(op: Operation, member: Member, settings: Settings) -> None:
    async def answer(machine: Machine) -> None:
        await machine.run("true")

    async def step() -> None:
        await reports.with_machine(op, member, "reach the machine", settings, answer)

    await op.advance(member, "provisioning")
    await op.step("reach the machine", step, member=member)


async def _prepare(joining: Joining, member: Member, present: tuple[Member, ...]) -> None:
    """Install Slurm on the machine. Start the controller as soon as its machine is ready, before all workers are."""
    await _install(joining, member, present)
    if member.component_key == roles.CONTROLLER:
        await joining.op.step("start the controller", _start_controller, joining, member, present, member=member)


async def _install(joining: Joining, member: Member, present: tuple[Member, ...]) -> None:
    op = joining.op
    roles_here = roles.roles_on(present, member.allocation_id) or (member.component_key,)
    if len(roles_here) > 1 and member.component_key != roles.CONTROLLER:
        return  # If both roles share a machine, the step of the controller installs for both.

    async def install(machine: Machine) -> None:
        await _take_over(op, member, machine)
        users = joining.inputs.user_ids()
        await slurm.install(machine, op.instance.instance_id, roles_here, users, op.say, joining.homes)

    async def step() -> None:
        await reports.with_machine(op, member, "install packages", joining.settings, install)

    await op.advance(member, "provisioning")
    await op.step("install packages", step, member=member)


async def _take_over(op: Operation, member: Member, machine: Machine) -> None:
    """Remove what instances that no longer use the machine have left there. Refuse the machine of another instance."""
    for instance_id in await receipts.others(machine, op.instance.instance_id):
        if await op.is_used_by(instance_id, member):
            raise Refused(
                f"machine {machine.hostname} already belongs to another Slurm instance: {instance_id}",
                fix="decommission the other instance on this machine first, or choose another allocation",
            )
        await op.say(f"removing what {instance_id}, which no longer uses {machine.hostname}, has left there")
        await uninstall.remove_all(machine, instance_id, op.say)


async def _start_controller(joining: Joining, member: Member, present: tuple[Member, ...]) -> None:
    op = joining.op

    async def start(machine: Machine) -> None:
        own = await facts.read(machine)
        others = await _facts_of_others(op, member, present)
        cluster.refuse_same_names((own, *others))
        is_shared = roles.WORKER in roles.roles_on(present, member.allocation_id)
        workers = (own, *others) if is_shared else others
        wanted = cluster.cluster_of(op.instance.instance_id, joining.inputs, own, machine.address, workers)
        await slurm.start_controller(machine, wanted, joining.inputs.users, joining.settings, op.say)
        await reports.sync_people(op, machine, joining.inputs, joining.settings)

    await op.advance(member, "joining")
    await reports.with_machine(op, member, "start the controller", joining.settings, start)


async def _join_and_prove(joining: Joining, installed: tuple[Member, ...]) -> None:
    op = joining.op
    joined = await op.each(installed, lambda member: _join(joining, member), raises=False)
    if not joined.ok:
        return
    head = await op.machine(joining.controller)
    await op.each(joined.ok, lambda member: _prove(joining, member, head), raises=False)


async def _join(joining: Joining, member: Member) -> None:
    op, inputs = joining.op, joining.inputs

    async def join(machine: Machine) -> None:
        head = await op.machine(joining.controller)
        homes = await home.in_use(head, inputs.home, head.address)
        cgroup, role = await slurm.used_cgroup(head), member.component_key
        await slurm.join(machine, head, cgroup, joining.settings, op.say, inputs.auth, homes, role)

    async def step() -> None:
        await reports.with_machine(op, member, "join the cluster", joining.settings, join)

    await op.advance(member, "joining")
    await op.step("join the cluster", step, member=member)


async def _prove(joining: Joining, member: Member, head: Machine) -> None:
    """Report the member as ready after a job ran on it, or, on a login machine, a question was answered."""
    op, user = joining.op, joining.inputs.users[0]
    await _report_on(op, member, joining.settings, op.members)
    if member.component_key == roles.LOGIN:
        await login.report_ready(op, member, user)
        return
    name = (await op.machine(member)).hostname
    await op.step("first job runs", _run_first_job, op, head, name, user, joining.settings, member=member)
    await reports.ready_worker(op, member, head)


async def _report_on(op: Operation, member: Member, settings: Settings, present: tuple[Member, ...]) -> None:
    """Start the health reporter of the machine, which now is what it should be."""
    roles_here = roles.roles_on(present, member.allocation_id)

    async def start(machine: Machine) -> None:
        await reporter.start(machine, roles_here)

    await reports.with_machine(op, member, "start the health reporter", settings, start)


async def _run_first_job(op: Operation, head: Machine, name: str, user: str, settings: Settings) -> None:
    """Check that a job runs on the node. If it does not, pass only if the node runs jobs of other users."""
    await op.say(f"{user} runs srun on {name}")
    check = await nodes.canary(head, user, (name,), settings.first_job_s)
    if check.ok:
        await op.until(partial(_is_first_job_over, head, name), within_s=settings.first_job_s, every_s=POLL_S)
        return
    node = await nodes.read(head, name)
    if node is None or not node.flags & state.WORKING:
        raise Permanent(check.reason, fix=f"sinfo -N -l; srun -w {name} hostname")


async def _is_first_job_over(head: Machine, name: str) -> Check:
    return state.last_job_over((name,), await nodes.read_all(head))


async def _facts_of_others(op: Operation, controller: Member, members: tuple[Member, ...]) -> tuple[facts.Facts, ...]:
    """Return the facts of the other machines. Leave out unreachable machines: the steps of their members will fail."""
    others = [member for member in members if member.allocation_id != controller.allocation_id]

    async def read(member: Member) -> facts.Facts | None:
        try:
            return await facts.read(await op.machine(member))
        except MachineUnreachable:
            return None

    answers = await asyncio.gather(*(read(member) for member in others))
    return tuple(machine for machine in answers if machine is not None)


def _is_failed(op: Operation, member: Member) -> bool:
    return op.now(member).status == "failed"
