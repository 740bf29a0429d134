"""The handlers of replace for the controller: slurmctld, slurmdbd and the database move to another machine.

Batch jobs continue on the workers. Until Slurm is taken off the old machine, everything can return there, together with
what has happened on the new one. Decision 0049 gives the order and the reasons."""

import asyncio
import dataclasses
import datetime
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import msgspec
from gpuaas_sdk.controller import (
    Evidence,
    MachineAway,
    Member,
    Operation,
    Permanent,
    PermissionDenied,
    Refused,
    Temporary,
    members,
    package_sources,
)
from gpuaas_sdk.installs import packages
from gpuaas_sdk.installs import undo as removal
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm import (
    bring_up,
    details,
    move_checks,
    reports,
    roles,
    take_down,
    user_accounts,
)
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import (
    cluster,
    config,
    home,
    keys,
    moves,
    nodes,
    repairs,
    rest,
    slurm,
    state,
    users,
)
from gpuaas_app_slurm.workload.footprint import SLURM
from gpuaas_app_slurm.workload.removal_acts import SlurmActs

Result = TypeVar("Result")
Work = Callable[[Machine], Awaitable[Result]]


@dataclass(frozen=True)
class Move:
    """What every part of one move needs."""

    op: Operation
    settings: Settings
    member: Member
    """The member of the controller on its old machine."""
    inputs: config.Inputs

    async def on_old(self, work: Work[Result]) -> Result:
        return await self.op.on(self.member, work, patience_s=self.settings.reach_s)

    async def on_new(self, work: Work[Result]) -> Result:
        spare = await self.op.at_replacement(self.member)
        return await self.op.on(spare, work, patience_s=self.settings.reach_s)


async def replace(op: Operation, settings: Settings) -> None:
    await op.each(op.to_do, lambda member: _replace(op, member, settings), raises=False)


async def undo(op: Operation, settings: Settings) -> None:
    """Return to the old machine, with the state of the new one if slurmctld has run there."""
    await op.each(op.to_do, lambda member: _undo(op, member, settings), raises=False)


async def _replace(op: Operation, member: Member, settings: Settings) -> None:
    move = Move(op, settings, member, config.parse_inputs(op.instance.inputs))
    if not op.has_moved(member) and op.now(member).status != "removing":
        await op.step("move to the new machine", _move, move, member=member)
        await members.begin_removal(op, member, await move.on_new(partial(_evidence, move)))
    await _finish(move)


async def _finish(move: Move, prefix: str = "") -> None:
    """Take Slurm off the old machine, and report the member as ready on the new one, which runs the cluster."""
    op, member, settings = move.op, move.member, move.settings
    if not op.has_moved(member):
        await op.step(f"{prefix}take Slurm off the old machine", _leave, move, member=member)
        # From here on, the member is on its new machine.
        await op.report(member, status="provisioning", reason=op.reason, detail=_detail(op.now(member)))
    await op.advance(member, "joining")
    await op.on(op.now(member), moves.forget, patience_s=settings.reach_s)
    await reports.ready_controller(op, op.now(member), move.inputs)
    await reports.publish_access(op)


async def _undo(op: Operation, member: Member, settings: Settings) -> None:
    """Return to the old machine. If Slurm is being taken off it, or was, it is too late, and the move is finished.
    After a failure, only a retry finishes it."""
    move = Move(op, settings, member, config.parse_inputs(op.instance.inputs))
    if op.now(member).status == "removing" or (op.has_moved(member) and op.now(member).status != "failed"):
        await _finish(move, take_down.FINISH)
        return
    if op.has_moved(member):
        raise Permanent(
            f"{member.node_name} has already left its old machine", fix=f"gpuaas op retry {op.id} --reason 'finish it'"
        )
    members.require_intact(op, member)
    await op.step("return to the old machine", _give_back, move, member=member)
    if op.now(member).status != op.status_before(member):
        await reports.ready_controller(op, member, move.inputs)
    await reports.publish_access(op)


