"""The handlers of deploy and add: install Slurm, join the workers, run a first job. Registered by `controller`."""

import asyncio
from functools import partial

from gpuaas_sdk.controller import Member, MembersFailed, Operation, Permanent
from gpuaas_sdk.machine import Machine, MachineUnreachable

from gpuaas_app_slurm import details, homes_of_cluster, login, reports, roles
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import accounting, cluster, config, facts, home, nodes, packages, slurm, state

POLL_S = 0.2


async def deploy(op: Operation, settings: Settings) -> None:
    inputs = config.parse_inputs(op.instance.inputs)
    config.check_users(inputs.users)
    config.check_times(inputs)
    roles.refuse_shared_logins(op.members)
    controller, others = roles.controller_of(op.members), roles.nodes_of(op.members)
    reached, unreachable = await reports.survivors(
        op, (controller, *others), lambda member: _reach(op, member, settings)
    )
    _require_controller(controller, unreachable)
    homes = await homes_of_cluster.chosen(op, controller, reached, inputs)
    installed, broken = await reports.survivors(
        op, reached, lambda member: _prepare(op, member, reached, inputs, settings, homes)
    )
    _require_controller(controller, broken)
    joined, not_joined = await reports.survivors(
        op, roles.nodes_of(installed), lambda member: _join(op, member, controller, inputs, settings)
    )
    await _run_first_job(op, controller, roles.workers_of(joined), inputs, settings)
    await login.report_ready(op, roles.logins_of(joined), inputs)
    await _report_controller_ready(op, controller, inputs)
    await reports.publish_access(op)
    reports.raise_any(unreachable + broken + not_joined, 1 + len(others))


async def add(op: Operation, settings: Settings) -> None:
    inputs = config.parse_inputs(op.instance.inputs)
    controller = roles.controller_of(op.members)
    await _require_answer(op, controller)
    homes = await homes_of_cluster.checked(op, controller, op.targets, inputs)
    installed, broken = await reports.survivors(
        op, op.targets, lambda member: _install(op, member, (), inputs, settings, homes)
    )
    joined, not_joined = await reports.survivors(
        op, installed, lambda member: _join(op, member, controller, inputs, settings)
    )
    await _run_first_job(op, controller, roles.workers_of(joined), inputs, settings)
    await login.report_ready(op, roles.logins_of(joined), inputs)
    await reports.publish_access(op)
    reports.raise_any(broken + not_joined, len(op.targets))


async def _reach(op: Operation, member: Member, settings: Settings) -> None:
    async def step() -> None:
        await reports.with_machine(op, member, "reach the machine", settings, reports.answer)

    await reports.advance(op, member, "provisioning")
    await op.step("reach the machine", step, member=member)


async def _prepare(
    op: Operation,
    member: Member,
    reached: tuple[Member, ...],
    inputs: config.Inputs,
    settings: Settings,
    homes: home.Home,
) -> None:
    """Install Slurm on the machine. Start the controller as soon as its machine is ready, before all workers are."""
    await _install(op, member, reached, inputs, settings, homes)
    if member.component_key == roles.CONTROLLER:
        await op.step("start the controller", _start_controller, op, member, reached, inputs, settings, member=member)


async def _install(
    op: Operation,
    member: Member,
    all_members: tuple[Member, ...],
    inputs: config.Inputs,
    settings: Settings,
    homes: home.Home,
) -> None:
    roles_here = roles.roles_on(all_members, member.allocation_id) or (member.component_key,)
    if len(roles_here) > 1 and member.component_key != roles.CONTROLLER:
        return  # If both roles share a machine, the step of the controller installs for both.

    async def install(machine: Machine) -> None:
        await slurm.install(machine, op.instance.instance_id, roles_here, inputs.user_ids(), op.say, homes)

    async def step() -> None:
        await reports.with_machine(op, member, "install packages", settings, install)

    await reports.advance(op, member, "provisioning")
    await op.step("install packages", step, member=member)


async def _start_controller(
    op: Operation, member: Member, reached: tuple[Member, ...], inputs: config.Inputs, settings: Settings
) -> None:
    async def start(machine: Machine) -> None:
        own = await facts.read(machine)
        others = await _facts_of_others(op, member, reached)
        cluster.refuse_same_names((own, *others))
        is_shared = roles.WORKER in roles.roles_on(reached, member.allocation_id)
        workers = (own, *others) if is_shared else others
        wanted = cluster.cluster_of(op.instance.instance_id, inputs, own, machine.address, workers)
        await slurm.start_controller(machine, wanted, inputs.users, settings, op.say)

    await reports.advance(op, member, "joining")
    await reports.with_machine(op, member, "start the controller", settings, start)


async def _join(op: Operation, member: Member, controller: Member, inputs: config.Inputs, settings: Settings) -> None:
    async def join(machine: Machine) -> None:
        head = await op.machine(controller)
        homes = await home.in_use(head, inputs.home, head.address)
        cgroup, role = await slurm.used_cgroup(head), member.component_key
        await slurm.join(machine, head, cgroup, settings, op.say, inputs.auth, homes, role)

    async def step() -> None:
        await reports.with_machine(op, member, "join the cluster", settings, join)

    await reports.advance(op, member, "joining")
    await op.step("join the cluster", step, member=member)


async def _run_first_job(
    op: Operation, controller: Member, joined: tuple[Member, ...], inputs: config.Inputs, settings: Settings
) -> None:
    if not joined:
        return
    head = await op.machine(controller)
    names = tuple([(await op.machine(member)).hostname for member in joined])
    await op.step("first job runs", _prove, op, head, names, inputs.users[0], settings)
    await asyncio.gather(*(reports.ready_worker(op, member, head) for member in joined))


async def _prove(op: Operation, head: Machine, names: tuple[str, ...], user: str, settings: Settings) -> None:
    """Check that a job runs on all these nodes. If it does not, pass only if jobs of other users run on every node."""
    await op.say(f"{user} runs srun on {', '.join(names)}")
    check = await nodes.canary(head, user, names, settings.first_job_s)
    if check.ok:
        is_over = partial(_first_job_is_over, head, names)
        await nodes.until(is_over, timeout_s=settings.first_job_s, every_s=POLL_S, progress=op.say)
        return
    busy = {node.name for node in await nodes.read_all(head) if node.flags & state.WORKING}
    if not busy >= set(names):
        raise Permanent(check.reason, fix=f"sinfo -N -l; srun -w {names[0]} hostname")


async def _first_job_is_over(head: Machine, names: tuple[str, ...]) -> state.Check:
    return state.last_job_over(names, await nodes.read_all(head))


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


async def _require_answer(op: Operation, controller: Member) -> None:
    check = await slurm.controller_answers(await op.machine(controller))
    if not check.ok:
        raise Permanent(check.reason, fix=f"ssh {controller.address} systemctl status slurmctld")


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


def _require_controller(controller: Member, failures: reports.Failures) -> None:
    """Fail the operation if the controller failed, because there is no cluster without it."""
    if any(member.member_id == controller.member_id for member, _ in failures):
        raise MembersFailed(failures, len(failures))
