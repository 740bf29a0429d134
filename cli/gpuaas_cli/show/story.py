"""Pure: the whole story of a thing on one page, for `gpuaas describe`. What failed, where, why, and what to do next."""

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuaas_contract.holds import Hold
from gpuaas_contract.instances import AccessBundle, Instance, Member, Role
from gpuaas_contract.lifecycles import ENDED_OPERATION, GONE_MEMBER
from gpuaas_contract.operations import Operation, Step
from gpuaas_contract.runtime import Controller

from gpuaas_cli.output import age, aligned, cell, clean, clock_time, duration
from gpuaas_cli.show import states, steps

CONTROLLERS_SHOWN = 3

Lines = list[str]


def of_operation(operation: Operation, members: Sequence[Member], now: datetime.datetime) -> Lines:
    names = steps.names_of(members)
    involved = [member for member in members if member.member_id in {target.member_id for target in operation.targets}]
    return [
        *facts(_operation_facts(operation, now)),
        *section("Error", _error(operation)),
        *section("Members", _targets(operation, names, members)),
        *section("Steps", _steps(operation, names, now)),
        *section("Adapter detail", _details(involved, names)),
        *section("Result", of_result(operation.result or {})),
        *section("Ways out", steps.ways_out(operation)),
        *section("Next", list(dict.fromkeys(_next_of_operation(operation, involved)))),
    ]


@dataclass(frozen=True)
class Surroundings:
    """What belongs to an instance."""

    members: Sequence[Member]
    operations: Sequence[Operation]
    roles: Sequence[Role] = ()
    holds: Sequence[Hold] = ()
    controllers: Sequence[Controller] = ()


def of_instance(instance: Instance, around: Surroundings, now: datetime.datetime) -> Lines:
    # A preview is only a question; what became of it says nothing about the instance.
    members, operations = around.members, [one for one in around.operations if one.kind != "preview"]
    live = [member for member in members if member.status not in GONE_MEMBER]
    latest = operations[-1] if operations else None
    failed = next((found for found in reversed(operations) if found.status == "failed"), None)
    story = failed if failed is not None and (instance.status == "failed" or failed is latest) else None
    names = steps.names_of(members)
    return [
        *facts(_instance_facts(instance, now)),
        *section("Conditions", _conditions(instance)),
        *section("Controllers", _controllers(instance, around.controllers, now)),
        *section("Roles", _roles(around.roles)),
        *section("Members", _members(live)),
        *section("Holds", _holds(around.holds, names, now)),
        *section("Operations", _operations(operations[-10:])),
        *(_failure_of(story, names, now) if story else []),
        *section("Adapter detail", _details([one for one in live if one.adapter_detail or one.status_reason], names)),
        *section("Next", [*_next_of_instance(instance, latest, story), *_next_of_roles(instance, around.roles)]),
    ]


def of_member(member: Member, operations: Sequence[Operation], now: datetime.datetime) -> Lines:
    latest = next((one for one in operations if one.operation_id == member.last_operation_id), None)
    own = [step for step in latest.steps if step.member_id == member.member_id] if latest else []
    names = {member.member_id: member.node_name}
    return [
        *facts(_member_facts(member, now)),
        *section("Adapter detail", _details([member], names)),
        *section(f"Steps of {member.last_operation_id}", _step_lines(own, latest, names, now) if latest else []),
        *section("Error", _error(latest) if latest else []),
        *section("Operations", _operations([one for one in operations if _is_about(one, member)][-10:])),
        *section("Next", _next_of_member(member)),
    ]


def of_access(bundle: AccessBundle, node_names: Mapping[str, str]) -> Lines:
    commands: Lines = []
    for command in bundle.commands:
        where = node_names.get(command.allocation_id, command.allocation_id)
        place = f" on {where}" if where else ""
        user = f" as {command.user}" if command.user else ""
        commands += [f"{clean(command.title)}{place}{user}:", f"    {clean(command.line)}"]
    return [
        *section("Endpoints", [f"{one.name}  {clean(one.url)}" for one in bundle.endpoints]),
        *section("Paths", [f"{name}  {clean(path)}" for name, path in bundle.paths.items()]),
        *section("Commands", commands),
        *section("Notes", [clean(note) for note in bundle.notes]),
    ]


def of_result(result: Mapping[str, Any]) -> Lines:
    """What an action brought."""
    return [f"{clean(str(key))}: {_plain(value)}" for key, value in result.items()]


def facts(pairs: Mapping[str, str]) -> Lines:
    shown = {name: clean(value) for name, value in pairs.items() if value}
    return aligned([[name, " ".join(value.split())] for name, value in shown.items()])


def section(title: str, lines: Sequence[str]) -> Lines:
    return ["", title, *(f"  {line}" for line in lines)] if lines else []


