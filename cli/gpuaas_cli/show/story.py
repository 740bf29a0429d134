"""Format everything about a resource on one page, for `gpuaas describe`: what failed, where, why, and the next step."""

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Literal

from gpuaas_contract.controllers import Controller, ControllerFailure
from gpuaas_contract.holds import Hold
from gpuaas_contract.instances import AccessBundle, BreakerState, Instance, Member, Role
from gpuaas_contract.lifecycles import ENDED_OPERATION, GONE_MEMBER
from gpuaas_contract.operations import Operation, Step
from gpuaas_contract.statements import STATED_KINDS

from gpuaas_cli import output
from gpuaas_cli.output import (
    Lines,
    age,
    aligned,
    cell,
    clock_time,
    duration,
    facts,
    flat,
    listing,
    quoted_command,
    table,
)
from gpuaas_cli.show import results, steps

CONTROLLERS_SHOWN = 3
OPERATIONS_SHOWN = 10


def of_operation(operation: Operation, members: Sequence[Member], names: Mapping[str, str]) -> Lines:
    involved = [member for member in members if member.member_id in {target.member_id for target in operation.targets}]
    return [
        *_operation_facts(operation),
        *section("Error", _error(operation)),
        *section("Members", _targets(operation, members)),
        *section("Steps", _steps(operation.steps, operation, names)),
        *section("Adapter detail", _details(involved, names)),
        *section("Result", results.lines(operation.result or {})),
        *section("Exits", steps.exit_commands(operation)),
        *section("Next", list(dict.fromkeys(_next_of_operation(operation, involved)))),
    ]


@dataclass(frozen=True)
class Surroundings:
    """Members, operations and other records of an instance."""

    members: Sequence[Member]
    operations: Sequence[Operation]
    roles: Sequence[Role] = ()
    holds: Sequence[Hold] = ()
    controllers: Sequence[Controller] = ()


def of_instance(instance: Instance, around: Surroundings) -> Lines:
    # A preview changes nothing, so its outcome does not matter for the instance.
    members, operations = around.members, [item for item in around.operations if item.kind != "preview"]
    live = [member for member in members if member.status not in GONE_MEMBER]
    latest, names = operations[-1] if operations else None, steps.names_of(members)
    failed = next((item for item in reversed(operations) if item.status == "failed"), None)
    story = failed if failed is not None and (instance.status == "failed" or failed is latest) else None
    active = [hold for hold in around.holds if state_of_hold(hold) == "active"]
    held = table(_HOLDS, ON=lambda hold: names.get(hold.member_id, hold.member_id))
    # A breaker closes after a while; after a repair it can be reset immediately.
    tripped = [role.component_key for role in around.roles if role.breaker.open]
    resets = [f"gpuaas role reset-breaker {instance.name} {role} --reason REASON" for role in tripped]
    return [
        *facts(instance, _INSTANCE),
        *section("Conditions", listing(instance.conditions, _CONDITIONS)),
        *section("Controllers", _controllers(instance, around.controllers)),
        *section("Roles", listing(around.roles, _ROLES)),
        *section("Members", listing(live, _MEMBERS)),
        *section("Holds", listing(active, held)),
        *section("Operations", listing(operations[-OPERATIONS_SHOWN:], _OPERATIONS)),
        *(_failure_of(story, names) if story else []),
        *section("Adapter detail", _details(live, names)),
        *section("Next", [*_next_of_instance(instance, latest, story), *resets]),
    ]


def of_member(member: Member, operations: Sequence[Operation]) -> Lines:
    latest = next((item for item in operations if item.operation_id == member.last_operation_id), None)
    own = [step for step in latest.steps if step.member_id == member.member_id] if latest else []
    about, names = operations_on(member, operations), {member.member_id: member.node_name}
    next_lines = [f"gpuaas describe operation {member.last_operation_id}", f"gpuaas ssh {member.node_name}"]
    return [
        *facts(member, _MEMBER),
        *section("Adapter detail", _details([member], names)),
        *section(f"Steps of {member.last_operation_id}", _steps(own, latest, names) if latest else []),
        *section("Error", _error(latest) if latest else []),
        *section("Operations", listing(about[-OPERATIONS_SHOWN:], _OPERATIONS)),
        *section("Next", next_lines if member.status not in GONE_MEMBER else []),
    ]


def operations_on(member: Member, operations: Sequence[Operation]) -> list[Operation]:
    return [item for item in operations if any(target.member_id == member.member_id for target in item.targets)]


