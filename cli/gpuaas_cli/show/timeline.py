"""Pure: everything that carries one correlation id, as one list in time order. For `gpuaas triage`."""

import datetime
from dataclasses import dataclass

from gpuaas_contract import correlations, instances, operations

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
    for event in bundle.events:
        if event.type != "apps.operation.step":  # steps are on the operation already, with their durations
            rows.append(Entry(event.occurred_at, "event", event.type, payload_text(event.payload)))
    for row in bundle.audit or ():
        detail = f"{row.actor_type} {row.actor_id} {row.result} {row.target}"
        rows.append(Entry(row.occurred_at, "audit", row.action, detail))
    return sorted(rows, key=lambda entry: entry.at)


def _of_operation(operation: operations.Operation, names: dict[str, str]) -> list[Entry]:
    about = f"{operation.operation_id} {steps.title(operation)}"
    rows = [Entry(operation.created_at, "operation", "accepted", about)]
    for step in operation.steps:
        label = f"{names.get(step.member_id, step.member_id)} {step.name}".strip()
        rows.append(Entry(step.started_at, "step", "started", label))
        if step.ended_at:
            message = f": {step.message}" if step.message else ""
            rows.append(Entry(step.ended_at, "step", step.state, f"{label}{message}"))
    if operation.ended_at:
        error = f": {operation.error.code}: {operation.error.message}" if operation.error else ""
        rows.append(Entry(operation.ended_at, "operation", operation.status, f"{about}{error}"))
    return rows


def _of_member(member: instances.Member) -> Entry:
    reason = f": {member.status_reason}" if member.status_reason else ""
    reported = f" [{payload_text(member.adapter_detail)}]" if member.adapter_detail else ""
    detail = f"{member.member_id} {member.component_key} on {member.node_name}{reason}{reported}"
    return Entry(member.updated_at, "member", member.status, detail)