def _operation_facts(operation: Operation, now: datetime.datetime) -> dict[str, str]:
    took = duration(steps.elapsed_s(operation, operation.ended_at or now))
    ended = operation.status in ENDED_OPERATION
    holder = f"{operation.lease.holder} (epoch {operation.epoch})" if operation.lease and not ended else ""
    return {
        "Operation": operation.operation_id,
        "What": steps.title(operation),
        "Status": f"{operation.status} {'after' if ended else 'for'} {took}",
        "Instance": f"{operation.instance_name} ({operation.instance_id})",
        "App": operation.app_slug,
        "Correlation": operation.correlation_id,
        "Requested": f"{clock_time(operation.created_at)} by {operation.requested_by}",
        "Reason": operation.reason,
        "Forced": "yes" if operation.force else "",
        "Attempts": str(operation.attempts),
        "Controller": holder or ("" if ended else "none has taken it yet"),
        "Deadline": "" if ended else clock_time(operation.deadline_at),
    }


def _instance_facts(instance: Instance, now: datetime.datetime) -> dict[str, str]:
    before = f" (before: {instance.previous_version})" if instance.previous_version else ""
    return {
        "Instance": f"{instance.name} ({instance.instance_id})",
        "App": f"{instance.app_slug} {instance.app_version}{before}",
        "Status": instance.status,
        "Reason": instance.status_reason,
        "Topology": instance.topology,
        "Inputs": json.dumps(instance.inputs, ensure_ascii=False) if instance.inputs else "",
        "Correlation": instance.correlation_id,
        "Created": f"{clock_time(instance.created_at)} by {instance.requested_by}",
        "Changed": f"{duration((now - instance.updated_at).total_seconds())} ago",
        "Resource": instance.resource_name,
    }


def _member_facts(member: Member, now: datetime.datetime) -> dict[str, str]:
    return {
        "Member": member.member_id,
        "Role": member.component_key,
        "Status": member.status,
        "Reason": member.status_reason,
        "Node": f"{member.node_name} {member.address}",
        "Allocation": member.allocation_id,
        "Instance": member.instance_id,
        "Version": member.observed_version,
        "Operation": member.last_operation_id,
        "Correlation": member.correlation_id,
        "Changed": f"{duration((now - member.updated_at).total_seconds())} ago",
    }


def _error(operation: Operation) -> Lines:
    error = operation.error
    if error is None:
        return []
    again = "trying again may help" if error.retryable else "trying again alone will not help"
    lines = [f"{clean(error.message)}", f"code {error.code} · {error.failure_class} · {again}"]
    return [*lines, f"fix: {clean(error.fix)}"] if error.fix else lines


def _targets(operation: Operation, names: Mapping[str, str], members: Sequence[Member]) -> Lines:
    by_id = {member.member_id: member for member in members}
    rows = [["MEMBER", "NODE", "ROLE", "STATUS", "OUTCOME", "ERROR"]]
    order = list(by_id)
    for target in sorted(
        operation.targets, key=lambda one: order.index(one.member_id) if one.member_id in by_id else -1
    ):
        member = by_id.get(target.member_id)
        said = target.error or (member.status_reason if member else "")
        if target.evidence:
            said = f"{said} [{target.evidence.state}, seen by {target.evidence.source}]".strip()
        node, role = (member.node_name, member.component_key) if member else ("", "")
        status = member.status if member else ""
        rows.append([target.member_id, *_cells(node, role, status, target.outcome), cell(said, spaces=True)])
    return aligned(rows) if len(rows) > 1 else []


def _members(members: Sequence[Member]) -> Lines:
    rows = [["MEMBER", "NODE", "ROLE", "STATUS", "VERSION", "OPERATION", "REASON"]]
    for one in members:
        known = (one.node_name, one.component_key, one.status, one.observed_version, one.last_operation_id)
        cells = _cells(one.member_id, *known)
        rows.append([*cells, cell(one.status_reason, spaces=True)])
    return aligned(rows) if len(rows) > 1 else []


def _conditions(instance: Instance) -> Lines:
    rows = [["CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE"]]
    for one in instance.conditions:
        rows.append(
            [*_cells(one.type, one.status, clock_time(one.changed_at), one.reason), cell(one.message, spaces=True)]
        )
    return aligned(rows) if len(rows) > 1 else []


def _controllers(instance: Instance, controllers: Sequence[Controller], now: datetime.datetime) -> Lines:
    """Those that could work on the instance, the one heard of last first."""
    mine = [one for one in controllers if one.app_slug == instance.app_slug and _may_operate(one, instance)]
    newest = sorted(mine, key=lambda one: one.last_seen_at, reverse=True)[:CONTROLLERS_SHOWN]
    if not newest:
        return ["none has ever asked for work here; operations wait for one"]
    return aligned(
        [[*_cells(one.holder, one.version), f"last seen {age(one.last_seen_at, now)} ago"] for one in newest]
    )


def _may_operate(controller: Controller, instance: Instance) -> bool:
    return instance.operator_service_account_id in ("", controller.actor_id)


