"""`gpuaas node task`: what nodes were told to do, and what became of it."""

from typing import Annotated

import msgspec
import typer
from gpuaas_contract.agents import NODE_TASK_GET, NODE_TASK_LIST, NodeTask
from gpuaas_contract.capacity import Node

from gpuaas_cli import failures, kinds, output
from gpuaas_cli.client import lookup, session
from gpuaas_cli.runner import run
from gpuaas_cli.show import machines

app = run.command_group()

NodeName = Annotated[str, typer.Argument(metavar="NODE", help="Name or id.")]


@app.callback()
def task() -> None:
    """A task is one signed thing a node was told to do; ended ones are kept for a while."""


@run.command(app, "list")
def list_tasks(context: typer.Context, node: NodeName) -> int:
    """What a node was told to do lately.

    Example: gpuaas node task list gpu-1
    """

    async def work(opened: session.Session) -> tuple[Node, list[NodeTask]]:
        found = await lookup.node(opened, node)
        return found, await opened.every(NODE_TASK_LIST, node_id=found.node_id)

    flags = run.flags_of(context)
    found, tasks = session.run(flags, work)
    kinds.show_tasks(flags, tasks, {found.node_id: found.name})
    return failures.OK


@run.command(app)
def describe(
    context: typer.Context, node: NodeName, task: Annotated[str, typer.Argument(metavar="TASK", help="Its id.")]
) -> int:
    """One task with its result or its error.

    Example: gpuaas node task describe gpu-1 task_01k9z0c5p3v2m8q7r6t5w4x3y2
    """

    async def work(opened: session.Session) -> tuple[Node, NodeTask]:
        found = await lookup.node(opened, node)
        return found, await opened.call(NODE_TASK_GET, node_id=found.node_id, task_id=task)

    flags = run.flags_of(context)
    found, whole = session.run(flags, work)
    if flags.output in ("json", "yaml"):
        print(output.encoded(flags.output, msgspec.to_builtins(whole)))
    else:
        print("\n".join(machines.of_task(whole, found)))
    return failures.OK
