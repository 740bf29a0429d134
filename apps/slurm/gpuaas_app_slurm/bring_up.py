"""The handlers of deploy and add: install Slurm, join the workers, run a first job. Registered by `controller`."""

import asyncio
from functools import partial

from gpuaas_sdk.checks import Check
from gpuaas_sdk.controller import Member, Operation, Permanent, Refused
from gpuaas_sdk.machine import Machine, MachineUnreachable

from gpuaas_app_slurm import details, reports, roles
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import (
    accounting,
    cluster,
    config,
    facts,
    nodes,
    packages,
    receipts,
    slurm,
    state,
    uninstall,
)

POLL_S = 0.2


async def deploy(op: Operation, settings: Settings) -> None:
    inputs = config.parse_inputs(op.instance.inputs)
    config.check_users(inputs.users)
    controller = roles.controller_of(op.members)
    reached = await op.each(op.to_do, lambda member: _reach(op, member, settings), raises=False)
    if _is_failed(op, controller):
        return  # There is no cluster without its controller.
    present = tuple(member for member in op.members if not _is_failed(op, member))
    installed = await op.each(reached.ok, lambda member: _prepare(op, member, present, inputs, settings), raises=False)
    if _is_failed(op, controller):
        return
    await _join_and_prove(op, roles.workers_of(installed.ok), controller, inputs, settings)
    await _report_controller_ready(op, controller, inputs)
    await reports.publish_access(op)


async def add(op: Operation, settings: Settings) -> None:
    inputs = config.parse_inputs(op.instance.inputs)
    controller = roles.controller_of(op.members)
    await reports.head(op)
    installed = await op.each(op.to_do, lambda member: _install(op, member, (), inputs, settings), raises=False)
    await _join_and_prove(op, installed.ok, controller, inputs, settings)
    await reports.publish_access(op)


async def _reach(op: Operation, member: Member, settings: Settings) -> None:
    async def answer(machine: Machine) -> None:
        await machine.run("true")

    async def step() -> None:
        await reports.with_machine(op, member, "reach the machine", settings, answer)

    await op.advance(member, "provisioning")
    await op.step("reach the machine", step, member=member)


async def _prepare(
    op: Operation, member: Member, present: tuple[Member, ...], inputs: config.Inputs, settings: Settings
) -> None:
    """Install Slurm on the machine. Start the controller as soon as its machine is ready, before all workers are."""
    await _install(op, member, present, inputs, settings)
    if member.component_key == roles.CONTROLLER:
        await op.step("start the controller", _start_controller, op, member, present, inputs, settings, member=member)


async def _install(
    op: Operation, member: Member, all_members: tuple[Member, ...], inputs: config.Inputs, settings: Settings
) -> None:
    roles_here = roles.roles_on(all_members, member.allocation_id) or (member.component_key,)
    if len(roles_here) > 1 and member.component_key != roles.CONTROLLER:
        return  # If both roles share a machine, the step of the controller installs for both.

    async def install(machine: Machine) -> None:
        await _take_over(op, member, machine)
        await slurm.install(machine, op.instance.instance_id, roles_here, inputs.user_ids(), op.say)

    async def step() -> None:
        await reports.with_machine(op, member, "install packages", settings, install)

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


async def _start_controller(
    op: Operation, member: Member, present: tuple[Member, ...], inputs: config.Inputs, settings: Settings
) -> None:
    async def start(machine: Machine) -> None:
        own = await facts.read(machine)
        others = await _facts_of_others(op, member, present)
        cluster.refuse_same_names((own, *others))
        is_shared = roles.WORKER in roles.roles_on(present, member.allocation_id)
        workers = (own, *others) if is_shared else others
        wanted = cluster.cluster_of(op.instance.instance_id, inputs, own, machine.address, workers)
        await slurm.start_controller(machine, wanted, inputs.users, settings, op.say)

    await op.advance(member, "joining")
    await reports.with_machine(op, member, "start the controller", settings, start)


async def _join_and_prove(
    op: Operation, installed: tuple[Member, ...], controller: Member, inputs: config.Inputs, settings: Settings
) -> None:
    joined = await op.each(installed, lambda member: _join(op, member, controller, settings), raises=False)
    if not joined.ok:
        return
    head = await op.machine(controller)
    await op.each(joined.ok, lambda member: _prove(op, member, head, inputs.users[0], settings), raises=False)


async def _join(op: Operation, member: Member, controller: Member, settings: Settings) -> None:
    async def join(machine: Machine) -> None:
        head = await op.machine(controller)
        await slurm.join(machine, head, await slurm.used_cgroup(head), settings, op.say)

    async def step() -> None:
        await reports.with_machine(op, member, "join the cluster", settings, join)

    await op.advance(member, "joining")
    await op.step("join the cluster", step, member=member)


async def _prove(op: Operation, member: Member, head: Machine, user: str, settings: Settings) -> None:
    """Report the worker as ready after a job ran on it. Each worker needs a proof of its own."""
    name = (await op.machine(member)).hostname
    await op.step("first job runs", _run_first_job, op, head, name, user, settings, member=member)
    await reports.ready_worker(op, member, head)


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


async def _report_controller_ready(op: Operation, controller: Member, inputs: config.Inputs) -> None:
    machine = await op.machine(controller)
    scheduler = await slurm.controller_answers(machine)
    database = await accounting.ready(machine, inputs.cluster_name)
    if not (scheduler.ok and database.ok):
        reason = f"{scheduler.reason} {database.reason}".strip()
        raise Permanent(reason, fix="scontrol ping; sacctmgr -n show cluster")
    version = await slurm.running_version(machine)
    detail = {
        "cluster_name": inputs.cluster_name,
        "slurmctld": "up",
        "slurmdbd": "up",
        "package_version": await packages.installed_version(machine, "slurmctld"),
        "daemon_version": version,
    }
    warning = details.version_warning(detail)
    await op.report(controller, status="ready", reason=warning, detail=detail, version=version)


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