def _roles(roles: Sequence[Role]) -> Lines:
    rows = [["ROLE", "HEALTH", "READY", "FAILED_LATELY", "BREAKER"]]
    for one in roles:
        ready = f"{one.ready}/{one.desired}"
        cells = _cells(one.component_key, one.health, ready, str(one.breaker.failures))
        rows.append([*cells, states.of_breaker(one.breaker)])
    return aligned(rows) if len(rows) > 1 else []


def _holds(holds: Sequence[Hold], names: Mapping[str, str], now: datetime.datetime) -> Lines:
    rows = [["HOLD", "NAME", "KIND", "ON", "UNTIL", "OWNER", "REASON"]]
    for one in holds:
        if states.of_hold(one, now) == "active":
            on = names.get(one.member_id, one.member_id)
            cells = _cells(one.hold_id, one.name, one.kind, on, clock_time(one.expires_at), one.owner)
            rows.append([*cells, cell(one.reason, spaces=True)])
    return aligned(rows) if len(rows) > 1 else []


def _operations(operations: Sequence[Operation]) -> Lines:
    rows = [["OPERATION", "KIND", "STATUS", "STARTED", "CORRELATION", "ERROR"]]
    for one in operations:
        error = one.error.message if one.error else ""
        cells = _cells(one.operation_id, one.kind, one.status, clock_time(one.created_at), one.correlation_id)
        rows.append([*cells, cell(error, spaces=True)])
    return aligned(rows) if len(rows) > 1 else []


def _cells(*texts: str) -> list[str]:
    return [cell(text, spaces=False) for text in texts]


def _steps(operation: Operation, names: Mapping[str, str], now: datetime.datetime) -> Lines:
    return _step_lines(operation.steps, operation, names, now)


def _step_lines(found: Sequence[Step], operation: Operation, names: Mapping[str, str], now: datetime.datetime) -> Lines:
    rows = [["AT", "TOOK", "NODE", "STATE", "STEP", "MESSAGE"]]
    for step in found:
        at = duration((step.started_at - operation.created_at).total_seconds())
        state = step.state if step.attempt == 1 else f"{step.state}({step.attempt}.)"
        who = names.get(step.member_id, step.member_id)
        cells = _cells(at, duration(steps.step_s(step, now)), who, state)
        rows.append([*cells, clean(step.name), cell(step.message, spaces=True)])
    return aligned(rows) if len(rows) > 1 else []


def _failure_of(operation: Operation, names: Mapping[str, str], now: datetime.datetime) -> Lines:
    title = f"Failed: {steps.title(operation)} ({operation.operation_id}, {operation.correlation_id})"
    return [*section(title, _error(operation)), *section("Its steps", _steps(operation, names, now))]


def _details(members: Sequence[Member], names: Mapping[str, str]) -> Lines:
    lines: Lines = []
    for member in members:
        if member.adapter_detail:
            lines.append(
                f"{names.get(member.member_id, member.node_name)} ({member.component_key}, {member.member_id})"
            )
            lines += [f"  {clean(str(key))}: {_plain(value)}" for key, value in member.adapter_detail.items()]
    return lines


def _plain(value: Any) -> str:
    return clean(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).replace("\n", "\n      ")


def _next_of_operation(operation: Operation, involved: Sequence[Member]) -> Lines:
    if operation.status not in ENDED_OPERATION:
        return [f"gpuaas op follow {operation.operation_id}"]
    if operation.status == "succeeded":
        return [f"gpuaas describe instance {operation.instance_id}"]
    lines = [operation.error.fix] if operation.error and operation.error.fix.startswith("gpuaas ") else []
    lines += [f"gpuaas triage {operation.correlation_id}"]
    failed = [member for member in involved if member.status == "failed"]
    lines += [f"gpuaas ssh {member.node_name}" for member in failed[:1]]
    if operation.kind == "deploy":
        lines.append(f"gpuaas decommission {operation.instance_id}, then deploy again")
    return lines


def _next_of_instance(instance: Instance, latest: Operation | None, story: Operation | None) -> Lines:
    if latest is not None and latest.status not in ENDED_OPERATION:
        return [f"gpuaas op follow {latest.operation_id}"]
    if instance.status == "failed" and story is not None:
        return [f"gpuaas triage {story.correlation_id}", f"gpuaas decommission {instance.name}"]
    if instance.status in ("running", "degraded"):
        return [f"gpuaas access {instance.name}", f"gpuaas ssh {instance.name}"]
    return [f"gpuaas start {instance.name}"] if instance.status == "stopped" else []


def _next_of_roles(instance: Instance, roles: Sequence[Role]) -> Lines:
    """A breaker closes by itself; whoever has repaired the cause need not wait."""
    tripped = [role.component_key for role in roles if role.breaker.open]
    return [f"gpuaas role reset-breaker {instance.name} {role} --reason REASON" for role in tripped]


def _next_of_member(member: Member) -> Lines:
    if member.status in GONE_MEMBER:
        return []
    return [f"gpuaas describe operation {member.last_operation_id}", f"gpuaas ssh {member.node_name}"]


def _is_about(operation: Operation, member: Member) -> bool:
    return any(target.member_id == member.member_id for target in operation.targets)
