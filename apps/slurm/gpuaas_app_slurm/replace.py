"""The handlers of replace: another machine joins the cluster and runs a first job, then the old one leaves.

Until the old machine begins to leave, the member works there and the replace can be undone. Decision 0044 describes
what a replaced member keeps."""

from functools import partial

from gpuaas_sdk.checks import Check
from gpuaas_sdk.controller import (
    Member,
    Operation,
    Permanent,
    PermissionDenied,
    Refused,
    Temporary,
    members,
    package_sources,
)
from gpuaas_sdk.installs import receipts
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm import (
    back_out,
    bring_up,
    details,
    homes_of_cluster,
    login,
    lost_machines,
    reports,
    roles,
    take_down,
    user_accounts,
)
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import config, containers, nodes, reporter, slurm, state
from gpuaas_app_slurm.workload.footprint import SLURM
from gpuaas_app_slurm.workload.removal_acts import SlurmActs


async def replace(op: Operation, settings: Settings) -> None:
    inputs, head = config.parse_inputs(op.instance.inputs), await reports.head(op)
    spares = [await op.at_replacement(member) for member in op.to_do if not op.has_moved(member)]
    roles.refuse_joining_shared_logins(spares, (*op.members, *spares), op.instance.name)
    present = [spare for spare in spares if await op.answers(spare, patience_s=settings.reach_s)]
    homes = await homes_of_cluster.checked(op, roles.controller_of(op.members), present, inputs)
    joining = bring_up.Joining(op, inputs, settings, homes, await user_accounts.of_cluster(op, head))
    await op.each(op.to_do, lambda member: _replace(joining, member, head), raises=False)
    await reports.publish_access(op)


async def undo(op: Operation, settings: Settings) -> None:
    """Let the old machines take jobs again, and take Slurm off the new ones after the jobs there have ended. A member
    that has begun to leave its old machine cannot return: its replace is finished."""
    head = await reports.head(op)
    await op.each(op.to_do, lambda member: _undo(op, member, head, settings), raises=False)
    await reports.publish_access(op)


async def _replace(joining: bring_up.Joining, member: Member, head: Machine) -> None:
    op, settings, user = joining.op, joining.settings, joining.inputs.users[0]
    if not op.has_moved(member):
        await _prepare(joining, member, head)
    await _finish(op, member, head, settings, user)


async def _finish(
    op: Operation, member: Member, head: Machine, settings: Settings, user: str, prefix: str = ""
) -> None:
    """Take the member off its old machine and report it as ready on the new one, which is prepared."""
    if not op.has_moved(member):
        left = await _leave(op, member, head, settings, prefix)
        # From here on, the member is on its new machine.
        await op.report(member, status="provisioning", reason=op.reason, detail={details.REPLACED: left})
    await op.advance(member, "joining")
    moved = op.now(member)
    # Users may have been removed while the new machine was no machine of the cluster yet.
    await user_accounts.give(op, moved, head, settings)
    kept = {details.REPLACED: moved.adapter_detail.get(details.REPLACED, {})}
    if member.component_key == roles.LOGIN:
        await login.report_ready(op, moved, user, **kept)
    else:
        await reports.ready_worker(op, moved, head, **kept)


async def _prepare(joining: bring_up.Joining, member: Member, head: Machine) -> None:
    """Bring up the new machine beside the old one. The first step decides only once: later it is too late to refuse."""
    op = joining.op
    if lost_machines.is_of_app(op.reason):
        await op.step("check that the machine is silent", _require_silent, op, member, joining.settings, member=member)
    if not op.force:
        check = partial(take_down.require_removable, op, member, head, joining.settings)
        await op.step("check the old machine", check, member=member)
    await op.step("bring up the new machine", _bring_up, joining, member, head, member=member)


async def _require_silent(op: Operation, member: Member, settings: Settings) -> None:
    """Refuse the app's own request if the machine answers again: force would cancel its jobs."""
    if await op.answers(member, patience_s=settings.reach_leaving_s):
        raise Refused(f"machine {member.node_name} ({member.address}) answers again", fix="no action is needed")


async def _bring_up(joining: bring_up.Joining, member: Member, head: Machine) -> None:
    """Have the new machine join and prove itself. If it does not, it is cleaned, and the member stays where it is."""
    op, settings = joining.op, joining.settings
    spare = await op.at_replacement(member)
    try:
        name = await op.on(spare, partial(_join_and_prove, joining, spare, head), patience_s=settings.reach_s)
    except Refused:
        raise
    except Permanent as error:
        left = await _clean(op, spare, head, settings)
        raise Refused(
            f"the new machine {spare.node_name} ({spare.address}) cannot take the place of {member.node_name}, which "
            f"stays: {error}{left}",
            fix=error.fix or "choose another machine",
        ) from error
    if op.now(member).status != "failed":  # A report would count as a failure of this operation.
        await op.report(member, detail=op.now(member).adapter_detail | {details.NEW_MACHINE: name})


