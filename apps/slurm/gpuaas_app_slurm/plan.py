"""Decide what a look at a cluster means: the status of each member, the conditions of the instance, and which members
to repair. Pure; `health` reports and requests it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar

import msgspec
from gpuaas_sdk.installs import removals

from gpuaas_app_slurm import checks, details, old_programs, roles, unknown_nodes
from gpuaas_app_slurm.checks import Finding
from gpuaas_app_slurm.workload import people as project_people
from gpuaas_app_slurm.workload import state
from gpuaas_app_slurm.workload.observed import BlockedJobs, DirectLook, Observed, Report
from gpuaas_app_slurm.workload.people import Person

CLOCKS_AGREE_S = 15
"""Clocks agree if they differ by less than this: each difference is known in tens of seconds."""
DIRECT_LOOKS_MAX = 4
"""At most so many machines are asked directly in one look, however many seem unwell."""
JUDGED = frozenset({"ready", "degraded", "draining", "drained", "failed"})
"""Statuses in which a member is not joining or leaving, so that a look can judge it."""

PEOPLE_CHANGED = "PeopleChanged: "
"""Begins the reason of a repair that only gives people their place in Slurm."""
NODES_KNOWN = "NodesKnown"
"""The condition that every node of Slurm belongs to a member."""

UNFINISHED_MOVE = "unfinished_move"
"""Where the controller has an unfinished move on record, for the time in which its machine does not report."""

Status = Literal["ready", "degraded", "draining", "drained", "failed"]


class Member(unknown_nodes.Member, Protocol):
    """What a decision needs of a member."""

    @property
    def member_id(self) -> str: ...


AnyMember = TypeVar("AnyMember", bound=Member)


class Verdict(msgspec.Struct, frozen=True):
    """What a look shows about one member."""

    member_id: str
    status: Status
    reason: str = ""
    fix: str = ""
    """What a person does; it ends with a command."""
    repair: str = ""
    """Why the app requests a repair; empty: it does not."""
    detail: dict[str, Any] | None = None
    version: str | None = None


class Condition(msgspec.Struct, frozen=True):
    type: str
    ok: bool | None
    """None: unknown."""
    reason: str = ""
    message: str = ""


class Decision(msgspec.Struct, frozen=True):
    conditions: tuple[Condition, ...]
    verdicts: tuple[Verdict, ...]


def unclear(members: Iterable[AnyMember], seen: Observed, judged: Iterable[str]) -> tuple[str, ...]:
    """Return the members that seem unwell and got no verdict: their machines were not asked in this look."""
    known = set(judged)
    nodes = [member for member in members if member.component_key != roles.CONTROLLER and is_judged(member)]
    return tuple(member.member_id for member in nodes if member.member_id not in known and _seems_unwell(member, seen))


def to_look_at(members: Iterable[AnyMember], seen: Observed, turn: int = 0) -> tuple[AnyMember, ...]:
    """Return the members whose machines must be asked directly, a bounded number of them.

    Those without a finding on record come first, and at least one of the others, in turns: `turn` is another number at
    each look. So machines that stay silent do not keep the app from asking one that failed after them."""
    if seen.nodes is None:
        return ()
    unwell = [
        member
        for member in members
        if member.component_key != roles.CONTROLLER and is_judged(member) and _seems_unwell(member, seen)
    ]
    news = [member for member in unwell if not member.adapter_detail.get("findings")]
    known = [member for member in unwell if member.adapter_detail.get("findings")]
    chosen = _share(news, DIRECT_LOOKS_MAX - bool(known), turn)
    return chosen + _share(known, DIRECT_LOOKS_MAX - len(chosen), turn)


def _share(members: Sequence[AnyMember], places: int, turn: int) -> tuple[AnyMember, ...]:
    """Return as many of the members as there are places. The next turn continues with the members after them."""
    first = turn * places % len(members) if members else 0
    return (*members[first:], *members[:first])[:places]


def decide(
    instance: str,
    members: Iterable[Member],
    seen: Observed,
    direct: Mapping[str, DirectLook],
    people: Sequence[Person] = (),
    owners: Iterable[Member] | None = None,
    head_off_s: int | None = None,
) -> Decision:
    """Return the decision after a look. `direct`: member id -> the look at its machine. `owners`: the members, also
    those that are gone, with which the nodes of Slurm are compared; None while an operation may be joining a node.
    `head_off_s`: how far the clock of slurmctld's machine is ahead of the app's; None: not known."""
    all_members = tuple(members)
    judged = [member for member in all_members if is_judged(member)]
    clocks = _wrong_clock(instance, all_members, seen, direct, head_off_s or 0)
    verdicts = [
        verdict
        for member in judged
        if (verdict := _verdict(_words(instance, member, all_members), member, seen, direct, clocks)) is not None
    ]
    verdicts = _renewing(judged, verdicts, seen)
    controllers = {member.member_id: member for member in judged if member.component_key == roles.CONTROLLER}
    return Decision(
        conditions(seen) + _nodes_known(instance, owners, seen),
        tuple(
            _closing(
                _with_people(_words(instance, controllers[verdict.member_id], all_members), verdict, seen, people),
                to_close(owners or (), seen),
            )
            if verdict.member_id in controllers
            else verdict
            for verdict in verdicts
        ),
    )


def unknown(instance: str, members: Iterable[Member], seen: Observed) -> str:
    """Return which nodes of Slurm belong to no member, and what to do; empty if there are none."""
    listed = tuple(members)
    head = next((member.node_name for member in listed if member.component_key == roles.CONTROLLER), "")
    nodes = unknown_nodes.of(listed, (seen.nodes or {}).values())
    return unknown_nodes.text(instance, head, nodes, unknown_nodes.given_up(listed))


def to_close(members: Iterable[Member], seen: Observed) -> tuple[str, ...]:
    """Return the nodes of machines that were given up, on which Slurm can start jobs."""
    return unknown_nodes.to_close(members, [node.as_node() for node in (seen.nodes or {}).values()])


def _nodes_known(instance: str, owners: Iterable[Member] | None, seen: Observed) -> tuple[Condition, ...]:
    if owners is None or seen.nodes is None:
        return ()
    message = unknown(instance, owners, seen)
    return (Condition(NODES_KNOWN, not message, unknown_nodes.CODE if message else "", message),)


def _renewing(members: Sequence[Member], verdicts: Sequence[Verdict], seen: Observed) -> list[Verdict]:
    """Have a few machines repaired that have the health programs of another release. Only members that need nothing
    else: a repair of a draining one would report it as drained."""
    sound = {verdict.member_id for verdict in verdicts if verdict.status == "ready" and not verdict.repair}
    chosen = [member for member in members if member.member_id in sound]
    old = old_programs.to_renew((member.member_id, member.node_name, _report_of(member, seen)) for member in chosen)

    def renewed(verdict: Verdict) -> Verdict:
        name = old[verdict.member_id]
        return msgspec.structs.replace(
            verdict, repair=f"ProgramsOld: the health programs of {name} are of another release of the app"
        )

    return [renewed(verdict) if verdict.member_id in old else verdict for verdict in verdicts]


def _report_of(member: Member, seen: Observed) -> Report | None:
    if member.component_key == roles.CONTROLLER:
        return seen.own.report
    node = (seen.nodes or {}).get(_node_name(member))
    return node.report if node is not None and not node.is_stale else None


def _closing(verdict: Verdict, names: tuple[str, ...]) -> Verdict:
    """Have the controller repaired if Slurm can start jobs on machines that were given up."""
    if not names or verdict.repair:
        return verdict
    repair = f"{unknown_nodes.CODE}: the machine was given up, but Slurm can start jobs there: {', '.join(names[:10])}"
    return msgspec.structs.replace(verdict, repair=repair)


def _with_people(words: checks.Machine, verdict: Verdict, seen: Observed, people: Sequence[Person]) -> Verdict:
    """Have the controller repaired if Slurm does not have the people of the project. Name the jobs of blocked users."""
    if not (seen.scheduler.ok and seen.accounting.ok and seen.users_read):
        return verdict  # The detail keeps what was read before.
    jobs, waiting = seen.blocked_jobs, _without_account(people, seen)
    listed = {} if jobs is None else {"jobs_of_blocked_users": {login: some.text for login, some in jobs.items()}}
    named = msgspec.structs.replace(
        verdict,
        reason=verdict.reason or _left_jobs(words, jobs or {}),
        detail=(verdict.detail or {}) | listed | {"people_without_account": waiting},
    )
    changed = project_people.changes(people, seen.associations, waiting).text
    if verdict.repair or not changed:
        return named
    return msgspec.structs.replace(named, repair=f"{PEOPLE_CHANGED}{changed}")


def _without_account(people: Sequence[Person], seen: Observed) -> list[str]:
    """Return who has no Unix account on the machine of slurmctld yet. A repair would not help: the agent makes it."""
    known = {*seen.associations, *seen.unplaced}
    return sorted(person.login for person in people if not person.has_left and person.login not in known)


def _left_jobs(words: checks.Machine, jobs: Mapping[str, BlockedJobs]) -> str:
    """Return which jobs of users who left still run or wait. The app does not cancel them: they may be wanted."""
    if not jobs:
        return ""
    listed = "; ".join(f"{login}: {some.text}" for login, some in sorted(jobs.items()))
    # scancel takes one user at a time.
    cancel = "; ".join(words.as_root(f"scancel -u {login}") for login in sorted(jobs))
    return f"Users who left and can submit no more still have jobs: {listed}. To end them: {cancel}"


def head_silent(instance: str, members: Iterable[Member], controller: Member, error: str) -> Decision:
    """Return the decision if the machine of slurmctld does not answer. Nothing is known about workers then."""
    finding = silent(instance, members, controller, error)
    unknown = Condition("SchedulerAnswers", False, finding.code, finding.text)
    verdicts = (Verdict(controller.member_id, "failed", finding.text, finding.fix),) if is_judged(controller) else ()
    return Decision((unknown,), verdicts)


def unwatched(instance: str, members: Iterable[Member], controller: Member, error: str) -> Decision:
    """Return the decision if the program that looks at the cluster fails. The machine answers, and jobs may run:
    nothing is known about nodes."""
    finding = checks.unwatched(_words(instance, controller, tuple(members)), error)
    unknown = Condition("SchedulerAnswers", None, finding.code, finding.text)
    verdicts = (Verdict(controller.member_id, "degraded", finding.text, finding.fix),) if is_judged(controller) else ()
    return Decision((unknown,), verdicts)


def silent(instance: str, members: Iterable[Member], member: Member, error: str) -> Finding:
    """Return the fault of a member whose machine stopped answering. It is the same for a repair as for a look."""
    words = _words(instance, member, tuple(members))
    if member.component_key == roles.CONTROLLER:
        return checks.unreachable_controller(words, error)
    return checks.unreachable_worker(words, error)


def stopped(instance: str) -> Decision:
    """Return the decision about a cluster that people stopped: its members stay as the stop reported them."""
    message = f"The cluster is stopped. Start it: gpuaas start {instance}"
    types = ("SchedulerAnswers", "AccountingAnswers", NODES_KNOWN)
    return Decision(tuple(Condition(name, None, "Stopped", message) for name in types), ())


def sentence(verdict: Verdict, given_up: str = "") -> str:
    """Return what people read about a member: its fault, who repairs it, and at the end the fix."""
    if not verdict.fix:
        return verdict.reason
    if not verdict.repair:
        return f"{verdict.reason} Fix: {verdict.fix}"
    if given_up:
        return f"{verdict.reason} The app does not repair it again now: {given_up} Fix: {verdict.fix}"
    return f"{verdict.reason} The app repairs it by itself. Fix by hand: {verdict.fix}"


def conditions(seen: Observed) -> tuple[Condition, ...]:
    return (
        Condition(
            "SchedulerAnswers", seen.scheduler.ok, "" if seen.scheduler.ok else "SchedulerDown", seen.scheduler.reason
        ),
        Condition(
            "AccountingAnswers",
            seen.accounting.ok,
            "" if seen.accounting.ok else "AccountingDown",
            seen.accounting.reason,
        ),
    )


def is_judged(member: Member) -> bool:
    """A member that failed before it ever was a node of the cluster, or in its removal, is left to its operation."""
    if member.status == "failed" and member.adapter_detail.get(removals.BEGUN_BY):
        return False
    if member.status == "failed" and member.component_key != roles.CONTROLLER:
        return bool(member.adapter_detail.get("node_name"))
    return member.status in JUDGED


def _seems_unwell(member: Member, seen: Observed) -> bool:
    node = (seen.nodes or {}).get(_node_name(member))
    return node is None or node.seems_unwell


def _wrong_clock(
    instance: str, members: Sequence[Member], seen: Observed, direct: Mapping[str, DirectLook], head_off_s: int
) -> dict[str, Finding]:
    """Return member id -> that the clock of slurmctld's machine is wrong, for the controller and for the workers whose
    clocks are right. Of two clocks that differ, the one is right with which the app's clock agrees. If it agrees with
    neither, the worker's counts as wrong."""
    head = next((member for member in members if member.component_key == roles.CONTROLLER), None)
    agree_s = min(CLOCKS_AGREE_S, abs(head_off_s) / 2)
    right = [
        member.member_id
        for member in members
        if (off_s := _clock_off_s(member, seen, direct)) and abs(off_s + head_off_s) < agree_s
    ]
    if head is None or not head_off_s or not right:
        return {}
    wrong = checks.clock_of_slurmctld(_words(instance, head, members), seen.own, head_off_s)
    return dict.fromkeys([head.member_id, *right], wrong)


