"""`gpuaas node`: let nodes in, look at them, take them out of use."""

from collections.abc import Awaitable, Callable
from typing import Annotated

import msgspec
import typer
from gpuaas_contract.agents import NODE_INSPECT, InspectNode, NodeTask
from gpuaas_contract.capacity import (
    ENROLMENT_CREATE,
    NODE_ALLOCATIONS,
    NODE_CORDON,
    NODE_DRAIN,
    NODE_GET,
    NODE_RETIRE,
    NODE_SET,
    NODE_UNCORDON,
    ChangeNode,
    CreateEnrolmentToken,
    Node,
    NodeAllocation,
    SetNode,
)
from gpuaas_contract.endpoint import Endpoint

from gpuaas_cli import failures, kinds, output
from gpuaas_cli.client import lookup, session
from gpuaas_cli.commands import node_task
from gpuaas_cli.flags import Flags
from gpuaas_cli.runner import options, run
from gpuaas_cli.runner.options import DryRun, NeededReason
from gpuaas_cli.show import machines
from gpuaas_cli.work import node_tasks

app = run.command_group()
app.add_typer(node_task.app, name="task")

Name = Annotated[str, typer.Argument(metavar="NAME")]
NodeName = Annotated[str, typer.Argument(metavar="NODE", help="Name or id.")]
NodeNames = Annotated[list[str], typer.Argument(metavar="NODE", help="Names or ids.")]


@app.callback()
def node() -> None:
    """Nodes are machines whose agent has enrolled."""


@run.command(app)
def token(
    context: typer.Context,
    name: Name,
    sku: Annotated[str, typer.Option(help="What the node is sold as; left out: as before, or standard.")] = "",
    region: Annotated[str, typer.Option(help="Where it stands; left out: as before, or local.")] = "",
    ttl_s: Annotated[int, typer.Option(min=60, help="Seconds until the token is useless.")] = 3600,
) -> int:
    """Print a token that admits one node, once.

    Example: gpuaas node token gpu-1
    """
    flags = run.flags_of(context)
    body = CreateEnrolmentToken(name=name, sku=sku, region=region, ttl_s=ttl_s)
    made = session.run(flags, lambda opened: opened.call(ENROLMENT_CREATE, body))
    if flags.output in ("json", "yaml"):
        print(output.encoded(flags.output, msgspec.to_builtins(made)))
        return failures.OK
    print(made.token)
    output.talk(f"Works once, for a node named {name}, until {output.clock_time(made.expires_at)}.")
    if made.ca_sha256:
        output.talk(f"The node must find the authority {made.ca_sha256}.")
    return failures.OK


@run.command(app, "list")
def list_nodes(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also retired ones.")] = False,
) -> int:
    """Every node.

    Example: gpuaas node list -o wide
    """
    kinds.list_all(run.flags_of(context), "nodes", kinds.Filters(everything=everything))
    return failures.OK


@run.command(app)
def get(context: typer.Context, node: NodeName) -> int:
    """One node: what it is, how it is, whose work is on it.

    Example: gpuaas node get gpu-1
    """

    async def work(opened: session.Session) -> tuple[Node, list[NodeAllocation]]:
        found = await lookup.node(opened, node)
        whole = await opened.call(NODE_GET, node_id=found.node_id)
        return whole, (await opened.call(NODE_ALLOCATIONS, node_id=found.node_id)).items

    flags = run.flags_of(context)
    found, allocations = session.run(flags, work)
    if flags.output in ("json", "yaml", "name"):
        kinds.show_one(flags, "nodes", found)
    else:
        print("\n".join(machines.of_node(found, allocations)))
    return failures.OK


@run.command(app)
def inspect(context: typer.Context, nodes: NodeNames) -> int:
    """Have nodes look at themselves now, not at their next heartbeat, and say what they are.

    Example: gpuaas node inspect gpu-1
    """
    flags = run.flags_of(context)
    found, tasks = session.run(flags, lambda opened: _ask(opened, nodes, InspectNode(type="host.facts")))
    if flags.structured:
        kinds.show_tasks(flags, tasks, _names(found))
    else:
        print("\n\n".join("\n".join(machines.of_facts(one, task)) for one, task in zip(found, tasks, strict=True)))
    return _verdict(found, tasks)


@run.command(app)
def health(context: typer.Context, nodes: NodeNames) -> int:
    """Have nodes check their disk, memory, sshd and GPUs: 0 all well, 1 not.

    Example: gpuaas node health gpu-1 gpu-2
    """
    flags = run.flags_of(context)
    found, tasks = session.run(flags, lambda opened: _ask(opened, nodes, InspectNode(type="host.health")))
    if flags.structured:
        kinds.show_tasks(flags, tasks, _names(found))
    else:
        print("\n".join(machines.of_health(zip(found, tasks, strict=True))))
    sound = all(task.result.get("ok") for task in tasks)
    return _verdict(found, tasks) or (failures.OK if sound else failures.FAILED)


