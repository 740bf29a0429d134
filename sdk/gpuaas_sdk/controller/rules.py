"""Pure decisions of the controller kit: how an error ends an operation, which steps are finished, what a report
changes."""

import random
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from gpuaas_contract.errors import ApiError, SecretAlreadyDelivered
from gpuaas_contract.instances import Instance, Member
from gpuaas_contract.lifecycles import SERVING_MEMBER
from gpuaas_contract.operations import FailureClass, Operation, OperationKind, Step, Target
from gpuaas_contract.protocol import report as protocol
from gpuaas_contract.protocol import steps
from gpuaas_contract.runtime import FailOperation, ObservedMember, ReportedCondition, ReportMember
from msgspec.structs import replace

from gpuaas_sdk.failures import Permanent, Refused, Temporary

MESSAGE_CHARS_MAX = 2000
REASON_CHARS_MAX = 500
TEMPORARY_PAUSE_S_MAX = 60.0
_WORST_FIRST: tuple[FailureClass, ...] = ("needs_operator", "lost", "repairable", "drift", "refused")


class MembersFailed(Permanent):
    """The work on some members failed; `Operation.each` raises it after the work on the others has ended.

    try:
        await op.each(op.to_do, join)
    except MembersFailed as error:
        names = [member.node_name for member, _ in error.failures]"""

    def __init__(self, failures: tuple[tuple[Member, Permanent], ...], count: int) -> None:
        listed = "; ".join(f"{member.node_name or member.member_id}: {error}" for member, error in failures)
        fixes = [error.fix for _, error in failures if error.fix]
        super().__init__(f"{len(failures)} of {count} members failed: {listed}", fix=fixes[0] if fixes else "")
        self.failures = failures
        """The members that failed, each with its error."""


class Results(NamedTuple):
    """What `Operation.each` returns. Members that the stop rule skipped are in neither list.

    results = await op.each(op.to_do, join, raises=False)
    names = [member.node_name for member in results.ok]"""

    ok: tuple[Member, ...]
    """Members whose function ended without an error."""
    failed: tuple[tuple[Member, Permanent], ...] = ()
    """The others, each with its error."""


class NotSupported(Permanent):
    """The app has no handler for this kind of operation."""


def failure_of(error: Exception, epoch: int, *, backs_out: bool = False) -> FailOperation:
    """Return the report with which the operation fails, made from the error that its handler raised.

    An undo that is refused leaves its work undone, so it fails like any other."""
    code, fix = _code_and_fix(error)
    failure_class = _failure_class(error)
    if failure_class == "refused":
        code, failure_class = ("app_failed", "repairable") if backs_out else ("refused", failure_class)
    message = str(error) if isinstance(error, Permanent) else f"{type(error).__name__}: {error}"
    return FailOperation(
        epoch=epoch,
        code=code,
        message=clipped(message),
        failure_class=failure_class,
        fix=fix,
    )


def refusal(error: Refused) -> str:
    """Return why an operation would be refused and what to do, as a preview shows it."""
    return clipped(f"{error}. Fix: {error.fix}" if error.fix else str(error))


def backs_out(record: Operation) -> bool:
    """Return whether the operation is being undone, after a cancel or to compensate a failure."""
    return record.compensating or record.status == "cancelling"


def finished_steps(record: Operation) -> set[tuple[str, str]]:
    """Return name and member id of every step that succeeded and must not run again."""
    return {(step.name, step.member_id) for step in record.steps if steps.is_done(step, record.exits_taken)}


def versions_left(record: Operation, instance: Instance, *, backs_out: bool) -> tuple[set[str], set[str]]:
    """Return the app versions to which the instance cannot return after the operation, and those that it has or can
    return to. Versions of both can have the same artifacts."""
    if record.kind == "upgrade" and not backs_out:
        kept = {record.from_version, record.to_version}
        return {instance.previous_version} - kept - {""}, kept
    if record.kind in ("upgrade", "rollback"):
        kept = {instance.app_version, instance.previous_version} if backs_out else {record.to_version}
        return {record.from_version, record.to_version} - kept, kept - {""}
    return set(), set()


UNDO = "undo "
"""What the name of the step begins with that undoes another step."""


def begun_steps(steps_of_operation: Iterable[Step]) -> list[tuple[str, str]]:
    """Return name and member id of every step that began and was not undone since, in the order of their start."""
    listed = list(steps_of_operation)
    undone_at = {
        (step.name.removeprefix(UNDO), step.member_id): step.ended_at
        for step in listed
        if step.name.startswith(UNDO) and step.state == "succeeded" and step.ended_at
    }

    def is_undone(step: Step) -> bool:
        at = undone_at.get((step.name, step.member_id))
        return at is not None and step.ended_at is not None and step.ended_at <= at

    return [(step.name, step.member_id) for step in listed if not is_undone(step)]