def _clock_off_s(member: Member, seen: Observed, direct: Mapping[str, DirectLook]) -> int:
    if member.component_key == roles.CONTROLLER:
        return 0
    return checks.clock_off_s((seen.nodes or {}).get(_node_name(member)), direct.get(member.member_id))


def _verdict(
    words: checks.Machine,
    member: Member,
    seen: Observed,
    direct: Mapping[str, DirectLook],
    clocks: Mapping[str, Finding],
) -> Verdict | None:
    if member.component_key == roles.CONTROLLER:
        move = member.adapter_detail.get(UNFINISHED_MOVE, {}) if seen.move is None else seen.move
        remembered = msgspec.structs.replace(seen, move=move)
        findings = checks.of_controller(words, remembered, clocks.get(member.member_id))
        detail = member.adapter_detail | _controller_detail(seen) | ({UNFINISHED_MOVE: move} if move else {})
        if not move:
            detail.pop(UNFINISHED_MOVE, None)
        return _judged(member, "ready", findings, detail, seen.version or None)
    if seen.nodes is None:
        return None
    node, looked = seen.nodes.get(_node_name(member)), direct.get(member.member_id)
    if node is None and not member.adapter_detail.get("node_name"):
        return _judged(member, "ready", [checks.never_joined(words)], member.adapter_detail, None)
    if (node is None or node.seems_unwell) and looked is None:
        return None  # Not enough is known yet: the next look asks the machine itself.
    findings = checks.of_worker(words, node, looked, seen.own, seen.version, clocks.get(member.member_id))
    findings = checks.with_reboot(words, node, findings)
    sound: Status = "ready"
    if node is not None and _is_drained_on_purpose(member, node.as_node()):
        findings = [finding for finding in findings if finding.code != "DrainLeft"]
        sound = "draining" if node.flags & state.WORKING else "drained"
    package = node.report.package if node is not None and node.report else ""
    package = package or str(member.adapter_detail.get("package_version", ""))
    detail = details.worker_detail(_node_name(member), node.as_node() if node else None, package)
    return _judged(member, sound, findings, member.adapter_detail | detail, node.version if node else None)


