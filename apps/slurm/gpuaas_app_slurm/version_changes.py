"""The parts of an upgrade and of a rollback: check, move the controller machine, move nodes, report. Called by the
handlers in `upgrade` and `rollback`."""

import asyncio
from dataclasses import dataclass

from gpuaas_sdk import checks
from gpuaas_sdk.checks import Check
from gpuaas_sdk.controller import MachineAway, Member, Operation, Permanent, Refused, members, package_sources
from gpuaas_sdk.installs import bundle, package_changes, packages
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm import bring_up, login, reports, roles
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import (
    accounting,
    choices,
    config,
    hold,
    nodes,
    repairs,
    rest,
    slurm,
    state,
    versions,
)
from gpuaas_app_slurm.workload.footprint import SLURM

POLL_S = 0.5


@dataclass(frozen=True)
class Move:
    """One change of the version of Slurm."""

    op: Operation
    settings: Settings
    inputs: config.Inputs
    """The inputs of the instance after it: they decide where packages come from."""
    version: str = ""
    """The version of the packages, if the source does not state it."""
    name: str = ""
    """Added to the names of steps, which must differ between a handler and its undo."""

    @property
    def controller(self) -> Member:
        return roles.controller_of(self.op.members)

    @property
    def machines(self) -> list[Member]:
        """One member of each machine."""
        return members.one_per_machine(self.op.members)

    def roles_on(self, member: Member) -> tuple[str, ...]:
        """Return the roles of the member's machine: they decide which packages it needs."""
        return roles.roles_on(self.op.members, member.allocation_id)

    def step(self, name: str) -> str:
        return f"{name}{self.name}"

    async def source(self, member: Member, machine: Machine) -> packages.Source:
        return await package_sources.of(self.op, member, machine, SLURM, self.inputs.packages)


def refuse_never_joined(op: Operation) -> None:
    """Refuse while a member is no node of the cluster: there is nothing to move, and its machine would get a Slurm that
    no other operation has recorded. Nothing was changed yet."""
    never = [member for member in roles.nodes_of(op.members) if not member.adapter_detail.get("node_name")]
    if never:
        names = ", ".join(sorted(member.node_name for member in never))
        raise Refused(
            f"{names} never joined the cluster",
            fix=f"finish its add, or remove it: gpuaas member remove {op.instance.name} {never[0].node_name}",
        )


async def plan(move: Move) -> dict[str, package_changes.Change]:
    """Return what would be installed on each machine, by the name of its node. Refuse what cannot work: nothing was
    changed yet."""

    async def of(member: Member, machine: Machine) -> package_changes.Change:
        source = await move.source(member, machine)
        return await package_changes.plan(machine, SLURM, move.roles_on(member), source, move.version)

    async def asked(member: Member) -> package_changes.Change:
        try:
            return await move.op.on(member, lambda machine: of(member, machine), patience_s=move.settings.reach_s)
        except MachineAway as error:
            raise Refused(str(error), fix="start the machine, or remove the member, then request it again") from error
        except Refused:
            raise
        except Permanent as error:
            raise Refused(str(error), fix=error.fix) from error

    changes = await asyncio.gather(*(asked(member) for member in move.machines))
    return {member.node_name: change for member, change in zip(move.machines, changes, strict=True)}


async def install(move: Move, member: Member) -> None:
    """Install the packages on the member's machine. slurmd is stopped afterwards; jobs continue."""

    async def work(machine: Machine) -> None:
        await move.op.say(f"installing packages on {machine.hostname}")
        source = await move.source(member, machine)

        async def stop_slurmd() -> None:
            # An old slurmd with libraries of the new one cannot run the epilog of a job that ends now, and Slurm would
            # drain the node. Jobs continue without slurmd.
            await machine.run("systemctl", "stop", "slurmd", check=False)

        instance_id = move.op.instance.instance_id
        roles_here = move.roles_on(member)
        await package_changes.install(machine, SLURM, instance_id, roles_here, source, move.version, before=stop_slurmd)

    await members.on_machine(move.op, member, "install packages", work, patience_s=move.settings.reach_s)


async def start_accounting(move: Move, machine: Machine) -> None:
    """Start slurmdbd. A newer one converts the database first."""
    await move.op.say("starting slurmdbd")
    await accounting.start_converted(machine, move.settings, move.op.say)


