"""Decide what a look at a cluster means: the status of each member, the conditions of the instance, and which members
to repair. Pure; `health` reports and requests it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from gpuaas_app_slurm import checks, details, roles
from gpuaas_app_slurm.checks import Finding
from gpuaas_app_slurm.workload import state
from gpuaas_app_slurm.workload.observed import Closer, Observed
from gpuaas_app_slurm.workload.people import Person, outdated

CLOSER_LOOKS_MAX = 4
"""At most so many machines are asked directly in one look, however many seem unwell."""
JUDGED = frozenset({"ready", "degraded", "draining", "drained", "failed"})
"""Statuses in which a member is not joining or leaving, so that a look can judge it."""

Status = Literal["ready", "degraded", "draining", "drained", "failed"]


class Member(Protocol):
    """What a decision needs of a member."""

    @property
    def member_id(self) -> str: ...
    @property
    def component_key(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def node_name(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def adapter_detail(self) -> dict[str, Any]: ...


AnyMember = TypeVar("AnyMember", bound=Member)


class Verdict(msgspec.Struct, frozen=True):
    """What a look shows about one member."""

    member_id: str
    status: Status
    reason: str = ""
    repair: str = ""
    """Why the app requests a repair; empty: it does not."""
    detail: dict[str, Any] | None = None
    version: str | None = None


class Condition(msgspec.Struct, frozen=True):
    type: str
    ok: bool
    reason: str = ""
    message: str = ""


class Decision(msgspec.Struct, frozen=True):
    conditions: tuple[Condition, ...]
    verdicts: tuple[Verdict, ...]


def to_look_at(members: Iterable[AnyMember], seen: Observed) -> tuple[AnyMember, ...]:
    """Return the members whose machines must be asked directly, a bounded number of them."""
    if seen.nodes is None:
        return ()
    unwell = [
        member
        for member in members
        if member.component_key != roles.CONTROLLER and is_judged(member) and _seems_unwell(member, seen)
    ]
    return tuple(unwell[:CLOSER_LOOKS_MAX])


def decide(
    instance: str,
    members: Iterable[Member],
    seen: Observed,
    closer: Mapping[str, Closer],
    people: Sequence[Person] = (),
) -> Decision:
    """Return the decision after a look. `closer`: member id -> the look at its machine."""
    all_members = tuple(members)
    judged = [member for member in all_members if is_judged(member)]
    verdicts = [
        verdict
        for member in judged
        if (verdict := _verdict(_words(instance, member, all_members), member, seen, closer)) is not None
    ]
    controllers = {member.member_id for member in judged if member.component_key == roles.CONTROLLER}
    return Decision(
        conditions(seen),
        tuple(
            _with_people(verdict, seen, people) if verdict.member_id in controllers else verdict for verdict in verdicts
        ),
    )


def _with_people(verdict: Verdict, seen: Observed, people: Sequence[Person]) -> Verdict:
    """Have the controller repaired if Slurm does not have the people of the project."""
    if verdict.repair or not (seen.scheduler.ok and seen.accounting.ok):
        return verdict
    changed = outdated(people, seen.associations)
    return msgspec.structs.replace(verdict, repair=f"PeopleChanged: {changed}") if changed else verdict


def blind(instance: str, members: Iterable[Member], controller: Member, error: str) -> Decision:
    """Return the decision if the machine of slurmctld does not answer. Nothing is known about workers then."""
    finding = checks.unreachable_controller(_words(instance, controller, tuple(members)), error)
    silent = Condition("SchedulerAnswers", False, finding.code, finding.text)
    verdicts = (Verdict(controller.member_id, "failed", finding.text),) if is_judged(controller) else ()
    return Decision((silent,), verdicts)


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
    """A member that failed before it ever was a node of the cluster is left to its operation."""
    if member.status == "failed" and member.component_key != roles.CONTROLLER:
        return bool(member.adapter_detail.get("node_name"))
    return member.status in JUDGED


def _seems_unwell(member: Member, seen: Observed) -> bool:
    node = (seen.nodes or {}).get(_node_name(member))
    return node is None or node.seems_unwell


def _verdict(words: checks.Machine, member: Member, seen: Observed, closer: Mapping[str, Closer]) -> Verdict | None:
    if member.component_key == roles.CONTROLLER:
        findings = checks.of_controller(words, seen)
        return _judged(
            member, "ready", findings, member.adapter_detail | _controller_detail(seen), seen.version or None
        )
    if seen.nodes is None:
        return None
    node, looked = seen.nodes.get(_node_name(member)), closer.get(member.member_id)
    if (node is None or node.seems_unwell) and looked is None:
        return None  # Not enough is known yet: the next look asks the machine itself.
    findings = checks.of_worker(words, node, looked, seen.own, seen.version)
    sound: Status = "ready"
    if member.status in ("draining", "drained") and node is not None and state.drained_by_app(node.as_node()):
        findings = [finding for finding in findings if finding.code != "DrainLeft"]
        sound = "draining" if node.flags & state.WORKING else "drained"
    package = node.report.package if node is not None and node.report else ""
    package = package or str(member.adapter_detail.get("package_version", ""))
    detail = details.worker_detail(_node_name(member), node.as_node() if node else None, package)
    return _judged(member, sound, findings, member.adapter_detail | detail, node.version if node else None)


def _judged(
    member: Member, sound: Status, findings: list[Finding], detail: dict[str, Any], version: str | None
) -> Verdict:
    repair = next((finding.text for finding in findings if finding.repairs), "")
    detail = detail | {"findings": [finding.code for finding in findings]}
    if not findings:
        return Verdict(member.member_id, sound, "", "", detail, version)
    # A drained member with a small fault stays drained: its drain is what people must know first.
    status: Status = sound if sound != "ready" and findings[0].status == "degraded" else findings[0].status
    others = [finding.code for finding in findings[1:]]
    also = f" Also: {', '.join(others)}." if others else ""
    return Verdict(member.member_id, status, findings[0].text + also, repair, detail, version)


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
