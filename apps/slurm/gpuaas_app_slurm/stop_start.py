"""The handlers of stop, start and restart. A stopped cluster keeps its queue, its accounting and its files.

slurmctld stops first and starts before the workers, so it never sees nodes without slurmd."""

from dataclasses import dataclass
from functools import partial

from gpuaas_sdk.checks import Check
from gpuaas_sdk.controller import MachineAway, Member, Operation, Permanent, Refused, Temporary, members
from gpuaas_sdk.installs import units as system_units
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm import login, reports, roles
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import config, footprint, nodes, repairs, slurm, state

STOPPED = "the cluster is stopped"
NOT_STOPPED = f"{STOPPED}; this machine did not answer, so its slurmd was not stopped"
POLL_S = 1.0


async def stop(op: Operation, settings: Settings) -> None:
    if not op.force:
        await op.step("reach the machines", require_machines, op, settings)
    await op.step("check for jobs", _require_no_jobs, op, settings)
    await _stop_all(op, settings)


async def start(op: Operation, settings: Settings) -> None:
    await _start_all(_Starting(op, settings))


async def restart(op: Operation, settings: Settings) -> None:
    """Restart every daemon. Jobs continue: slurmd leaves them alone, and slurmctld finds them again."""
    if not op.force:
        await op.step("reach the machines", require_machines, op, settings)
    await _start_all(_Starting(op, settings, "restart", restarts=True))


async def undo_stop(op: Operation, settings: Settings) -> None:
    await _start_all(_Starting(op, settings, "start again:"))


async def undo_start(op: Operation, settings: Settings) -> None:
    """Stop the cluster again. Jobs that have started since then end first: none of them is cancelled."""
    await op.step("wait for jobs that have started", _wait_for_jobs, op)
    await _stop_all(op, settings, "stop again:")


async def undo_restart(op: Operation, settings: Settings) -> None:
    """Make sure that every daemon runs."""
    await _start_all(_Starting(op, settings, "start again:"))


async def require_machines(op: Operation, settings: Settings) -> None:
    fix = f"start the machine, replace its member, or {op.kind} with force"
    await members.require_answers(op, op.members, fix, patience_s=settings.reach_leaving_s)


async def _require_no_jobs(op: Operation, settings: Settings) -> None:
    """Refuse to stop a cluster with running jobs; with force, requeue or cancel them. Queued jobs stay in the queue."""
    try:
        head = await op.on(roles.controller_of(op.members), _answering, patience_s=settings.reach_leaving_s)
    except (Temporary, MachineAway) as error:
        await _only_by_force(op, error)
        return
    async with reports.opened_after_failure(op, head):
        try:
            await _close(op, head, settings)
        except (Temporary, MachineAway) as error:
            await _only_by_force(op, error)


async def _only_by_force(op: Operation, error: Exception) -> None:
    fix = "repair the controller, or stop with force"
    await members.only_by_force(op, f"it is unknown whether jobs run: {error}", fix)


async def _answering(machine: Machine) -> Machine:
    check = await slurm.controller_answers(machine)
    if not check.ok:
        raise Temporary(check.reason)
    return machine


async def _close(op: Operation, head: Machine, settings: Settings) -> None:
    """Close the partitions, so that no job starts, and look after that: a job may have started before."""
    running = state.running(await nodes.jobs_of_cluster(head))
    if running and not op.force:
        raise busy(op, running)
    await reports.set_partitions(op, head, "down")
    if op.force:
        check = await op.until(partial(_end_jobs, op, head), within_s=settings.cancel_jobs_s, every_s=POLL_S)
        if not check.ok:
            raise Permanent(check.reason, fix="squeue; scancel JOB")
    elif running := state.running(await nodes.jobs_of_cluster(head)):
        raise busy(op, running)


def busy(op: Operation, running: tuple[state.Job, ...]) -> Refused:
    """Return the refusal of a stop while jobs run."""
    return Refused(
        state.running_text(running),
        fix=f"let the jobs end, or requeue or cancel them: gpuaas stop {op.instance.name} --force --reason 'stop jobs'",
    )


async def _end_jobs(op: Operation, head: Machine) -> Check:
    """Requeue the running jobs, so that they start again after the stop. Cancel those that cannot be requeued."""
    running = state.running(await nodes.jobs_of_cluster(head))
    for job in running:
        requeued = await head.run("scontrol", "requeue", str(job.job_id), check=False)
        if requeued.exit_status != 0:
            await op.say(f"cancelling job {job.job_id} ({job.user}), which cannot be requeued")
            await head.run("scancel", str(job.job_id), check=False)
    left = state.running(await nodes.jobs_of_cluster(head)) if running else ()
    return Check(not left, state.running_text(left) if left else "")


async def _wait_for_jobs(op: Operation) -> None:
    """Wait until no job runs. A cluster whose slurmctld was not started yet runs none that it did not run before."""
    head = await op.machine(roles.controller_of(op.members))

    async def quiet() -> Check:
        if not (await slurm.controller_answers(head)).ok:
            return Check(True)
        await reports.set_partitions(op, head, "down")
        running = state.running(await nodes.jobs_of_cluster(head))
        return Check(not running, state.running_text(running) if running else "")

    await op.until(quiet, every_s=POLL_S)


