"""Look at a cluster between operations: read it, decide what it means, report it, request repairs. See `plan`."""

import asyncio
from importlib import resources

import structlog
from gpuaas_sdk.controller import Member, PermissionDenied, PosixPerson, Reconciliation, ReportedCondition
from gpuaas_sdk.failures import Permanent, Temporary
from gpuaas_sdk.machine import CommandFailed, MachineUnreachable

from gpuaas_app_slurm import plan, roles
from gpuaas_app_slurm.reports import people_of
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import config, observed
from gpuaas_app_slurm.workload.observed import Closer

log = structlog.get_logger()


async def look(cluster: Reconciliation, settings: Settings) -> None:
    """Look at the cluster once. The watch on the machine of slurmctld runs on; it wakes the next look by a change."""
    controller = roles.controller_of(cluster.members)
    if not plan.is_judged(controller):
        return
    name = cluster.instance.name
    try:
        seen = await read(cluster, controller, settings)
    except (MachineUnreachable, Temporary, CommandFailed) as error:
        decision = plan.blind(name, cluster.members, controller, str(error))
    else:
        closer = await _closer_looks(cluster, plan.to_look_at(cluster.members, seen), settings)
        decision = plan.decide(name, cluster.members, seen, closer, people_of(await _people(cluster)))
    await _act(cluster, decision)


async def read(cluster: Reconciliation, controller: Member, settings: Settings) -> observed.Observed:
    """Return what the watch of the cluster shows. It costs no command while the watch runs."""
    cluster_name = config.parse_inputs(cluster.inputs).cluster_name
    line = await cluster.sample(controller, _watch_program(), cluster_name, silent_s=settings.watch_silent_s)
    return observed.parse(line, cluster_name)


async def _people(cluster: Reconciliation) -> tuple[PosixPerson, ...]:
    try:
        return await cluster.people()
    except PermissionDenied as error:
        # The service account was made before the app needed this permission. The cluster works without.
        log.warning("people.not_readable", error=error.message, fix=error.fix)
        return ()


async def _closer_looks(cluster: Reconciliation, members: tuple[Member, ...], settings: Settings) -> dict[str, Closer]:
    looks = await asyncio.gather(*(_closer_look(cluster, member, settings) for member in members))
    return {member.member_id: closer for member, closer in zip(members, looks, strict=True)}


async def _closer_look(cluster: Reconciliation, member: Member, settings: Settings) -> Closer:
    """Ask the machine itself. If it does not answer in time, that is the answer."""
    try:
        async with asyncio.timeout(settings.closer_look_s):
            machine = await cluster.machine(member)
            ran = await machine.script(observed.CLOSER_LOOK, timeout_s=settings.closer_look_s)
            return observed.parse_closer(ran.stdout)
    except TimeoutError:
        return Closer(unreachable=f"no answer within {settings.closer_look_s:g} s")
    except (MachineUnreachable, Temporary, Permanent, CommandFailed, ValueError) as error:
        return Closer(unreachable=str(error))


async def _act(cluster: Reconciliation, decision: plan.Decision) -> None:
    members = {member.member_id: member for member in cluster.members}
    await cluster.report(
        conditions=[_condition(condition) for condition in decision.conditions],
        members=[
            cluster.seen(
                members[verdict.member_id],
                verdict.status,
                reason=_reason(cluster, members[verdict.member_id], verdict),
                detail=verdict.detail,
                version=verdict.version,
            )
            for verdict in decision.verdicts
        ],
    )
    for verdict in decision.verdicts:
        if verdict.repair:
            await cluster.request("repair", [members[verdict.member_id]], verdict.repair)


def _reason(cluster: Reconciliation, member: Member, verdict: plan.Verdict) -> str:
    """Return the reason, and whether the app has given up repairing the member by itself for a while."""
    used = cluster.refusal("repair", [member]) if verdict.repair else None
    return f"{verdict.reason} Not repaired by the app: {used.message}" if used else verdict.reason


def _condition(condition: plan.Condition) -> ReportedCondition:
    return ReportedCondition(
        type=condition.type,
        status="true" if condition.ok else "false",
        reason=condition.reason,
        message=condition.message[:1000],
    )


def _watch_program() -> str:
    return resources.files("gpuaas_app_slurm.workload").joinpath("watch_program.py").read_text()