def undo_order(begun: Iterable[tuple[str, str]], undoable: Collection[str]) -> list[dict[str, list[str]]]:
    """Return the names of the steps to undo, by member id, in rounds: the last step first.

    A step of the whole operation is a round of its own. Steps of members between two of these are one round, because
    members do not wait for each other."""
    rounds: list[dict[str, list[str]]] = []
    for name, member_id in reversed(list(begun)):
        if name not in undoable:
            continue
        if not member_id or not rounds or "" in rounds[-1]:
            rounds.append({})
        rounds[-1].setdefault(member_id, []).append(name)
    return rounds


def moves(kind: OperationKind, member: Member, report: ReportMember) -> bool:
    """Return whether the report moves a replaced member to its new machine."""
    return kind == "replace" and (member.status, report.status) == ("removing", "provisioning")


def reported(member: Member, report: ReportMember) -> Member:
    """Return the member as the platform stores it after the report. Optional fields without a value do not change."""
    optional = {"adapter_detail": report.adapter_detail, "observed_version": report.observed_version}
    return replace(
        member,
        status=report.status,
        status_reason=report.status_reason,
        was_ready=member.was_ready or report.status in SERVING_MEMBER,
        **{name: value for name, value in optional.items() if value is not None},
    )


def with_outcome(record: Operation, target: Target, member: Member, refusal: str | None = None) -> Target:
    """Return the target as the platform stores it after a report on its member."""
    outcome, error = protocol.outcome(record, target, member, refusal)
    return replace(target, outcome=outcome, error=error)


def news(
    instance: Instance,
    members: Mapping[str, Member],
    conditions: Iterable[ReportedCondition],
    observed: Iterable[ObservedMember],
) -> tuple[list[ReportedCondition], list[ObservedMember]]:
    """Return those of the observations that differ from what the platform has stored."""
    stored = {item.type: (item.status, item.reason, item.message) for item in instance.conditions}
    return (
        [item for item in conditions if stored.get(item.type) != (item.status, item.reason, item.message)],
        [item for item in observed if not _is_stored(members.get(item.member_id), item)],
    )


def refused(what: str, error: ApiError) -> Temporary | Permanent:
    """Turn an error response of the platform into an error that the kit retries or that fails the operation."""
    text = f"{what}: {error.message}"
    if isinstance(error, SecretAlreadyDelivered):
        # The first response was lost. A new delivery contains the same secret.
        return Temporary(text, after_s=0)
    return Temporary(text) if error.retryable else Permanent(text, fix=error.fix)


def pause_s(after_s: float) -> float:
    """Return the pause before a retry, with jitter and a maximum."""
    return jittered_s(min(after_s, TEMPORARY_PAUSE_S_MAX))


def jittered_s(wanted_s: float) -> float:
    """Change a time by up to 20 % at random, so that controllers that started together do not act at the same time."""
    return wanted_s * random.uniform(0.8, 1.2)


def clipped(message: str) -> str:
    """Cut a message to the length that the platform stores."""
    return message if len(message) <= MESSAGE_CHARS_MAX else message[: MESSAGE_CHARS_MAX - 1] + "…"


def clipped_reason(reason: str) -> str:
    """Cut a reason to the length that the platform accepts."""
    return reason if len(reason) <= REASON_CHARS_MAX else reason[: REASON_CHARS_MAX - 1] + "…"


def _is_stored(member: Member | None, observed: ObservedMember) -> bool:
    if member is None:
        return False
    optional = {"adapter_detail": observed.adapter_detail, "observed_version": observed.observed_version}
    return (member.status, member.status_reason) == (observed.status, observed.status_reason) and all(
        value is None or getattr(member, name) == value for name, value in optional.items()
    )


def _code_and_fix(error: Exception) -> tuple[str, str]:
    match error:
        case NotSupported():
            return "not_supported", error.fix
        case MembersFailed():
            return "members_failed", error.fix
        case Refused():
            return "refused", error.fix
        case Permanent():
            return "app_failed", error.fix
        case ApiError():
            return "controller_bug", error.fix
        case _:
            return "controller_bug", "Find the traceback in the controller's log, then retry the operation."


def _failure_class(error: Exception) -> FailureClass:
    causes = [cause for _, cause in error.failures] if isinstance(error, MembersFailed) else [error]
    classes = [cause.failure_class for cause in causes if isinstance(cause, Permanent)]
    return min(classes, key=_WORST_FIRST.index) if classes else "retryable"