async def start_scheduler(move: Move, machine: Machine) -> None:
    await move.op.say("starting slurmctld")
    await machine.run("systemctl", "reset-failed", "slurmctld", check=False)
    await machine.run("systemctl", "restart", "slurmctld", check=False)
    await slurm.wait_for_controller(machine, move.settings, move.op.say)
    await rest.start(machine, move.settings, move.op.say)


async def restart_node(move: Move, member: Member, head: Machine) -> None:
    """Restart slurmd, and wait until its node has registered with the version of the packages. Jobs continue."""

    async def work(machine: Machine) -> None:
        package = SLURM.software.version(await packages.software_versions(machine, SLURM))
        await move.op.say(f"restarting slurmd on {machine.hostname}")
        await machine.run("systemctl", "reset-failed", "slurmd", check=False)
        await repairs.end_left(machine)
        limit_s = move.settings.slurmd_start_s
        started = await machine.run("systemctl", "restart", "slurmd", check=False, timeout_s=limit_s)
        if started.exit_status != 0:
            raise await slurm.did_not_start(machine, "slurmd", started.stderr)

        async def registered() -> Check:
            return versions.node_registered(machine.hostname, await nodes.read(head, machine.hostname), package)

        check = await checks.until(registered, within_s=move.settings.join_s, every_s=POLL_S, show=move.op.say)
        if not check.ok:
            raise Permanent(
                check.reason, fix=f"gpuaas ssh {machine.hostname} --root -- sudo journalctl -n 50 -u slurmd"
            )

    await members.on_machine(move.op, member, "restart slurmd", work, patience_s=move.settings.reach_s)


async def move_node(move: Move, member: Member, head: Machine) -> None:
    """Install, restart and test one worker or login machine, and report the versions that it has now."""
    op = move.op
    await op.step(move.step("install packages"), install, move, member, member=member)
    await op.step(move.step("restart slurmd"), restart_node, move, member, head, member=member)
    if member.component_key == roles.LOGIN:
        await login.report_ready(op, member, move.inputs.users[0])
        return
    name = await reports.node_name(op, member)
    node = await nodes.read(head, name)
    if node is not None and "DRAIN" in node.flags and not state.drained_by_operation(node, op.id):
        if op.status_before(member) not in ("drained", "draining"):
            raise Permanent(
                f"Slurm has drained {name}: {node.reason}",
                fix=f"if {name} can take jobs: gpuaas ssh {head.hostname} --root -- sudo scontrol update "
                f"nodename={name} state=resume; then: gpuaas op retry {op.id} --reason TEXT",
            )
        await reports.worker(op, member, head, "drained")
        return
    await nodes.undrain(head, name, op.id)  # by an attempt before, in which this member failed
    await op.step(move.step("a job runs"), _test, move, head, name, member=member)
    await reports.worker(op, member, head, "ready")


async def _test(move: Move, head: Machine, name: str) -> None:
    """Run a job on the node, beside those of people. It may wait for these, but it must not fail. While the queue is
    held, only root can run it. A retry of one member comes after that, when people run jobs again."""
    settings, is_busy = move.settings, await nodes.runs_jobs_of_people(head, name)
    limit_s = min(settings.busy_job_s, settings.first_job_s) if is_busy else settings.first_job_s
    user, partition = (None, choices.UPGRADE) if await hold.is_held(head) else (move.inputs.users[0], "")
    await move.op.say(f"{user or 'root'} runs srun on {name}")
    check = await nodes.canary(head, user, (name,), limit_s, partition)
    if check.ok:
        await move.op.until(lambda: bring_up.is_first_job_over(nodes.Looks(head), name), within_s=settings.first_job_s)
    elif not (is_busy and nodes.LATE in check.reason):
        where = f"-p {partition} -w {name}" if partition else f"-w {name}"
        raise Permanent(check.reason, fix=f"sinfo -N -l; srun {where} hostname")


async def clean_up(move: Move) -> None:
    """Delete the unpacked packages everywhere, and the bundle of a version to which the cluster cannot return. A
    machine that does not answer keeps them until the next change."""

    async def remove(member: Member) -> None:
        try:
            await move.op.on(
                member, lambda machine: machine.run_all(bundle.remove(SLURM)), patience_s=move.settings.reach_leaving_s
            )
            await members.drop_left(move.op, member)
        except MachineAway as error:
            await move.op.say(str(error))

    await asyncio.gather(*(remove(member) for member in move.machines))
