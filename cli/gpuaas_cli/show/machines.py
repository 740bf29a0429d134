"""Format nodes, their tasks, and the users of an allocation as lines of text."""

import json
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from gpuaas_contract import agents, capacity, ssh_keys

from gpuaas_cli.output import Lines, Table, age, aligned, cell, clock_time, facts, listing, table
from gpuaas_cli.show.story import section

_NODE = table(
    "Node Status State Tenancy Sanitised Sold_as GPUs CPUs=facts.cpus Memory Disk System Address "
    "Host_key=ssh_host_public_key Agent=agent_version Boot=boot_id Enrolled=enrolled_at",
    Node=lambda node: f"{node.name} ({node.node_id})",
    Status=lambda node: f"{node.status}, last heartbeat {age(node.last_seen_at)} ago",
    State=lambda node: f"{node.admin_state}: {node.admin_reason}" if node.admin_reason else node.admin_state,
    Tenancy=lambda node: _tenancy(node),
    Sanitised=lambda node: f"{age(node.sanitised_at)} ago by {node.sanitised_by}" if node.sanitised_at else "",
    Sold_as=lambda node: f"{node.sku} in {node.region}",
    GPUs=lambda node: ", ".join(f"{count} {kind}" for kind, count in node.gpus_by_type.items()) or "none",
    Memory=lambda node: f"{node.facts.memory_mb} MB",
    Disk=lambda node: f"{node.facts.disk_gb} GB" if node.facts.disk_gb else "",
    System=lambda node: " ".join(filter(None, (node.facts.os, node.facts.kernel, node.facts.architecture))),
)
_ALLOCATIONS = table("ALLOCATION=allocation_id STATUS PROJECT=project_id BY=requested_by USED_BY=used_by_instance_ids")
_CHECKS = table("NODE CHECK OK WHY")
_PEOPLE = table("NAME KEYS WHY_NOT", KEYS=lambda person: str(len(person.fingerprints)))


def of_node(node: capacity.Node, allocations: Sequence[capacity.NodeAllocation]) -> Lines:
    work = section("Work on it", listing(allocations, _ALLOCATIONS))
    return [*facts(node, _NODE), *work, *section("Next", _next(node))]


def _tenancy(node: capacity.Node) -> str:
    if node.tenancy == "used":
        return f"used by {node.used_by_project_id or 'several projects'}; no other project gets it"
    return f"{node.tenancy}: {node.tenancy_reason}" if node.tenancy_reason else node.tenancy


def _next(node: capacity.Node) -> Lines:
    """Return the commands that make a node clean; empty if it is clean or has work on it."""
    if node.tenancy not in ("used", "quarantined") or node.allocation_id is not None:
        return []
    return [
        f"gpuaas node sanitise {node.name} --reason REASON  # the provisioner reinstalls it",
        f"gpuaas node token {node.name}  # or reinstall it yourself and enrol it again with this token,",
        f"gpuaas node mark-sanitised {node.name} --reason REASON  # then declare it clean",
    ]


def of_task(task: agents.NodeTask, node: capacity.Node) -> Lines:
    shape = table(
        "Task=task_id Node Type For=subject_id State Issued=issued_at Until=expires_at Correlation=correlation_id",
        Node=lambda _: f"{node.name} ({node.node_id})",
    )
    return [
        *facts(task, shape),
        *section("Error", [f"{task.error.code}: {task.error.message}"] if task.error else []),
        *section("Result", _values(task.result)),
    ]


def tasks(node_names: Mapping[str, str]) -> Table:
    """Return the table of tasks. `node_names` has node names by id, because a task has only the id."""
    return table(
        "TASK=task_id NODE TYPE STATE AGE=issued_at FOR=subject_id* CORRELATION=correlation_id* WHY",
        NODE=lambda task: node_names.get(task.node_id, task.node_id),
        WHY=why_not,
    )


def of_facts(node: capacity.Node, task: agents.NodeTask) -> Lines:
    return [f"Node  {node.name} ({node.node_id})", *section("What it reports", _values(task.result))]


def of_health(matches: Iterable[tuple[capacity.Node, agents.NodeTask]]) -> Lines:
    """Return one line per node and health check."""
    rows = []
    for node, task in matches:
        for check in task.result.get("checks", []):
            rows.append(SimpleNamespace(node=node.name, check=check["name"], ok=check["ok"], why=check["message"]))
        if task.state != "succeeded":
            rows.append(SimpleNamespace(node=node.name, check="answers", ok=False, why=why_not(task)))
    return listing(rows, _CHECKS)


def why_not(task: agents.NodeTask) -> str:
    """Return why a node's task failed or expired; empty for other states."""
    if task.error:
        return task.error.message
    return "the node did not take the task in time; is its agent running?" if task.state == "expired" else ""


def of_drain(left: Mapping[str, Sequence[capacity.NodeAllocation]]) -> Lines:
    """Return lines with the allocations that are still on each node."""
    lines: Lines = []
    for name, allocations in left.items():
        if allocations:
            lines.append(f"{name} waits for its owners, who have been informed:")
            lines += [f"  {line}" for line in listing(allocations, _ALLOCATIONS)]
        else:
            lines.append(f"{name} is empty: gpuaas node retire {name} --reason REASON")
    return lines


def of_people(keys: ssh_keys.AllocationKeys) -> Lines:
    state = (
        f"on the machine since {clock_time(keys.installed_at)}" if keys.installed_at else "no key is on the machine yet"
    )
    if keys.state == "pending":
        state = f"not on the machine yet{f': {keys.error}' if keys.error else ''}"
    return [*(listing(keys.people, _PEOPLE) or ["No person's keys are on it."]), state]


def _values(result: Mapping[str, Any]) -> Lines:
    """Return one line per value of the agent's result."""
    plain = {name: value if isinstance(value, str) else json.dumps(value) for name, value in result.items()}
    return aligned([[cell(name, spaces=False), cell(text, spaces=True)] for name, text in plain.items()])
