"""Look at a cluster between operations: read it, decide what it means, report it, request repairs. See `plan`."""

import asyncio
import functools
import time
from importlib import resources

import structlog
from gpuaas_sdk.controller import Member, PermissionDenied, PosixPerson, Reconciliation, ReportedCondition
from gpuaas_sdk.failures import Permanent, Temporary
from gpuaas_sdk.machine import CommandFailed, MachineUnreachable

from gpuaas_app_slurm import gauges, lost_machines, plan, roles, unknown_nodes, usage
from gpuaas_app_slurm.reports import people_of
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import config, observed, watch_program
from gpuaas_app_slurm.workload.observed import DirectLook
from gpuaas_app_slurm.workload.people import Person

log = structlog.get_logger()

MESSAGE_MAX = 1000
"""The longest message of a condition."""
_COMPARED = "compared"
"""Name of the nodes that belong to no member, and of the members with which they were compared."""
_SILENCE, _NEXT_REPLACE = "silence", "next replace"
"""Names of the silence of machines, and of the time before which no replace is requested."""
ASK_AGAIN_S = 60.0
"""How long the app waits after the platform refused something: a replace, because there is no spare, or the people of
the project, because its account lacks the permission."""
_NEXT_PEOPLE = "next people"
"""Name of the time before which the people are not asked for again."""
_SETTLED = "settled"
"""Name of the facts that were judged last and asked for nothing."""


async def look(cluster: Reconciliation, settings: Settings) -> None:
    """Look at the cluster once. The watch on the machine of slurmctld runs on; it wakes the next look by a change."""
    controller = roles.controller_of(cluster.members)
    if cluster.instance.status == "stopped":
        # People stopped the cluster. That nothing answers is no fault, and a repair would start it.
        cluster.measured(gauges.unknown())
        await _act(cluster, plan.stopped(cluster.instance.name))
        return
    if not plan.is_judged(controller):
        return
    try:
        line = await _watched(cluster, controller, settings)
    except (MachineUnreachable, Temporary, CommandFailed) as error:
        cluster.measured(gauges.unknown())
        decided = plan.unwatched if isinstance(error, CommandFailed) else plan.head_silent
        await _act(cluster, decided(cluster.instance.name, cluster.members, controller, str(error)))
    else:
        await _judge(cluster, line, _people_here(cluster, await _people(cluster, settings)), settings)
        if cluster.measures:
            cluster.measured(gauges.of(observed.parse(line, _name(cluster)), observed.parse_measured(line)))
        await usage.look(cluster, line)


async def _watched(cluster: Reconciliation, controller: Member, settings: Settings) -> str:
    """Return what the watch of the cluster printed last. It costs no command while the watch runs."""
    words = (_name(cluster), *((watch_program.MEASURE,) if cluster.measures else ()))
    return await cluster.sample(controller, _watch_program(), *words, silent_s=settings.watch_silent_s)


async def _judge(cluster: Reconciliation, line: str, people: tuple[Person, ...], settings: Settings) -> None:
    """Decide and report what the line means. A line that asked for nothing is not judged again until something changes:
    most looks at most clusters end here."""
    revisions = tuple((member.member_id, member.revision) for member in cluster.members)
    shown = observed.without_measured(line) if cluster.measures else line
    facts = (shown, people, cluster.instance.revision, revisions)
    if cluster.kept.get(_SETTLED) == facts:
        return
    seen, turn = observed.parse(line, _name(cluster)), int(time.monotonic() / settings.health_every_s)
    unwell = plan.to_look_at(cluster.members, seen, turn)
    clock: tuple[int, float] | None = None
    direct: dict[str, DirectLook] = {}
    if unwell or seen.clocks_differ:
        controller = roles.controller_of(cluster.members)
        clock, direct = await _direct_looks(cluster, controller, unwell, settings)
    head_off_s = None if clock is None else observed.clock_off_s(*clock)
    owners = await _owners(cluster, seen)
    decision = plan.decide(cluster.instance.name, cluster.members, seen, direct, people, owners, head_off_s)
    await _act(cluster, decision)
    await _replace_lost(cluster, decision, seen, settings)
    is_clear = not unwell and owners is not None and (clock is not None or not seen.clocks_differ)
    if is_clear and not any(verdict.repair for verdict in decision.verdicts):
        cluster.kept[_SETTLED] = facts


async def _replace_lost(
    cluster: Reconciliation, decision: plan.Decision, seen: observed.Observed, settings: Settings
) -> None:
    """Request a replace of the only machine that is silent for as long as people allow; at most once in that time."""
    after_minutes = config.parse_inputs(cluster.inputs).replace_lost_after_minutes
    now_s = settings.clock()
    before = cluster.kept.get(_SILENCE, lost_machines.Silence())
    judged = {member.member_id for member in cluster.members if plan.is_judged(member)}
    silent = lost_machines.silence(before, decision.verdicts, judged, now_s)
    cluster.kept[_SILENCE] = silent
    unclear = plan.unclear(cluster.members, seen, [verdict.member_id for verdict in decision.verdicts])
    member = lost_machines.to_replace(cluster.members, silent, unclear, after_minutes)
    if member is None or not after_minutes or now_s < cluster.kept.get(_NEXT_REPLACE, 0.0):
        return
    asked = await cluster.request("replace", [member], lost_machines.reason(member.node_name, after_minutes))
    pause_s = after_minutes * 60 if asked.operation else ASK_AGAIN_S
    cluster.kept[_NEXT_REPLACE] = now_s + pause_s