def _is_drained_on_purpose(member: Member, node: state.Node) -> bool:
    """Return whether people drained the member. One that failed afterwards is drained again when it returns."""
    drained_by = str(member.adapter_detail.get("drained_by", ""))
    failed_since = bool(drained_by) and state.drained_by_operation(node, drained_by) and not node.flags & state.WORKING
    return state.drained_by_app(node) and (member.status in ("draining", "drained") or failed_since)


def _judged(
    member: Member, sound: Status, findings: list[Finding], detail: dict[str, Any], version: str | None
) -> Verdict:
    repair = next((finding.text for finding in findings if finding.repairs), "")
    detail = detail | {"findings": [finding.code for finding in findings]}
    if not findings:
        return Verdict(member.member_id, sound, detail=detail, version=version)
    # A drained member with a small fault stays drained: its drain is what people must know first.
    status: Status = sound if sound != "ready" and findings[0].status == "degraded" else findings[0].status
    others = [finding.code for finding in findings[1:]]
    also = f" Also: {', '.join(others)}." if others else ""
    return Verdict(member.member_id, status, findings[0].text + also, findings[0].fix, repair, detail, version)


def _controller_detail(seen: Observed) -> dict[str, Any]:
    package = seen.own.report.package if seen.own.report else ""
    answers = {"slurmctld": seen.scheduler.ok, "slurmdbd": seen.accounting.ok}
    shown: dict[str, Any] = {name: "up" if ok else "down" for name, ok in answers.items()}
    return (
        shown
        | ({"package_version": package} if package else {})
        | ({"daemon_version": seen.version} if seen.version else {})
    )


def _words(instance: str, member: Member, members: Sequence[Member]) -> checks.Machine:
    is_shared = sum(other.node_name == member.node_name for other in members) > 1
    name = f"{member.node_name}/{member.component_key}" if is_shared else ""
    return checks.Machine(instance, member.node_name, member.address, name)


def _node_name(member: Member) -> str:
    return str(member.adapter_detail.get("node_name") or member.node_name)