async def _join_and_prove(joining: bring_up.Joining, spare: Member, head: Machine, machine: Machine) -> str:
    """Install, join and run a first job on the new machine. Return the name of its node."""
    op, inputs, settings, role = joining.op, joining.inputs, joining.settings, spare.component_key
    _refuse_same_name(op, machine)
    await members.take_over(op, spare, machine, SLURM, SlurmActs())
    source = await package_sources.of(op, spare, machine, SLURM, inputs.packages)
    instance_id, homes, address = op.instance.instance_id, joining.homes, joining.controller.address
    async with bring_up.beside(slurm.read_common(head, inputs, op.instance.app_version)) as common:
        more = bring_up.packages_of_options(inputs, (role,))
        prepared = await slurm.install(
            machine, instance_id, (role,), joining.users, op.say, homes, source, address, more
        )
        await containers.require(machine, inputs.containers, (role,), inputs.users[0])
    await slurm.join(machine, head, common.result(), settings, op.say, role, prepared)
    roles_here = roles.roles_on((*op.members, spare), spare.allocation_id)
    async with bring_up.beside(reporter.start(machine, roles_here, is_written=prepared is not None)):
        if role == roles.LOGIN:
            await login.require_scheduler(machine, inputs.users[0])
        else:
            await bring_up.run_first_job(op, head, machine.hostname, inputs.users[0], settings)
    return machine.hostname


def _refuse_same_name(op: Operation, machine: Machine) -> None:
    for other in roles.nodes_of(op.members):
        if machine.hostname == other.adapter_detail.get("node_name", other.node_name):
            raise Refused(
                f"{other.node_name} and the new machine {machine.address} have the host name {machine.hostname}; Slurm "
                "identifies a node by its host name",
                fix="hostnamectl set-hostname NAME on the new machine, or choose another one",
            )


async def _clean(op: Operation, spare: Member, head: Machine, settings: Settings) -> str:
    """Take Slurm off a new machine that did not prove itself. Return what could not be done."""
    try:
        await op.on(spare, partial(_take_off, op, spare, head), patience_s=settings.reach_leaving_s)
    except (Temporary, Permanent) as error:
        return f". What was done on the new machine is still there: {error}"
    return ""


async def _take_off(op: Operation, spare: Member, head: Machine, machine: Machine) -> None:
    receipt = await receipts.read(machine, SLURM, op.instance.instance_id)
    if receipt is None or spare.component_key not in receipt.roles:
        return  # Nothing was done there.
    await slurm.leave(machine, head, machine.hostname, state.drain_reason(op.id, "it does not join"))
    await members.remove_role(op, spare, machine, SLURM, SlurmActs())


async def _leave(op: Operation, member: Member, head: Machine, settings: Settings, prefix: str) -> dict[str, str]:
    """Take the member off its old machine. Return its node, and what could not be removed or was interrupted."""
    name = await reports.node_name(op, member)
    if op.force:
        left = (await take_down.leave_by_force(op, member, head, settings, prefix)).not_done
    else:
        await take_down.leave(op, member, head, settings, prefix)
        left = ""
    jobs = str(op.now(member).adapter_detail.get("interrupted_jobs", ""))
    return {"node_name": name} | ({"left_behind": left} if left else {}) | ({"interrupted_jobs": jobs} if jobs else {})


async def _undo(op: Operation, member: Member, head: Machine, settings: Settings) -> None:
    if op.has_moved(member) and op.now(member).status == "ready":
        return  # It was replaced before another one failed. Its old machine is free, and it stays where it is.
    if op.now(member).status in ("removing", "provisioning", "joining"):
        user = config.parse_inputs(op.instance.inputs).users[0]
        await _finish(op, member, head, settings, user, take_down.FINISH)
        return
    if op.has_moved(member):
        raise Permanent(
            f"{member.node_name} has already left its old machine", fix=f"gpuaas op retry {op.id} --reason 'finish it'"
        )
    members.require_intact(op, member)
    await back_out.lift_drain(op, member, head)
    await op.step("take Slurm off the new machine", _give_back, op, member, head, settings, member=member)
    detail = dict(op.now(member).adapter_detail)
    if detail.pop(details.NEW_MACHINE, None):
        await op.report(member, detail=detail)


async def _give_back(op: Operation, member: Member, head: Machine, settings: Settings) -> None:
    """Take Slurm off the new machine, after jobs that started there have ended."""
    name = str(op.now(member).adapter_detail.get(details.NEW_MACHINE, ""))
    try:
        spare = await op.at_replacement(member)
        name = name or await op.on(spare, _hostname, patience_s=settings.reach_leaving_s)
    except Permanent as error:
        if not isinstance(error.__cause__, PermissionDenied):
            raise
        # Another instance has the machine by now, and has taken off what it found there.
        await nodes.delete_by_force(head, name)
        return
    if name not in _names(op):
        await _wait_idle(op, member, head, name)
        await op.on(spare, partial(_take_off, op, spare, head), patience_s=settings.reach_leaving_s)


async def _wait_idle(op: Operation, member: Member, head: Machine, name: str) -> None:
    """Wait until no job runs on the new machine. One that never ran a job may have a node that does not work."""
    is_proven = details.NEW_MACHINE in op.now(member).adapter_detail

    async def is_idle() -> Check:
        if await nodes.read(head, name) is None:
            return Check(True)
        drained = await nodes.kept_drained(head, name, state.drain_reason(op.id, "the replace is undone"))
        look = await nodes.look(head, name)
        is_unused = not look.jobs and look.node is not None and not look.node.flags & state.WORKING
        return Check(True) if is_unused and not is_proven else drained

    await op.until(is_idle)


async def _hostname(machine: Machine) -> str:
    return machine.hostname


def _names(op: Operation) -> set[str]:
    """Return the names of the nodes of all members: a new machine must not have one of them."""
    return {str(member.adapter_detail.get("node_name", member.node_name)) for member in roles.nodes_of(op.members)}