async def _stop_all(op: Operation, settings: Settings, verb: str = "stop") -> None:
    controller = roles.controller_of(op.members)
    rest = (footprint.REST_UNIT,) if config.parse_inputs(op.instance.inputs).rest_api else ()
    await op.step(f"{verb} slurmctld", _stop_units, op, controller, settings, (*rest, "slurmctld"))
    await op.each(roles.nodes_of(op.members), lambda member: _stop_node(op, member, settings, verb), raises=False)
    units = (footprint.REPORTER_UNIT, "slurmdbd", "mariadb")
    await op.step(f"{verb} accounting", _stop_units, op, controller, settings, units)
    detail = op.now(controller).adapter_detail | {"slurmctld": "stopped", "slurmdbd": "stopped"}
    await op.report(controller, status="drained", reason=STOPPED, detail=detail)


async def _stop_node(op: Operation, member: Member, settings: Settings, verb: str) -> None:
    reason, state_now = STOPPED, "stopped"
    if await op.answers(member, patience_s=settings.reach_leaving_s):
        units = (footprint.REPORTER_UNIT, "slurmd")
        await op.step(f"{verb} slurmd", _stop_units, op, member, settings, units, member=member)
    elif op.force:
        reason, state_now = NOT_STOPPED, "unknown"
    else:
        raise Permanent(f"machine {member.node_name} ({member.address}) does not answer", fix="start the machine")
    await op.report(
        member, status="drained", reason=reason, detail=op.now(member).adapter_detail | {"slurm_state": state_now}
    )


async def _stop_units(op: Operation, member: Member, settings: Settings, units: tuple[str, ...]) -> None:
    """Stop the units. They are disabled too: a machine that reboots must not start them."""

    async def work(machine: Machine) -> None:
        await op.say(f"stopping {', '.join(units)} on {machine.hostname}")
        await machine.run_all(system_units.stop(*units))

    await op.on(member, work, patience_s=settings.reach_s)


@dataclass(frozen=True)
class _Starting:
    """What every step of one start or restart needs."""

    op: Operation
    settings: Settings
    verb: str = "start"
    """How the names of the steps begin."""
    restarts: bool = False
    """Whether daemons that run are restarted."""

    @property
    def inputs(self) -> config.Inputs:
        return config.parse_inputs(self.op.instance.inputs)

    async def step(self, unit: str, member: Member, work: members.Work) -> None:
        async def on_machine() -> None:
            await members.on_machine(self.op, member, f"{self.verb} {unit}", work, patience_s=self.settings.reach_s)

        await self.op.step(f"{self.verb} {unit}", on_machine, member=member)


async def _start_all(starting: _Starting) -> None:
    op, controller = starting.op, roles.controller_of(starting.op.members)
    await starting.step("slurmctld", controller, partial(_start_controller, starting, controller))
    await reports.ready_controller(op, controller, starting.inputs)
    head = await reports.head(op)
    # An undo also starts members that are at the goal of the stop already.
    to_do = roles.nodes_of(op.members if op.backs_out else op.to_do)
    await op.each(to_do, lambda member: _start_node(starting, member, head), raises=False)
    if not starting.restarts:
        await reports.open_partitions(op, head)
    await reports.publish_access(op)


async def _start_controller(starting: _Starting, controller: Member, machine: Machine) -> None:
    op, settings, name = starting.op, starting.settings, starting.inputs.cluster_name
    roles_here = roles.roles_on(op.members, controller.allocation_id)
    await repairs.controller(machine, roles_here, name, settings, op.say, restarts=starting.restarts)


async def _start_node(starting: _Starting, member: Member, head: Machine) -> None:
    op, inputs, settings = starting.op, starting.inputs, starting.settings

    async def work(machine: Machine) -> None:
        roles_here = roles.roles_on(op.members, member.allocation_id)
        await repairs.node(machine, head, roles_here, inputs.auth, settings, op.say, restarts=starting.restarts)

    await starting.step("slurmd", member, work)
    if member.component_key == roles.LOGIN:
        await login.report_ready(op, member, inputs.users[0])
    else:
        await _report_started(op, member, head)


async def _report_started(op: Operation, member: Member, head: Machine) -> None:
    """Report the worker as it is. If it was drained before a restart, or before a stop that is undone, it stays so.
    After a start it is `ready` for the platform, until the next look at the cluster shows its drain."""
    node = await nodes.read(head, await reports.node_name(op, member))
    is_drained = node is not None and "DRAIN" in node.flags
    if is_drained and op.kind != "start" and op.status_before(member) in ("draining", "drained"):
        await op.report(member, status="drained", reason=node.reason if node else "")
        return
    kept = {key: value for key, value in op.now(member).adapter_detail.items() if key == "drained_by"}
    await reports.ready_worker(op, member, head, **(kept if is_drained else {}))