def of_access(bundle: AccessBundle, node_names: Mapping[str, str]) -> Lines:
    commands: Lines = []
    for command in bundle.commands:
        where = node_names.get(command.allocation_id, command.allocation_id)
        place = f" on {where}" if where else ""
        user = f" as {flat(command.user)}" if command.user else ""
        commands += [f"{flat(command.title)}{place}{user}:", f"    {command.line}".replace("\n", "\n    ")]
    return [
        *section("Endpoints", [f"{flat(item.name)}  {flat(item.url)}" for item in bundle.endpoints]),
        *section("Paths", [f"{flat(name)}  {flat(path)}" for name, path in bundle.paths.items()]),
        *section("Commands", commands),
        *section("Notes", bundle.notes),
    ]


def state_of_hold(hold: Hold, now: datetime.datetime | None = None) -> Literal["active", "lifted", "expired"]:
    if hold.lifted_at is not None:
        return "lifted"
    return "active" if hold.expires_at > (now or output.now()) else "expired"


def last_look(instance: Instance, *, with_holder: bool = False) -> str:
    """Return when a controller last looked at the instance between operations; empty if none looks after it."""
    steward = instance.steward
    if steward is None:
        return ""
    looked = f"{age(steward.observed_at)} ago" if steward.observed_at else "not yet"
    return f"{looked} by {steward.holder}" if with_holder and steward.holder else looked


def state_of_breaker(breaker: BreakerState) -> str:
    if not breaker.open:
        return "closed"
    return f"open until {clock_time(breaker.closes_at)}" if breaker.closes_at else "open"


def section(title: str, lines: Sequence[str]) -> Lines:
    """Return a title and its lines. Text with line breaks stays below it, so that it cannot look like another title."""
    return ["", title, *("  " + line.replace("\n", "\n  ") for line in lines)] if lines else []


_INSTANCE = table(
    "Instance App Status Reason=status_reason Observed Topology Inputs Correlation=correlation_id Created Changed "
    "Resource=resource_name",
    Instance=lambda instance: f"{instance.name} ({instance.instance_id})",
    Observed=lambda instance: last_look(instance, with_holder=True),
    App=lambda instance: (
        f"{instance.app_slug} {instance.app_version}"
        + (f" (before: {instance.previous_version})" if instance.previous_version else "")
    ),
    Inputs=lambda instance: json.dumps(instance.inputs, ensure_ascii=False) if instance.inputs else "",
    Created=lambda instance: f"{clock_time(instance.created_at)} by {instance.requested_by}",
    Changed=lambda instance: f"{duration(instance.updated_at)} ago",
)
_MEMBER = table(
    "Member=member_id Role=component_key Status Reason=status_reason Node Allocation=allocation_id "
    "Instance=instance_id Version=observed_version Operation=last_operation_id Correlation=correlation_id Changed",
    Node=lambda member: f"{member.node_name} {member.address}",
    Changed=lambda member: f"{duration(member.updated_at)} ago",
)
_HOLDS = "HOLD=hold_id NAME KIND ON UNTIL=expires_at OWNER REASON"
_CONDITIONS = table("CONDITION=type STATUS SINCE=changed_at REASON MESSAGE")
_ROLES = table(
    "ROLE=component_key HEALTH READY FAILED_LATELY=breaker.failures BREAKER",
    READY=lambda role: f"{role.ready}/{role.desired}",
    BREAKER=lambda role: state_of_breaker(role.breaker),
)
_MEMBERS = table(
    "MEMBER=member_id NODE=node_name ROLE=component_key STATUS VERSION=observed_version OPERATION=last_operation_id "
    "REASON=status_reason"
)
_OPERATIONS = table(
    "OPERATION=operation_id KIND STATUS STARTED=created_at CORRELATION=correlation_id ERROR=error.message"
)
_TARGETS = table(
    "MEMBER=target.member_id NODE=member.node_name ROLE=member.component_key STATUS=member.status "
    "OUTCOME=target.outcome ERROR"
)


def _operation_facts(operation: Operation) -> Lines:
    ended, took = operation.status in ENDED_OPERATION, duration(operation.created_at, operation.ended_at)
    holder = f"{operation.lease.holder} (epoch {operation.epoch})" if operation.lease else "none has taken it yet"
    shape = table(
        "Operation=operation_id What Status Instance App=app_slug Correlation=correlation_id Requested Reason Forced "
        "Attempts Controller Deadline",
        What=steps.title,
        Status=lambda item: f"{item.status} {'after' if ended else 'for'} {took}",
        Instance=lambda item: f"{item.instance_name} ({item.instance_id})",
        Requested=lambda item: f"{clock_time(item.created_at)} by {item.requested_by}",
        Forced=lambda item: "yes" if item.force else "",
        Controller=lambda _: "" if ended else holder,
        Deadline=lambda item: "" if ended else clock_time(item.deadline_at),
    )
    return facts(operation, shape)