async def _move(move: Move) -> None:
    """Move the daemons and their data. If that fails, the old machine continues, and the new one is cleaned."""
    op, member = move.op, move.member
    await _require_old(move)
    begun = await _begun(move)
    try:
        if await _returns(move):
            raise Refused("an earlier attempt failed, and its return did not finish", fix="request the replace again")
        if begun is None:
            spare = await op.at_replacement(member)
            await move_checks.require_movable(op, member, spare, move.settings)
            # Files of an earlier move may be left. They would count as those of this one.
            await move.on_old(moves.forget)
            await move.on_new(moves.forget)
        await _carry_over(move)
    except Permanent as error:
        left = await _go_back(move, error)
        raise Refused(
            f"the controller stays on {member.node_name}: {error}{left}", fix=error.fix or "choose another machine"
        ) from error


async def _begun(move: Move) -> moves.Begun | None:
    """Return where the move goes if it has begun, and note that this operation continues it. Refuse another machine."""
    begun = await move.on_old(moves.begun)
    if begun is None:
        return None
    if begun.allocation_id != move.op.replacement(move.member):
        name = move.member.node_name
        raise Refused(
            f"the move of the controller from {name} to {begun.node_name} did not end. {begun.node_name} may have the "
            "newest queue and accounting and run slurmctld: do not release it",
            fix=f"gpuaas member replace {move.op.instance.name} {name} --with {begun.allocation_id} --reason TEXT",
        )
    continued = msgspec.structs.replace(begun, operation_id=move.op.id)
    await move.on_old(lambda old: moves.begin(old, continued))
    return continued


async def _require_old(move: Move) -> None:
    """Refuse if the old machine does not answer, unless its data are on the new one already."""
    op, member, limit_s = move.op, move.member, move.settings.reach_leaving_s
    if await op.answers(member, patience_s=limit_s):
        return
    spare = await op.at_replacement(member)
    if await op.answers(spare, patience_s=limit_s) and await move.on_new(moves.is_unpacked):
        raise Permanent(
            f"the move has begun, and the old machine {member.node_name} ({member.address}) does not answer. "
            f"{_keep(spare)}",
            fix=f"start it; then: gpuaas op retry {op.id} --reason TEXT",
        )
    raise move_checks.dead(op, member)


async def _carry_over(move: Move) -> None:
    """Prepare the new machine, stop the old one, copy, start the new one, point the nodes to it, run a job."""
    op = move.op
    original = await move.on_old(partial(_original, move))
    await move.on_new(partial(_prepare, move, original))
    begun = moves.Begun(op.replacement(move.member), (await move.on_new(_itself)).hostname, op.id)
    packed = await move.on_old(partial(_pack, move, begun))
    if not await move.on_new(moves.is_unpacked):
        await move.on_new(partial(_write_users, move, await move.on_old(partial(user_accounts.of_cluster, op))))
        await _copy(move, packed, move.on_old, move.on_new)
    await move.on_old(lambda old: moves.mark(old, "started"))
    await move.on_new(partial(_start, move))
    await _point_nodes(move, await move.on_new(_itself))
    await _prove(move, await move.on_new(_itself))
    await op.say("the cluster runs on the new machine")


async def _original(move: Move, old: Machine) -> tuple[moves.Original, tuple[users.User, ...], home.Home]:
    text = (await old.get(config.SLURM_CONF) or b"").decode()
    original = moves.Original(
        config.present(text),
        await keys.read(old, move.inputs.auth),
        SLURM.software.version(await packages.software_versions(old, SLURM)),
    )
    homes = await home.in_use(old, move.inputs.home, old.address)
    return original, await user_accounts.of_cluster(move.op, old), homes


async def _prepare(
    move: Move, known: tuple[moves.Original, tuple[users.User, ...], home.Home], machine: Machine
) -> None:
    """Install Slurm on the new machine, with the key and the configuration of the cluster. Nothing is started."""
    op, (original, accounts, homes) = move.op, known
    spare = await op.at_replacement(move.member)
    await members.take_over(op, spare, machine, SLURM, SlurmActs())
    source = await package_sources.of(op, spare, machine, SLURM, move.inputs.packages)
    roles_here = (roles.CONTROLLER,)
    more = rest.packages(move.inputs.rest_api, roles_here)
    await slurm.install(machine, op.instance.instance_id, roles_here, accounts, op.say, homes, source, more=more)
    version = SLURM.software.version(await packages.software_versions(machine, SLURM))
    if version != original.version:
        raise Refused(
            f"the new machine gets Slurm {version}, and the cluster has {original.version}",
            fix=f"move the cluster to that version first: gpuaas upgrade {op.instance.name}",
        )
    placed = msgspec.structs.replace(
        original.present, controller_hostname=machine.hostname, controller_address=machine.address
    )
    await moves.prepare(machine, original, cluster.changed(op.instance.instance_id, move.inputs, placed))


