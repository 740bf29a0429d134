"""`gpuaas describe`: gather what belongs to a thing; `story` puts it on one page.

gpuaas describe
    Everything about one thing, on one page.
"""

from typing import Annotated, Any

import msgspec
import typer
from gpuaas_contract.capacity import ALLOCATION_GET
from gpuaas_contract.errors import NotFound
from gpuaas_contract.holds import HOLD_LIST
from gpuaas_contract.instances import INSTANCE_GET, INSTANCE_LIST, MEMBER_GET, MEMBER_LIST, ROLE_LIST, Member
from gpuaas_contract.operations import OPERATION_GET, OPERATION_LIST, OPERATION_STEPS, Operation
from gpuaas_contract.runtime import CONTROLLER_LIST

from gpuaas_cli import failures, kinds, output
from gpuaas_cli.client import session
from gpuaas_cli.runner import run
from gpuaas_cli.show import story
from gpuaas_cli.work import follow

app = run.group("describe", __doc__)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name or id.")]


@run.by_hand(app, reaches=(INSTANCE_GET, ROLE_LIST, MEMBER_LIST, HOLD_LIST, OPERATION_LIST, CONTROLLER_LIST))
def instance(context: typer.Context, name: Name) -> None:
    """An instance: status, conditions, versions, controllers, roles, members, holds, operations, and what failed.

    Example: gpuaas describe instance slurm
    """
    _show(context, _instance, name)


@run.by_hand(app, reaches=(OPERATION_GET, OPERATION_STEPS, MEMBER_LIST))
def operation(context: typer.Context, name: Name) -> None:
    """An operation: its steps, members, error and fix, and the exits you may take.

    Example: gpuaas describe operation op_01k9z0c5p3v2m8q7r6t5w4x3y2
    """
    _show(context, _operation, name)


@run.by_hand(app, reaches=(MEMBER_GET, INSTANCE_LIST, ALLOCATION_GET, OPERATION_LIST))
def member(
    context: typer.Context, name: Name, instance: Annotated[str, typer.Option(help="Look in this instance only.")] = ""
) -> None:
    """A member, by id, node or node/role: status, what the app reports of it, its last steps.

    Example: gpuaas describe member gpu-2
    """

    async def gather(connection: session.Session, named: str) -> tuple[output.Lines, Any]:
        result = await _member(connection, named, instance)
        operations = await _operations(connection, result.instance_id, result.last_operation_id)
        about = story.operations_on(result, operations)
        return story.of_member(result, operations), {"member": result, "operations": about}

    _show(context, gather, name)


async def _instance(connection: session.Session, named: str) -> tuple[output.Lines, Any]:
    result = await connection.call(INSTANCE_GET, instance_id=named)
    around = story.Surroundings(
        members=await kinds.members(connection, result.instance_id),
        operations=await _operations(connection, result.instance_id),
        roles=(await connection.call(ROLE_LIST, instance_id=result.instance_id)).items,
        holds=await connection.every(HOLD_LIST, instance_id=result.instance_id),
        controllers=await connection.every(CONTROLLER_LIST),
    )
    return story.of_instance(result, around), {"instance": result, **vars(around)}


async def _operation(connection: session.Session, named: str) -> tuple[output.Lines, Any]:
    result = await _with_steps(connection, await connection.call(OPERATION_GET, operation_id=named))
    members, names = await kinds.members(connection, result.instance_id), await follow.names_in(connection, result)
    return story.of_operation(result, members, names), {"operation": result, "members": members}


async def _member(connection: session.Session, named: str, instance: str) -> Member:
    """In the instance that was named, else in those that use the node, else in every live one."""
    for instance_id in [instance] if instance else await _instances(connection, named):
        try:
            return await connection.call(MEMBER_GET, instance_id=instance_id, member_id=named)
        except NotFound:
            continue
    raise failures.not_found(f"There is no member {named}", "gpuaas get members")


async def _instances(connection: session.Session, named: str) -> list[str]:
    try:
        allocation = await connection.call(ALLOCATION_GET, allocation_id=named.partition("/")[0])
    except NotFound:
        return [item.instance_id for item in await connection.every(INSTANCE_LIST, query={"live": "true"})]
    return allocation.used_by_instance_ids


async def _operations(connection: session.Session, instance_id: str, wanted: str = "") -> list[Operation]:
    """With the steps of the operation that is wanted, else of the one that failed last: a list leaves steps out."""
    operations = await connection.every(OPERATION_LIST, query={"instance_id": instance_id})
    failed = [item.operation_id for item in operations if item.status == "failed"]
    shown = wanted or (failed[-1] if failed else "")
    return [await _with_steps(connection, item) if item.operation_id == shown else item for item in operations]


async def _with_steps(connection: session.Session, operation: Operation) -> Operation:
    steps = await connection.every(OPERATION_STEPS, operation_id=operation.operation_id)
    return msgspec.structs.replace(operation, steps=steps)


def _show(context: typer.Context, gather: Any, name: str) -> None:
    flags = run.flags_of(context)
    lines, data = session.run(flags, lambda connection: gather(connection, name))
    output.show_page(flags, data, lines)