def _error(operation: Operation) -> Lines:
    error = operation.error
    if error is None:
        return []
    again = "a retry may help" if error.retryable else "a retry alone will not help"
    fix = [f"fix: {error.fix}"] if error.fix else []
    return [error.message, f"code {error.code} · {error.failure_class} · {again}", *fix]


def _targets(operation: Operation, members: Sequence[Member]) -> Lines:
    """Return the table of targets, in the order of the members; unknown members come first."""
    places = {member.member_id: (place, member) for place, member in enumerate(members)}
    rows = []
    for target in operation.targets:
        place, member = places.get(target.member_id, (-1, None))
        evidence = f" [{target.evidence.state}, seen by {target.evidence.source}]" if target.evidence else ""
        error = f"{target.error or (member.status_reason if member else '')}{evidence}".strip()
        rows.append(SimpleNamespace(place=place, target=target, member=member, error=error))
    return listing(sorted(rows, key=lambda row: row.place), _TARGETS)


def _controllers(instance: Instance, controllers: Sequence[Controller]) -> Lines:
    """Return the controllers that may work on the instance, the most recently seen first."""
    operator = instance.operator_service_account_id
    mine = [item for item in controllers if item.app_slug == instance.app_slug and operator in ("", item.actor_id)]
    newest = sorted(mine, key=lambda item: item.last_seen_at, reverse=True)[:CONTROLLERS_SHOWN]
    if not newest:
        return ["none has ever asked for work here; operations wait for one"]
    rows = [
        [flat(item.holder), flat(item.version) or "-", f"last seen {age(item.last_seen_at)} ago"] for item in newest
    ]
    failing = [item for item in newest if item.state and any(_concerns(instance, of) for of in item.state.failures)]
    return [
        *aligned(rows),
        *(f"failures: {quoted_command('describe', 'controller', item.controller_id)}" for item in failing),
    ]


def _concerns(instance: Instance, failure: ControllerFailure) -> bool:
    return failure.instance_id in ("", instance.instance_id)


def _steps(matches: Sequence[Step], operation: Operation, names: Mapping[str, str]) -> Lines:
    """Return the table of an operation's steps, one row per step. A step's name may contain spaces: it is a
    sentence."""
    rows = [["AT", "TOOK", "NODE", "STATE", "STEP", "MESSAGE"]]
    for step in matches:
        at, took = duration(operation.created_at, step.started_at), duration(step.started_at, step.ended_at)
        state = step.state if step.attempt == 1 else f"{step.state}({step.attempt}.)"
        who = cell(names.get(step.member_id, step.member_id), spaces=False)
        rows.append([at, took, who, state, flat(step.name), cell(step.message, spaces=True)])
    return aligned(rows) if matches else []


def _failure_of(operation: Operation, names: Mapping[str, str]) -> Lines:
    title = f"Failed: {steps.title(operation)} ({operation.operation_id}, {operation.correlation_id})"
    return [*section(title, _error(operation)), *section("Its steps", _steps(operation.steps, operation, names))]


def _details(members: Sequence[Member], names: Mapping[str, str]) -> Lines:
    lines: Lines = []
    for member in members:
        if member.adapter_detail:
            name = names.get(member.member_id, member.node_name)
            lines.append(f"{name} ({member.component_key}, {member.member_id})")
            lines += [f"  {line}" for line in results.values(member.adapter_detail)]
    return lines


def _next_of_operation(operation: Operation, involved: Sequence[Member]) -> Lines:
    if operation.status not in ENDED_OPERATION:
        return [f"gpuaas op follow {operation.operation_id}"]
    if operation.kind in STATED_KINDS and operation.status == "succeeded":
        return [f"gpuaas op statement {operation.operation_id} --verify"]
    if operation.status == "succeeded":
        return [f"gpuaas describe instance {operation.instance_id}"]
    lines = [flat(operation.error.fix)] if operation.error and operation.error.fix.startswith("gpuaas ") else []
    lines += [f"gpuaas triage {operation.correlation_id}"]
    failed = [member for member in involved if member.status == "failed"]
    lines += [f"gpuaas ssh {member.node_name}" for member in failed[:1]]
    again = f"gpuaas decommission {operation.instance_id}, then deploy again"
    return [*lines, again] if operation.kind == "deploy" else lines


def _next_of_instance(instance: Instance, latest: Operation | None, story: Operation | None) -> Lines:
    if latest is not None and latest.status not in ENDED_OPERATION:
        return [f"gpuaas op follow {latest.operation_id}"]
    if instance.status == "failed" and story is not None:
        return [f"gpuaas triage {story.correlation_id}", f"gpuaas decommission {instance.name}"]
    if instance.status in ("running", "degraded"):
        return [f"gpuaas access {instance.name}", f"gpuaas ssh {instance.name}"]
    return [f"gpuaas start {instance.name}"] if instance.status == "stopped" else []