async def _pack(move: Move, begun: moves.Begun, old: Machine) -> moves.Packed:
    """Close the partitions, so that no command begins to wait for a job. Then stop and pack."""
    await moves.begin(old, begun)
    if (await slurm.controller_answers(old)).ok:
        await reports.set_partitions(move.op, old, "inactive")
        await nodes.cancel_canaries(old)
        if move.op.force:
            await move_checks.end_interactive(move.op, old, move.settings)
        else:
            await move_checks.refuse_interactive(move.op, old)
    await move.op.say(f"stopping slurmctld and slurmdbd on {old.hostname}; batch jobs continue")
    return await moves.pack(old)


async def _write_users(move: Move, accounts: tuple[users.User, ...], machine: Machine) -> None:
    """Write the users as they are now. Users may have changed since the new machine was prepared, and from now on none
    does: `users.add` and `users.remove` wait for slurmctld."""
    await users.ensure_noted(machine, move.op.instance.instance_id, accounts, restores=True)


On = Callable[[Work[Result]], Awaitable[Result]]


async def _copy(move: Move, packed: moves.Packed, source: On[bytes], target: On[None]) -> None:
    await target(moves.drop_parts)
    for number, name in enumerate(packed.parts, start=1):
        await move.op.say(f"copying state and accounting: part {number} of {len(packed.parts)}")
        content = await source(partial(_part, name))
        await target(partial(_put_part, name, content))
    await target(lambda machine: moves.unpack(machine, packed))


async def _part(name: str, machine: Machine) -> bytes:
    return await moves.part(machine, name)


async def _put_part(name: str, content: bytes, machine: Machine) -> None:
    await moves.put_part(machine, name, content)


async def _start(move: Move, machine: Machine) -> None:
    """Start the daemons; the people of the project get their places, as after each change of the machine."""
    op, inputs, settings = move.op, move.inputs, move.settings
    await moves.start(machine, inputs.cluster_name, inputs.users, settings, op.say)
    await reports.sync_people(op, machine, inputs, settings)


async def _point_nodes(move: Move, head: Machine) -> None:
    """Point every node to slurmctld on this machine, and wait until it has registered there."""
    machines = members.one_per_machine(roles.nodes_of(move.op.members))
    await asyncio.gather(*(_point(move, member, head) for member in machines))


async def _point(move: Move, member: Member, head: Machine) -> None:
    """A machine that does not answer, by force or in a return, and a member that failed before are left to a repair."""
    op, roles_here = move.op, roles.roles_on(move.op.members, member.allocation_id)

    async def work(machine: Machine) -> None:
        await repairs.node(machine, head, roles_here, move.inputs.auth, move.settings, op.say)

    try:
        await op.on(member, work, patience_s=move.settings.reach_leaving_s)
    except Permanent as error:
        is_left = isinstance(error, MachineAway) and (op.force or await _returns(move))
        if not is_left and member.status != "failed":
            raise
        await op.say(f"a repair of {member.node_name} will point it to {head.hostname}: {error}")


async def _returns(move: Move) -> bool:
    return await move.on_old(lambda old: moves.is_marked(old, "returning"))


async def _prove(move: Move, head: Machine) -> None:
    """Run a job on one worker, an idle one if there is one; a busy one runs those of people, so its job may wait.
    Without a worker that takes jobs there is no proof."""
    able = [node for node in await nodes.read_all(head) if state.node_takes_work(node.name, node).ok]
    workers = {await reports.node_name(move.op, member) for member in roles.workers_of(move.op.members)}
    idle_first = sorted(
        (node for node in able if node.name in workers), key=lambda node: ("IDLE" not in node.flags, node.name)
    )
    if not idle_first:
        return
    chosen, settings = idle_first[0], move.settings
    if "IDLE" not in chosen.flags:
        settings = dataclasses.replace(settings, first_job_s=min(settings.busy_job_s, settings.first_job_s))
    await bring_up.run_first_job(move.op, head, chosen.name, move.inputs.users[0], settings)
    await nodes.cancel_canaries(head)


