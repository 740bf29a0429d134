"""`gpuaas node`: let nodes in, look at them, take them out of use.

gpuaas node
    A node is a machine whose agent has registered with the platform.
gpuaas node token gpu-1
    Print a token with which one node can enrol, once.
    --sku: What the node is sold as; left out: as before, or standard.
    --region: Where it is; left out: as before, or local.
    --ttl-s: Seconds until the token expires.
gpuaas node list -o wide
    Every node.
gpuaas node get gpu-1
    Show one node: its hardware, its state and the allocation on it.
gpuaas node inspect gpu-1
    Have nodes report their hardware and system now instead of with the next heartbeat.
gpuaas node health gpu-1 gpu-2
    Have nodes check their disk, memory, sshd and GPUs. Exit status 0: all are healthy; 1: at least one is not.
gpuaas node set gpu-1 gpu-2 --sku h100x8 --reason "new cards"
    Set SKU and region of nodes. Existing allocations are not changed.
    --reason
    --sku: New SKU (product name) of the nodes; by default unchanged.
    --region: New region of the nodes; by default unchanged.
gpuaas node cordon gpu-1 gpu-2 --reason "firmware on Monday"
    Prevent new allocations on nodes. Existing allocations stay.
gpuaas node uncordon gpu-1 --reason "firmware is done"
    Allow new allocations on cordoned or draining nodes again.
gpuaas node drain gpu-1 --reason "bad fan"
    Prevent new allocations on nodes and ask the owners of existing ones to move. Shows which allocations are left.
gpuaas node retire gpu-1 --reason "sold"
    Remove nodes permanently: the platform no longer accepts their agents. Refused while an allocation is on a node.
gpuaas node sanitise gpu-1 --reason "before the next tenant"
    Have the provisioner reinstall nodes now; they are clean once they have enrolled again.
gpuaas node mark-sanitised gpu-1 --reason "reinstalled by hand"
    Declare that you reinstalled nodes, so that every project may claim them. The nodes must have enrolled again.
gpuaas node task
    A task is one signed instruction to a node. Tasks that ended are listed for some time.
gpuaas node task list gpu-1
    List the recent tasks of a node.
gpuaas node task describe gpu-1 task_01k9z0c5p3v2m8q7r6t5w4x3y2
    Show one task of a node with its result or error.
"""

import msgspec
from gpuaas_contract import agents, capacity

from gpuaas_cli import failures, output, terminal
from gpuaas_cli.output import table
from gpuaas_cli.runner import Call, Command, fixed, nothing
from gpuaas_cli.show import machines
from gpuaas_cli.work import waits


async def _token(call: Call) -> capacity.EnrolmentToken:
    made: capacity.EnrolmentToken = await call.send()
    if call.dry_run:  # this token was not stored, so it admits no node
        return msgspec.structs.replace(made, token="")
    if not call.flags.structured_whole:
        output.talk(f"Works once, for a node named {made.name}, until {output.clock_time(made.expires_at)}.")
        if made.ca_sha256:
            output.talk(f"The node must find the certificate authority {made.ca_sha256}.")
    return made


def _page(made: capacity.EnrolmentToken) -> list[str]:
    return [made.token or f"would admit a node named {made.name}, once, until {output.clock_time(made.expires_at)}"]


async def _get(call: Call) -> capacity.Node:
    node: capacity.Node = await call.send()
    if call.flags.structured:
        call.show(node)
    else:
        allocations = (await call.session.call(capacity.NODE_ALLOCATIONS, node_id=node.node_id)).items
        terminal.out("\n".join(machines.of_node(node, allocations)))
    return node


Inspected = list[tuple[capacity.Node, agents.NodeTask]]


async def _inspect(call: Call) -> Inspected:
    """Create the tasks for all nodes before waiting for the first one."""
    nodes = [await call.session.call(capacity.NODE_GET, node_id=name) for name in call.targets]
    tasks = [await call.send(node.node_id) for node in nodes]
    if not call.dry_run:
        tasks = await waits.all_ended(call.session, tasks, nodes)
    return list(zip(nodes, tasks, strict=True))


def _show_inspected(call: Call, matches: Inspected) -> int:
    """Show the facts or the health of the nodes; with structured output or a dry run, show the tasks."""
    is_health = call.sent["type"] == "host.health"
    if call.flags.structured or call.dry_run:
        names = {node.node_id: node.name for node, _ in matches}
        output.show(call.flags, [task for _, task in matches], machines.tasks(names))
    elif is_health:
        terminal.out("\n".join(machines.of_health(matches)))
    else:
        terminal.out("\n\n".join("\n".join(machines.of_facts(node, task)) for node, task in matches))
    for node, task in matches:
        if task.state != "succeeded" and not call.dry_run:
            raise waits.failure(task, node)
    healthy = call.dry_run or not is_health or all(task.result.get("ok") for _, task in matches)
    return failures.OK if healthy else failures.FAILED


def _check_set(call: Call) -> None:
    if not (call["sku"] or call["region"]):
        raise failures.usage("Name a SKU or a region", "gpuaas node set NODE --sku SKU --reason REASON")


def _show_drained(call: Call, drained: list[capacity.NodeDrain]) -> None:
    call.show([item.node for item in drained])
    left: dict[str, list[capacity.NodeAllocation]] = {item.node.name: item.allocations for item in drained}
    for line in machines.of_drain(left):
        output.talk(line)


async def _tasks(call: Call) -> list[agents.NodeTask]:
    node = await call.session.call(capacity.NODE_GET, node_id=call["node_id"])
    tasks = await call.session.every(agents.NODE_TASK_LIST, node_id=node.node_id)
    output.show(call.flags, tasks, machines.tasks({node.node_id: node.name}))
    return tasks


async def _describe_task(call: Call) -> agents.NodeTask:
    node = await call.session.call(capacity.NODE_GET, node_id=call["node_id"])
    matches: agents.NodeTask = await call.send()
    output.show_page(call.flags, matches, machines.of_task(matches, node))
    return matches


_FACTS, _HEALTH = {"type": fixed("host.facts")}, {"type": fixed("host.health")}
COMMANDS = {
    "node token": Command(capacity.ENROLMENT_CREATE, work=_token, table=table("TOKEN"), page=_page),
    "node list": Command(capacity.NODE_LIST, fields={"name": None, "admin_state": None}),
    "node get": Command(capacity.NODE_GET, work=_get, show=nothing, also=(capacity.NODE_ALLOCATIONS,)),
    "node inspect": Command(agents.NODE_INSPECT, many=True, fields=_FACTS, work=_inspect, show=_show_inspected),
    "node health": Command(agents.NODE_INSPECT, many=True, fields=_HEALTH, work=_inspect, show=_show_inspected),
    "node set": Command(capacity.NODE_SET, many=True, check=_check_set, reads=capacity.NODE_GET),
    "node cordon": Command(capacity.NODE_CORDON, many=True),
    "node uncordon": Command(capacity.NODE_UNCORDON, many=True),
    "node drain": Command(capacity.NODE_DRAIN, many=True, show=_show_drained),
    "node retire": Command(capacity.NODE_RETIRE, many=True),
    "node sanitise": Command(capacity.NODE_SANITISE, many=True),
    "node mark-sanitised": Command(capacity.NODE_MARK_SANITISED, many=True),
    "node task list": Command(agents.NODE_TASK_LIST, work=_tasks, show=nothing),
    "node task describe": Command(agents.NODE_TASK_GET, work=_describe_task, show=nothing),
}
