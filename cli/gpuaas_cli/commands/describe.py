"""`gpuaas describe`: gather what belongs to a thing; `story` words it."""

import datetime
from typing import Annotated, Any

import msgspec
import typer
from gpuaas_contract.holds import HOLD_LIST
from gpuaas_contract.instances import ROLE_LIST
from gpuaas_contract.operations import OPERATION_LIST, Operation
from gpuaas_contract.runtime import CONTROLLER_LIST

from gpuaas_cli import failures, output
from gpuaas_cli.client import lookup, session
from gpuaas_cli.flags import Flags
from gpuaas_cli.runner import run
from gpuaas_cli.show import story

app = run.command_group()

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name or id.")]


@app.callback()
def describe() -> None:
    """The whole story of one thing, on one page."""


@run.command(app)
def instance(context: typer.Context, name: Name) -> int:
    """An instance: status, conditions, versions, controllers, roles, members, holds, operations, and what failed.

    Example: gpuaas describe instance slurm
    """
    return _show(context, _instance, name)


@run.command(app)
def operation(context: typer.Context, name: Name) -> int:
    """An operation: its steps, members, error and fix, and the ways out you may take.

    Example: gpuaas describe operation op_01k9z0c5p3v2m8q7r6t5w4x3y2
    """
    return _show(context, _operation, name)


@run.command(app)
def member(
    context: typer.Context, name: Name, instance: Annotated[str, typer.Option(help="Look in this instance only.")] = ""
) -> int:
    """A member, by id or node: status, what the app says of it, its last steps.

    Example: gpuaas describe member gpu-2
    """

    async def gather(opened: session.Session, named: str) -> tuple[story.Lines, Any]:
        found = await lookup.member(opened, named, instance)
        operations = await _operations(opened, found.instance_id)
        data = {"member": found, "operations": [one for one in operations if _concerns(one, found.member_id)]}
        return story.of_member(found, operations, _now()), data

    return _show(context, gather, name)


async def _instance(opened: session.Session, named: str) -> tuple[story.Lines, Any]:
    found = await lookup.instance(opened, named)
    around = story.Surroundings(
        members=await lookup.all_members(opened, found.instance_id),
        operations=await _operations(opened, found.instance_id),
        roles=(await opened.call(ROLE_LIST, instance_id=found.instance_id)).items,
        holds=await opened.every(HOLD_LIST, instance_id=found.instance_id),
        controllers=await opened.every(CONTROLLER_LIST),
    )
    return story.of_instance(found, around, _now()), {"instance": found, **vars(around)}


async def _operation(opened: session.Session, named: str) -> tuple[story.Lines, Any]:
    found = await lookup.operation(opened, named)
    members = await lookup.all_members(opened, found.instance_id)
    return story.of_operation(found, members, _now()), {"operation": found, "members": members}


async def _operations(opened: session.Session, instance_id: str) -> list[Operation]:
    return await opened.every(OPERATION_LIST, query={"instance_id": instance_id})


def _show(context: typer.Context, gather: Any, name: str) -> int:
    flags: Flags = run.flags_of(context)
    lines, data = session.run(flags, lambda opened: gather(opened, name))
    if flags.output in ("json", "yaml"):
        print(output.encoded(flags.output, msgspec.to_builtins(data)))
    else:
        print("\n".join(lines))
    return failures.OK


def _concerns(operation: Operation, member_id: str) -> bool:
    return any(target.member_id == member_id for target in operation.targets)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