async def _go_back(move: Move, error: Permanent) -> str:
    """Return after a failure. Return what could not be done."""
    try:
        return await _return(move)
    except Permanent as second:
        spare = await move.op.at_replacement(move.member)
        raise Permanent(
            f"{error}. The return to {move.member.node_name} failed too: {second}. {_keep(spare)}",
            fix=f"{second.fix or 'start both machines'}; then: gpuaas op retry {move.op.id} --reason TEXT",
        ) from error


def _keep(spare: Member) -> str:
    return (
        f"The new machine {spare.node_name} ({spare.address}) may have the newest queue and accounting: do not release "
        f"{spare.node_name}"
    )


async def _give_back(move: Move) -> None:
    await _begun(move)
    left = await _return(move)
    if left:
        raise Permanent(f"the controller runs on {move.member.node_name} again{left}", fix="start the new machine")


async def _return(move: Move) -> str:
    """Have the old machine run the cluster, with the newest state, and clean the new one. Return what is left there."""
    if await move.on_old(moves.begun):
        await move.on_old(lambda old: moves.mark(old, "returning"))
        if await move.on_old(lambda old: moves.is_marked(old, "started")) and not await move.on_old(moves.is_unpacked):
            await move.op.say("stopping slurmctld on the new machine, and copying its state back")
            await _copy(move, await move.on_new(moves.pack), move.on_new, move.on_old)
        await move.on_old(partial(_start, move))
        await move.on_old(nodes.cancel_canaries)
        await _point_nodes(move, await move.on_old(_itself))
    left = await _clean(move)
    await move.on_old(moves.forget)
    return left


async def _clean(move: Move) -> str:
    """Take Slurm off the new machine. Return what could not be done."""
    op = move.op
    try:
        spare = await op.at_replacement(move.member)
        await op.on(
            spare,
            lambda machine: members.remove_role(op, spare, machine, SLURM, SlurmActs()),
            patience_s=move.settings.reach_leaving_s,
        )
    except (Temporary, Permanent) as error:
        if isinstance(error.__cause__, PermissionDenied):
            return ""  # Another instance has the machine by now, and has taken off what it found there.
        return f". What was done on the new machine is still there: {error}"
    return ""


async def _evidence(move: Move, head: Machine) -> Evidence:
    """Return evidence that the old machine does nothing for the cluster: slurmctld runs here."""
    observed_at = datetime.datetime.now(datetime.UTC)
    check = await slurm.controller_answers(head)
    if not check.ok:
        raise Temporary(check.reason)
    detail = f"slurmctld runs on {head.hostname}, and every job with it"
    return Evidence(state="idle", source="scontrol ping", observed_at=observed_at, detail=detail)


async def _leave(move: Move) -> None:
    """Take Slurm off the old machine. If it does not answer any more, record what is left: the cluster needs it no
    longer, and its daemons are disabled."""
    op, member = move.op, move.member
    try:
        await take_down.uninstall_member(op, member, move.settings)
    except MachineAway as error:
        left = removal.left_behind(SLURM, op.instance.instance_id, [member.component_key])
        await op.report(
            member,
            detail=op.now(member).adapter_detail | {"left_behind": left},
            left=[members.left_on(member, SLURM, f"{error}; {left}")],
        )


def _detail(member: Member) -> dict[str, object]:
    """Return the detail of the member on its new machine: until when usage was reported, and what is left behind."""
    left = {name: value for name, value in member.adapter_detail.items() if name == "left_behind"}
    kept = {name: value for name, value in member.adapter_detail.items() if name == details.USAGE_UNTIL}
    return kept | {details.REPLACED: {"node_name": member.node_name} | left}


async def _itself(machine: Machine) -> Machine:
    return machine
