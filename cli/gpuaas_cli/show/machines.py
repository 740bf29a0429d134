"""Pure: what is to be said of a node and of the people on an allocation, as lines."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuaas_contract.agents import NodeTask
from gpuaas_contract.capacity import Node, NodeAllocation
from gpuaas_contract.ssh_keys import AllocationKeys

from gpuaas_cli.output import age, aligned, cell, clean, clock_time
from gpuaas_cli.show import states
from gpuaas_cli.show.story import facts, section

Lines = list[str]


def of_node(node: Node, allocations: Sequence[NodeAllocation]) -> Lines:
    return [
        *facts(
            {
                "Node": f"{node.name} ({node.node_id})",
                "Status": f"{node.status}, heard {age(node.last_seen_at)} ago",
                "State": f"{node.admin_state}: {node.admin_reason}" if node.admin_reason else node.admin_state,
                "Sold as": f"{node.sku} in {node.region}",
                "GPUs": ", ".join(f"{count} {kind}" for kind, count in node.gpus_by_type.items()) or "none",
                "CPUs": str(node.facts.cpus),
                "Memory": f"{node.facts.memory_mb} MB",
                "Disk": f"{node.facts.disk_gb} GB" if node.facts.disk_gb else "",
                "System": " ".join(filter(None, (node.facts.os, node.facts.kernel, node.facts.architecture))),
                "Address": node.address,
                "Host key": node.ssh_host_public_key,
                "Agent": node.agent_version,
                "Boot": node.boot_id,
                "Enrolled": clock_time(node.enrolled_at),
            }
        ),
        *section("Work on it", _allocations(allocations)),
    ]


def of_task(task: NodeTask, node: Node) -> Lines:
    return [
        *facts(
            {
                "Task": task.task_id,
                "Node": f"{node.name} ({node.node_id})",
                "Type": task.type,
                "For": task.subject_id,
                "State": task.state,
                "Issued": clock_time(task.issued_at),
                "Until": clock_time(task.expires_at),
                "Correlation": task.correlation_id,
            }
        ),
        *section("Error", [f"{task.error.code}: {clean(task.error.message)}"] if task.error else []),
        *section("Result", _values(task.result)),
    ]


def of_facts(node: Node, task: NodeTask) -> Lines:
    return [*facts({"Node": f"{node.name} ({node.node_id})"}), *section("What it says of itself", _values(task.result))]


def of_health(found: Iterable[tuple[Node, NodeTask]]) -> Lines:
    """A line for each check of each node."""
    rows = [["NODE", "CHECK", "OK", "WHY"]]
    for node, task in found:
        for check in task.result.get("checks", []):
            rows.append(_check(node, str(check["name"]), ok=bool(check["ok"]), why=str(check["message"])))
        if task.state != "succeeded":
            rows.append(_check(node, "answers", ok=False, why=states.why_not(task)))
    return aligned(rows)


def of_drain(left: Mapping[str, Sequence[NodeAllocation]]) -> Lines:
    """Whose work keeps each node from being empty."""
    lines: Lines = []
    for name, allocations in left.items():
        if not allocations:
            lines.append(f"{name} is empty: gpuaas node retire {name} --reason REASON")
        else:
            lines += [
                f"{name} waits for its owners, who were told:",
                *(f"  {line}" for line in _allocations(allocations)),
            ]
    return lines


def of_people(keys: AllocationKeys) -> Lines:
    rows = [["NAME", "KEYS", "WHY_NOT"]]
    for person in keys.people:
        rows.append([cell(person.name, spaces=False), str(len(person.fingerprints)), cell(person.why_not, spaces=True)])
    state = (
        f"the machine has this since {clock_time(keys.installed_at)}" if keys.installed_at else "nothing is on it yet"
    )
    if keys.state == "pending":
        state = f"the machine does not have this yet{f': {keys.error}' if keys.error else ''}"
    return [*(aligned(rows) if keys.people else ["Nobody's keys are on it."]), state]


def _allocations(allocations: Sequence[NodeAllocation]) -> Lines:
    if not allocations:
        return []
    rows = [["ALLOCATION", "STATUS", "PROJECT", "BY", "USED_BY"]]
    for one in allocations:
        words = (one.allocation_id, one.status, one.project_id, one.requested_by, ",".join(one.used_by_instance_ids))
        rows.append([cell(word, spaces=False) for word in words])
    return aligned(rows)


def _check(node: Node, name: str, *, ok: bool, why: str) -> list[str]:
    return [node.name, cell(name, spaces=False), "yes" if ok else "no", cell(why, spaces=True)]


def _values(result: Mapping[str, Any]) -> Lines:
    """What a node answered, value by value; its words are the agent's, so they are shown as they are."""
    plain = {name: value if isinstance(value, str) else json.dumps(value) for name, value in result.items()}
    return aligned([[cell(name, spaces=False), cell(text, spaces=True)] for name, text in plain.items()])
