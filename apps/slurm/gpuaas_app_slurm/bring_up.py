"""Deploy and add: from bare machines to workers that ran a job.  Called by `controller`; the work is in `slurm`."""

import asyncio
from functools import partial

from gpuaas_sdk.controller import Member, MembersFailed, Operation, Permanent
from gpuaas_sdk.machine import Machine, MachineUnreachable

from gpuaas_app_slurm import accounting, config, facts, nodes, packages, plan, reports, slurm, state


async def deploy(op: Operation) -> None:
    inputs = config.parse_inputs(op.instance.inputs)
    controller, workers = plan.controller_of(op.members), plan.workers_of(op.members)
    reached, missing = await reports.survivors(op, (controller, *workers), lambda member: _reach(op, member))
    _need(controller, missing)
    installed, broken = await reports.survivors(op, reached, lambda member: _prepare(op, member, reached, inputs))
    _need(controller, broken)
    joined, strangers = await reports.survivors(
        op, plan.workers_of(installed), lambda member: _join(op, member, controller)
    )
    await _first_job(op, controller, joined, inputs)
    await _controller_ready(op, controller, inputs)
    await reports.publish_access(op)
    reports.raise_any(missing + broken + strangers, 1 + len(workers))


async def add(op: Operation) -> None:
    inputs = config.parse_inputs(op.instance.inputs)
    controller = plan.controller_of(op.members)
    await _controller_must_answer(op, controller)
    installed, broken = await reports.survivors(op, op.targets, lambda member: _install(op, member, (), inputs))
    joined, strangers = await reports.survivors(op, installed, lambda member: _join(op, member, controller))
    await _first_job(op, controller, joined, inputs)
    await reports.publish_access(op)
    reports.raise_any(broken + strangers, len(op.targets))


async def _reach(op: Operation, member: Member) -> None:
    async def answer(machine: Machine) -> None:
        await machine.run("true")

    async def step() -> None:
        await reports.with_machine(op, member, "reach the machine", plan.REACH_S, answer)

    await reports.advance(op, member, "provisioning")
    await op.step("reach the machine", step, member=member)


async def _prepare(op: Operation, member: Member, reached: tuple[Member, ...], inputs: config.Inputs) -> None:
    """Install; and on the controller go on at once, while the workers still install."""
    await _install(op, member, reached, inputs)
    if member.component_key == plan.CONTROLLER:
        await op.step("start the controller", _start_controller, op, member, reached, inputs, member=member)


async def _install(op: Operation, member: Member, all_members: tuple[Member, ...], inputs: config.Inputs) -> None:
    roles = plan.roles_on(all_members, member.allocation_id) or (member.component_key,)
    if len(roles) > 1 and member.component_key != plan.CONTROLLER:
        return  # The controller's own step installs for both on a shared machine.

    async def install(machine: Machine) -> None:
        await slurm.install(machine, op.instance.instance_id, roles, inputs.user_ids(), op.say)

    async def step() -> None:
        await reports.with_machine(op, member, "install packages", plan.REACH_S, install)

    await reports.advance(op, member, "provisioning")
    await op.step("install packages", step, member=member)


async def _start_controller(op: Operation, member: Member, reached: tuple[Member, ...], inputs: config.Inputs) -> None:
    async def start(machine: Machine) -> None:
        own = await facts.read(machine)
        others = await _facts_of_others(op, member, reached)
        plan.refuse_same_names((own, *others))
        shared = plan.WORKER in plan.roles_on(reached, member.allocation_id)
        cluster = plan.cluster_of(
            op.instance.instance_id, inputs, own, machine.address, (own, *others) if shared else others
        )
        await slurm.start_controller(machine, cluster, inputs.users, op.say)

    await reports.advance(op, member, "joining")
    await reports.with_machine(op, member, "start the controller", plan.REACH_S, start)


async def _join(op: Operation, member: Member, controller: Member) -> None:
    async def join(machine: Machine) -> None:
        head = await op.machine(controller)
        await slurm.join(machine, head, await slurm.used_cgroup(head), op.say)

    async def step() -> None:
        await reports.with_machine(op, member, "join the cluster", plan.REACH_S, join)

    await reports.advance(op, member, "joining")
    await op.step("join the cluster", step, member=member)


async def _first_job(op: Operation, controller: Member, joined: tuple[Member, ...], inputs: config.Inputs) -> None:
    if not joined:
        return
    head = await op.machine(controller)
    names = tuple([(await op.machine(member)).hostname for member in joined])
    await op.step("first job runs", _prove, op, head, names, inputs.users[0])
    await asyncio.gather(*(reports.ready_worker(op, member, head) for member in joined))


async def _prove(op: Operation, head: Machine, names: tuple[str, ...], user: str) -> None:
    await op.say(f"{user} runs srun on {', '.join(names)}")
    check = await nodes.canary(head, user, names, plan.CANARY_S)
    if check.ok:
        await nodes.until(partial(_is_over, head, names), timeout_s=plan.CANARY_S, every_s=0.2, say=op.say)
        return
    # On a cluster with a queue other people's jobs may have been quicker; a node that runs them has proved itself.
    busy = {node.name for node in await nodes.read_all(head) if node.flags & state.WORKING}
    if not busy >= set(names):
        raise Permanent(check.reason, fix=f"sinfo -N -l; srun -w {names[0]} hostname")


async def _is_over(head: Machine, names: tuple[str, ...]) -> state.Check:
    return state.last_job_over(names, await nodes.read_all(head))


async def _controller_ready(op: Operation, controller: Member, inputs: config.Inputs) -> None:
    machine = await op.machine(controller)
    ping = await slurm.controller_answers(machine)
    book = await accounting.ready(machine, inputs.cluster_name)
    if not (ping.ok and book.ok):
        raise Permanent(f"{ping.reason} {book.reason}".strip(), fix="scontrol ping; sacctmgr -n show cluster")
    version = await slurm.running_version(machine)
    detail = {
        "cluster_name": inputs.cluster_name,
        "slurmctld": "up",
        "slurmdbd": "up",
        "package_version": await packages.installed_version(machine, "slurmctld"),
        "daemon_version": version,
    }
    await op.report(controller, status="ready", reason=plan.version_warning(detail), detail=detail, version=version)


async def _controller_must_answer(op: Operation, controller: Member) -> None:
    check = await slurm.controller_answers(await op.machine(controller))
    if not check.ok:
        raise Permanent(check.reason, fix=f"ssh {controller.address} systemctl status slurmctld")


async def _facts_of_others(op: Operation, controller: Member, members: tuple[Member, ...]) -> tuple[facts.Facts, ...]:
    """Facts of the other machines; one that went away meanwhile has no say, its own step will fail it."""
    others = [member for member in members if member.allocation_id != controller.allocation_id]

    async def look(member: Member) -> facts.Facts | None:
        try:
            return await facts.read(await op.machine(member))
        except MachineUnreachable:
            return None

    found = await asyncio.gather(*(look(member) for member in others))
    return tuple(one for one in found if one is not None)


def _need(controller: Member, failures: reports.Failures) -> None:
    """Without its controller there is no cluster to go on with."""
    if any(member.member_id == controller.member_id for member, _ in failures):
        raise MembersFailed(failures, len(failures))
