"""Pure: turn an operation into what a watcher reads. `follow` prints these lines, `live` draws the same facts."""

import datetime
from collections.abc import Mapping, Sequence

from gpuaas_contract.instances import Member
from gpuaas_contract.operations import ASKING_KINDS, INSTANCE_KINDS, ExitName, Operation, Step

from gpuaas_cli.output import aligned, clean, duration

Key = tuple[str, str]
Seen = dict[Key, tuple[str, str]]
"""Step -> state and message that were shown last."""


def key(step: Step) -> Key:
    return step.name, step.member_id


def names_of(members: Sequence[Member]) -> dict[str, str]:
    """What people call each member: its node; with the role where a node carries several."""
    roles: dict[str, set[str]] = {}
    for member in members:
        roles.setdefault(member.node_name, set()).add(member.component_key)
    return {
        item.member_id: f"{item.node_name}/{item.component_key}" if len(roles[item.node_name]) > 1 else item.node_name
        for item in members
    }


def moved(operation: Operation, names: Mapping[str, str], nodes: Mapping[str, str]) -> dict[str, str]:
    """Names of members that an operation moves: `gpu-2->gpu-5`, for its steps run on both machines. `nodes` has the
    node of each allocation."""
    result = dict(names)
    for target in operation.targets:
        old, new = nodes.get(target.previous_allocation_id, ""), nodes.get(target.allocation_id, "")
        if target.allocation_id and new not in ("", old):
            result[target.member_id] = f"{old or names.get(target.member_id, target.member_id)}->{new}"
    return result


def news(operation: Operation, seen: Seen, names: Mapping[str, str], now: datetime.datetime) -> list[str]:
    """One line per step that changed since `seen`, oldest first; `seen` is brought up to date. A message that changes
    while its step runs is of `now`."""
    lines: list[tuple[float, str]] = []
    for step in operation.steps:
        state = (step.state, step.message)
        if seen.get(key(step)) == state:
            continue
        changed_at = now if key(step) in seen else step.started_at
        seen[key(step)] = state
        moment = (step.ended_at or changed_at) - operation.created_at
        lines.append((moment.total_seconds(), line(step, moment.total_seconds(), names)))
    return [text for _, text in sorted(lines, key=lambda pair: pair[0])]


def line(step: Step, elapsed_s: float, names: Mapping[str, str]) -> str:
    who = names.get(step.member_id, step.member_id) or "-"
    message = f"  {clean(step.message)}" if step.message else ""
    return f"{duration(elapsed_s):>7}  {who}  {step.name}  {step.state}{message}"


def outcome(operation: Operation) -> str:
    took = duration(elapsed_s(operation, operation.ended_at or operation.created_at))
    word = "in" if operation.status == "succeeded" else "after"
    return f"{title(operation)} {operation.status} {word} {took}"


def title(operation: Operation) -> str:
    """`deploy slurm`, `drain 2 workers of slurm`, `action flush of slurm`."""
    if operation.kind in INSTANCE_KINDS:
        to_version = f" to {operation.to_version}" if operation.to_version else ""
        return f"{operation.kind} {operation.instance_name}{to_version}"
    if operation.kind in ASKING_KINDS:
        return f"{operation.kind} {operation.action or operation.preview_of} of {operation.instance_name}"
    count = len(operation.targets)
    what = operation.component_key or "member"
    return f"{operation.kind} {count} {what}{'s' if count != 1 else ''} of {operation.instance_name}"


def waiting(operation: Operation) -> str:
    return f"waiting for the {operation.app_slug} controller to take the operation"


def ways_out(operation: Operation) -> list[str]:
    """Commands that end an operation which has stopped, ready to be pasted; then those the caller may not use."""
    mine = [[exit_command(operation, item.name), f"# {item.meaning}"] for item in operation.exits if item.permitted]
    others = [f"{_word(item.name)} needs {item.permission}" for item in operation.exits if not item.permitted]
    return [*aligned(mine), *others]


def exit_command(operation: Operation, name: ExitName) -> str:
    return f"gpuaas op {_word(name)} {operation.operation_id} --reason REASON"


def elapsed_s(operation: Operation, now: datetime.datetime) -> float:
    return (now - operation.created_at).total_seconds()


def step_s(step: Step, now: datetime.datetime) -> float:
    return ((step.ended_at or now) - step.started_at).total_seconds()


def _word(name: ExitName) -> str:
    return name.replace("_", "-")