async def _owners(cluster: Reconciliation, seen: observed.Observed) -> tuple[Member, ...] | None:
    """Return the members with which the nodes of Slurm are compared. Before a node is reported that belongs to none of
    them, the platform is asked whether an operation runs that may be joining it. None: one runs."""
    text = plan.unknown(cluster.instance.name, cluster.members, seen)
    if not text:
        return cluster.members
    compared: tuple[str, tuple[Member, ...]] = cluster.kept.get(_COMPARED, ("", ()))
    if compared[0] == text and not plan.to_close(compared[1], seen):
        return compared[1]
    owners = await cluster.members_at_rest(unknown_nodes.JOINING)
    cluster.kept[_COMPARED] = ("", ()) if owners is None else (text, owners)
    return owners


def _name(cluster: Reconciliation) -> str:
    return config.parse_inputs(cluster.inputs).cluster_name


def _people_here(cluster: Reconciliation, people: tuple[PosixPerson, ...]) -> tuple[Person, ...]:
    """Return the people of the project without those whose login belongs to a user of the form, as a repair does."""
    names = cluster.inputs.get("users", ())
    return tuple(person for person in people_of(people) if person.login not in names)


async def _people(cluster: Reconciliation, settings: Settings) -> tuple[PosixPerson, ...]:
    """Return the people of the project; no one if the platform refuses to list them. Looks are seconds apart, so a
    refusal counts for a while."""
    next_s = cluster.kept.get(_NEXT_PEOPLE)
    if next_s is not None and settings.clock() < next_s:
        return ()
    try:
        return await cluster.people()
    except PermissionDenied as error:
        # The service account was made before the app needed this permission. The cluster works without.
        log.warning("people.not_readable", error=error.message, fix=error.fix, retry_in_s=ASK_AGAIN_S)
        cluster.kept[_NEXT_PEOPLE] = settings.clock() + ASK_AGAIN_S
        return ()


async def _direct_looks(
    cluster: Reconciliation, controller: Member, members: tuple[Member, ...], settings: Settings
) -> tuple[tuple[int, float] | None, dict[str, DirectLook]]:
    """Return the time on the machine of slurmctld and here, and member id -> the look at its machine, at that time."""
    asked = asyncio.gather(*(_direct_look(cluster, member, settings) for member in members))
    clock, looks = await asyncio.gather(_clock(cluster, controller, settings), asked)
    compared = [observed.compared(look, clock[0] if clock else None) for look in looks]
    return clock, {member.member_id: look for member, look in zip(members, compared, strict=True)}


async def _clock(cluster: Reconciliation, controller: Member, settings: Settings) -> tuple[int, float] | None:
    """Return the time on the machine of slurmctld and the time here, to compare the clocks of others with them."""
    try:
        async with asyncio.timeout(settings.direct_look_s):
            machine = await cluster.machine(controller)
            shown = (await machine.script(observed.CLOCK, timeout_s=settings.direct_look_s)).stdout
            return int(shown), time.time()
    except (TimeoutError, MachineUnreachable, Temporary, Permanent, CommandFailed, ValueError):
        return None


async def _direct_look(cluster: Reconciliation, member: Member, settings: Settings) -> DirectLook:
    """Ask the machine itself. If it does not answer in time, that is the answer."""
    try:
        async with asyncio.timeout(settings.direct_look_s):
            machine = await cluster.machine(member)
            ran = await machine.script(observed.DIRECT_LOOK, timeout_s=settings.direct_look_s)
            return observed.parse_direct(ran.stdout)
    except TimeoutError:
        return DirectLook(unreachable=f"no answer within {settings.direct_look_s:g} s")
    except (MachineUnreachable, Temporary, Permanent, CommandFailed, ValueError) as error:
        return DirectLook(unreachable=str(error))


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
    """Return the reason and the fix, and whether the app repairs the member by itself or has given up for a while."""
    used = cluster.refusal("repair", [member]) if verdict.repair else None
    return plan.sentence(verdict, given_up=used.message if used else "")


def _condition(condition: plan.Condition) -> ReportedCondition:
    return ReportedCondition(
        type=condition.type,
        status="unknown" if condition.ok is None else "true" if condition.ok else "false",
        reason=condition.reason,
        message=condition.message[:MESSAGE_MAX],
    )


@functools.cache
def _watch_program() -> str:
    return resources.files("gpuaas_app_slurm.workload").joinpath("watch_program.py").read_text()
