"""Pure: everything that carries one correlation id, as one list in time order. `commands.triage` asks for it."""

import datetime
from dataclasses import dataclass

from gpuaas_contract import audit, correlations, events, instances, operations

from gpuaas_cli.output import payload_text
from gpuaas_cli.show import steps


@dataclass(frozen=True)
class Entry:
    at: datetime.datetime
    source: str
    what: str
    detail: str


def entries(bundle: correlations.Correlation) -> list[Entry]:
    names = steps.names_of(bundle.members)
    rows = [entry for operation in bundle.operations for entry in _of_operation(operation, names)]
    rows += [_of_member(member) for member in bundle.members]
    # Steps are on the operation already, with their durations.
    rows += [_of_event(event) for event in bundle.events if event.type != "apps.operation.step"]
    rows += [_of_audit(row) for row in bundle.audit or ()]
    return sorted(rows, key=lambda entry: entry.at)


def _of_operation(operation: operations.Operation, names: dict[str, str]) -> list[Entry]:
    rows = [Entry(operation.created_at, "operation", "accepted", f"{operation.operation_id} {steps.title(operation)}")]
    for step in operation.steps:
        rows += _of_step(step, names)
    if operation.ended_at:
        error = f": {operation.error.code}: {operation.error.message}" if operation.error else ""
        detail = f"{operation.operation_id} {steps.title(operation)}{error}"
        rows.append(Entry(operation.ended_at, "operation", operation.status, detail))
    return rows


def _of_step(step: operations.Step, names: dict[str, str]) -> list[Entry]:
    who = names.get(step.member_id, step.member_id)
    label = f"{who} {step.name}".strip()
    rows = [Entry(step.started_at, "step", "started", label)]
    if step.ended_at:
        message = f": {step.message}" if step.message else ""
        rows.append(Entry(step.ended_at, "step", step.state, f"{label}{message}"))
    return rows


def _of_member(member: instances.Member) -> Entry:
    reason = f": {member.status_reason}" if member.status_reason else ""
    detail = f"{member.member_id} {member.component_key} on {member.node_name}{reason}"
    if member.adapter_detail:
        detail += f" [{payload_text(member.adapter_detail)}]"
    return Entry(member.updated_at, "member", member.status, detail)


def _of_event(event: events.Event) -> Entry:
    return Entry(event.occurred_at, "event", event.type, payload_text(event.payload))


def _of_audit(row: audit.AuditRow) -> Entry:
    return Entry(row.occurred_at, "audit", row.action, f"{row.actor_type} {row.actor_id} {row.result} {row.target}")
