"""Format operations as lines of text: the steps of a running one, the plan of a `--dry-run`, the timeline of `triage`.
`work.follow` prints the lines of a running operation, `work.live` draws the same data."""

import datetime
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuaas_contract.controllers import ControllerLogLine
from gpuaas_contract.correlations import CorrelatedTask, Correlation, RefusedRequest
from gpuaas_contract.events import Event
from gpuaas_contract.instances import Member
from gpuaas_contract.operations import ASKING_KINDS, INSTANCE_KINDS, LogLine, Operation, PlannedChange, Preview, Step

from gpuaas_cli.output import aligned, clock_time, duration, flat, listing, payload_text, table

Key = tuple[str, str]
Seen = dict[Key, tuple[str, str]]
"""Step -> state and message that were last shown."""


def key(step: Step) -> Key:
    return step.name, step.member_id


def names_of(members: Sequence[Member]) -> dict[str, str]:
    """Return a name for each member id: the node, with the role if the node has several roles."""
    roles = Counter(node for node, _ in {(member.node_name, member.component_key) for member in members})
    return {
        item.member_id: f"{item.node_name}/{item.component_key}" if roles[item.node_name] > 1 else item.node_name
        for item in members
    }


def moved(operation: Operation, names: Mapping[str, str], nodes: Mapping[str, str]) -> dict[str, str]:
    """Return the names, with `gpu-2->gpu-5` for a member that the operation moves, because its steps run on both
    machines. `nodes` has the node of each allocation."""
    result = dict(names)
    for target in operation.targets:
        old, new = nodes.get(target.previous_allocation_id, ""), nodes.get(target.allocation_id, "")
        if target.allocation_id and new not in ("", old):
            result[target.member_id] = f"{old or names.get(target.member_id, target.member_id)}->{new}"
    return result


def news(operation: Operation, seen: Seen, names: Mapping[str, str], now: datetime.datetime) -> list[str]:
    """Return one line per step that changed since `seen`, oldest first, and update `seen`. If the message of a running
    step changed, `now` is the time of the change."""
    changes: list[tuple[datetime.datetime, Step]] = []
    for step in operation.steps:
        if seen.get(key(step)) != (step.state, step.message):
            changed_at = step.ended_at or (now if key(step) in seen else step.started_at)
            changes.append((changed_at, step))
            seen[key(step)] = (step.state, step.message)
    changes.sort(key=lambda change: change[0])
    return [_line(step, duration(operation.created_at, changed_at), names) for changed_at, step in changes]


def _line(step: Step, after: str, names: Mapping[str, str]) -> str:
    who = names.get(step.member_id, step.member_id) or "-"
    message = f"  {flat(step.message)}" if step.message else ""
    return f"{after:>7}  {who}  {flat(step.name)}  {step.state}{message}"


def outcome(operation: Operation) -> str:
    word = "in" if operation.status == "succeeded" else "after"
    after = duration(operation.created_at, operation.ended_at or operation.created_at)
    return f"{title(operation)} {operation.status} {word} {after}"


def title(operation: Operation) -> str:
    """Return a short title: `deploy slurm`, `drain 2 workers of slurm`, `action flush of slurm`."""
    if operation.kind in INSTANCE_KINDS:
        to_version = f" to {operation.to_version}" if operation.to_version else ""
        return f"{operation.kind} {operation.instance_name}{to_version}"
    if operation.kind in ASKING_KINDS:
        return f"{operation.kind} {operation.action or operation.preview_of} of {operation.instance_name}"
    count = len(operation.targets)
    what = operation.component_key or "member"
    where = {"add": "to", "remove": "from"}.get(operation.kind, "of")
    return f"{operation.kind} {count} {what}{'s' if count != 1 else ''} {where} {operation.instance_name}"


def kind(operation: Operation) -> str:
    """Return the kind for a table; with the name of the action, or of what is previewed: `action/users.list`."""
    named = operation.action or operation.preview_of
    return f"{operation.kind}/{named}" if named and operation.kind in ASKING_KINDS else operation.kind


def waiting(operation: Operation) -> str:
    return f"waiting for the {operation.app_slug} controller to take the operation"


def exit_commands(operation: Operation) -> list[str]:
    """Return the exits as commands to paste, then the exits for which the caller has no permission."""
    mine, others = [], []
    for item in operation.exits:
        word = item.name.replace("_", "-")
        if item.permitted:
            mine.append([f"gpuaas op {word} {operation.operation_id} --reason REASON", f"# {item.meaning}"])
        else:
            others.append(f"{word} needs {item.permission}")
    return [*aligned(mine), *others]


def plan(operation: Operation, about: str, names: Mapping[str, str], now: datetime.datetime) -> list[str]:
    """Return what a change would do, and which work it would interrupt, as the app's controller reports. It is not
    asked about actions: what was checked is in the notes."""
    is_action = operation.kind == "action"
    preview = _preview(operation.preview, names, now, is_asked=not is_action) if operation.preview else []
    verb = "run " if is_action else ""
    return [f"would {verb}{title(operation)}: {about}", *(f"  {line}" for line in preview)]