@run.command(app, "set")
def set_node(
    context: typer.Context,
    nodes: NodeNames,
    reason: NeededReason,
    sku: Annotated[str, typer.Option(help="What it is sold as; left out, it stays.")] = "",
    region: Annotated[str, typer.Option(help="Where it stands; left out, it stays.")] = "",
    dry_run: DryRun = False,
) -> int:
    """Say what nodes are sold as and where they stand; allocations they carry keep what they were given.

    Example: gpuaas node set gpu-1 gpu-2 --sku h100x8 --reason "new cards"
    """
    if not (sku or region):
        raise failures.usage("Nothing is to be set", "gpuaas node set NODE --sku SKU --reason REASON")

    async def change(opened: session.Session, found: Node) -> Node:
        read = await opened.client.read(NODE_GET, node_id=found.node_id)
        body = SetNode(sku=sku or read.answer.sku, region=region or read.answer.region, reason=reason)
        return await opened.call(NODE_SET, body, if_match=read.etag, dry_run=dry_run, node_id=found.node_id)

    return _each(run.flags_of(context), nodes, change)


@run.command(app)
def cordon(context: typer.Context, nodes: NodeNames, reason: NeededReason, dry_run: DryRun = False) -> int:
    """Keep new allocations away from nodes; what they carry stays.

    Example: gpuaas node cordon gpu-1 gpu-2 --reason "firmware on Monday"
    """
    return _each(run.flags_of(context), nodes, _moving(NODE_CORDON, reason, dry_run=dry_run))


@run.command(app)
def uncordon(context: typer.Context, nodes: NodeNames, reason: NeededReason, dry_run: DryRun = False) -> int:
    """Let cordoned or draining nodes take allocations again.

    Example: gpuaas node uncordon gpu-1 --reason "firmware is done"
    """
    return _each(run.flags_of(context), nodes, _moving(NODE_UNCORDON, reason, dry_run=dry_run))


@run.command(app)
def drain(context: typer.Context, nodes: NodeNames, reason: NeededReason, dry_run: DryRun = False) -> int:
    """Cordon nodes and ask the owners of their allocations to move. Shows whose work is still there.

    Example: gpuaas node drain gpu-1 --reason "bad fan"
    """
    flags, body = run.flags_of(context), ChangeNode(reason=reason)
    left: dict[str, list[NodeAllocation]] = {}

    async def change(opened: session.Session, found: Node) -> Node:
        drained = await opened.call(NODE_DRAIN, body, dry_run=dry_run, node_id=found.node_id)
        left[found.name] = drained.allocations
        return drained.node

    _each(flags, nodes, change)
    for line in machines.of_drain(left):
        output.talk(line)
    return failures.OK


@run.command(app)
def retire(context: typer.Context, nodes: NodeNames, reason: NeededReason, dry_run: DryRun = False) -> int:
    """End the identity of nodes for good; refused while an allocation is on them.

    Example: gpuaas node retire gpu-1 --reason "sold"
    """
    return _each(run.flags_of(context), nodes, _moving(NODE_RETIRE, reason, dry_run=dry_run))


Change = Callable[[session.Session, Node], Awaitable[Node]]


def _moving(endpoint: Endpoint[ChangeNode, Node], reason: str, *, dry_run: bool) -> Change:
    async def change(opened: session.Session, found: Node) -> Node:
        return await opened.call(endpoint, ChangeNode(reason=reason), dry_run=dry_run, node_id=found.node_id)

    return change


def _each(flags: Flags, named: list[str], change: Change) -> int:
    """All names are found before the first node changes, so that a typo changes nothing."""

    async def work(opened: session.Session) -> list[Node]:
        found = [await lookup.node(opened, name) for name in options.words(named)]
        return [await change(opened, one) for one in found]

    kinds.show_list(flags, "nodes", session.run(flags, work))
    return failures.OK


async def _ask(opened: session.Session, named: list[str], body: InspectNode) -> tuple[list[Node], list[NodeTask]]:
    found = [await lookup.node(opened, name) for name in options.words(named)]
    tasks = [await opened.call(NODE_INSPECT, body, node_id=one.node_id) for one in found]
    return found, await node_tasks.all_ended(opened, tasks, found)


def _verdict(nodes: list[Node], tasks: list[NodeTask]) -> int:
    for one, task in zip(nodes, tasks, strict=True):
        if task.state != "succeeded":
            raise node_tasks.failure(task, one)
    return failures.OK


def _names(nodes: list[Node]) -> dict[str, str]:
    return {one.node_id: one.name for one in nodes}