def _preview(preview: Preview, names: Mapping[str, str], now: datetime.datetime, *, is_asked: bool) -> list[str]:
    notes = [flat(note) for note in preview.notes]
    refusal = [f"would be refused: {flat(preview.refusal)}"] if preview.refusal else []
    if not preview.answered:
        unknown = "it is unknown which work this would interrupt, so do not assume that it is safe"
        return [*([unknown] if is_asked else []), *notes]
    if refusal and not preview.source:  # the app was not asked for work
        return [*refusal, *notes]
    count = len(preview.running_work)
    work = f"{count} running piece{'s' if count != 1 else ''} of work" if count else "affects no running work"
    at_stake = f", {preview.gpu_hours_at_stake:g} GPU-hours at stake" if preview.gpu_hours_at_stake else ""
    seen = f", {duration(preview.observed_at, now)} ago" if preview.observed_at else ""
    shape = table(
        "WORK=work_id ON OWNER GPUS RUNS_FOR ENDS",
        ON=lambda work: ",".join(names.get(member_id, member_id) for member_id in work.member_ids),
        RUNS_FOR=lambda work: duration(work.started_at, now) if work.started_at else "",
        ENDS=lambda work: clock_time(work.ends_at) if work.ends_at else "unknown",
    )
    return [
        *refusal,
        f"{work}{at_stake} (seen by {flat(preview.source) or 'the app controller'}{seen})",
        *(f"  {line}" for line in listing(preview.running_work, shape)),
        *([f"nothing would be interrupted after {clock_time(preview.done_by)}"] if preview.done_by else []),
        *(_change(change) for change in preview.changes),
        *(f"cannot be undone: {flat(lost)}" for lost in preview.irreversible),
        *notes,
    ]


def _change(change: PlannedChange) -> str:
    effect = f" ({flat(change.effect)})" if change.effect else ""
    return f"changes {flat(change.subject)}: {flat(change.before) or 'none'} → {flat(change.after) or 'none'}{effect}"


def moment(value: datetime.datetime) -> str:
    """Return a time with milliseconds, because many entries of a timeline have the same second."""
    return f"{value.astimezone(datetime.UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


@dataclass(frozen=True)
class Entry:
    at: datetime.datetime
    source: str
    what: str
    detail: str


def timeline(bundle: Correlation) -> list[Entry]:
    """Return everything with one correlation id, in time order."""
    names, known = names_of(bundle.members), {operation.operation_id for operation in bundle.operations}
    rows = [entry for operation in bundle.operations for entry in _operation_entries(operation, names)]
    rows += [_member_entry(member) for member in bundle.members]
    for event in bundle.events:
        if event.type != "apps.operation.step":  # steps are already listed from the operation, with durations
            rows.append(Entry(event.occurred_at, "event", event.type, payload_text(_payload(event, known))))
    for row in bundle.audit or ():
        detail = f"{row.actor_type} {row.actor_id} {row.result} {row.target}"
        rows.append(Entry(row.occurred_at, "audit", row.action, detail))
    rows += [_refused_entry(request) for request in bundle.refused]
    rows += [entry for task in bundle.node_tasks for entry in _task_entries(task)]
    rows += [_log_entry(line) for line in bundle.log]
    return sorted(rows, key=lambda entry: entry.at)


def _payload(event: Event, operation_ids: Collection[str]) -> dict[str, Any]:
    """Return the payload of an event, without the operation if there is only one: its id is on other lines."""
    is_known = len(operation_ids) == 1 and event.payload.get("operation_id") in operation_ids
    return {key: value for key, value in event.payload.items() if not (is_known and key == "operation_id")}


def _refused_entry(request: RefusedRequest) -> Entry:
    who = request.actor_name or request.actor_id
    detail = f"{request.route} by {request.actor_type} {who}: {request.message} Fix: {request.fix}"
    return Entry(request.occurred_at, "refused", request.code, detail)


def log_detail(line: LogLine | ControllerLogLine) -> str:
    """Return the fields of a log line as one text. A command on a machine is shown as it was typed."""
    fields = dict(line.fields)
    transcript = fields.pop("transcript", None)
    ran = _command(transcript) if isinstance(transcript, dict) else ""
    return "  ".join(part for part in (ran, payload_text({k: v for k, v in fields.items() if v != ""})) if part)


def _command(transcript: dict[str, Any]) -> str:
    argv = " ".join(str(word) for word in transcript.get("argv", ()))
    status = transcript.get("exit_status")
    ended = f"exit {status}" if status is not None else f"no answer: {transcript.get('error') or 'stopped'}"
    return f"{transcript.get('machine', '')}: {argv} ({ended}, {transcript.get('duration_ms', 0)} ms)"


def _log_entry(line: LogLine) -> Entry:
    level = "" if line.level == "info" else f"{line.level.upper()}  "
    return Entry(line.logged_at, "log", line.event, f"{level}{log_detail(line)}")


def _task_entries(task: CorrelatedTask) -> list[Entry]:
    about = f"{task.task_id} on {task.node_name or task.node_id}"
    rows = [Entry(task.issued_at, "node task", "queued", f"{task.type} {about}")]
    if task.ended_at:
        took = f" in {duration(task.started_at, task.ended_at)}" if task.started_at else ""
        result = f" [{payload_text(task.result)}]" if task.result else ""
        error = f": {task.error.code}: {task.error.message}" if task.error else ""
        rows.append(Entry(task.ended_at, "node task", task.state, f"{task.type} {about}{took}{result}{error}"))
    return rows


def _operation_entries(operation: Operation, names: dict[str, str]) -> list[Entry]:
    about = f"{operation.operation_id} {title(operation)}"
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


def _member_entry(member: Member) -> Entry:
    reason = f": {member.status_reason}" if member.status_reason else ""
    reported = f" [{payload_text(member.adapter_detail)}]" if member.adapter_detail else ""
    detail = f"{member.member_id} {member.component_key} on {member.node_name}{reason}{reported}"
    return Entry(member.updated_at, "member", member.status, detail)
