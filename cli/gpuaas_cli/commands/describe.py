"""`gpuaas describe`: gather what belongs to a thing; `story` puts it on one page.

gpuaas describe
    Show all details of an instance, a member, an operation or a controller.
gpuaas describe instance slurm
    An instance: status, conditions, versions, controllers, roles, members, holds, operations, and what failed.
    name NAME: Name or id.
gpuaas describe operation op_01k9z0c5p3v2m8q7r6t5w4x3y2
    An operation: its steps, members, error and fix, and the exits you may take.
    name NAME: Name or id.
gpuaas describe member gpu-2
    A member, by id, node or node/role: status, what the app reports of it, its last steps.
    name NAME: Name or id.
    --instance: Search the member in this instance only.
gpuaas describe controller slurm@gpu-1
    A controller, by name or id: what fails in it, since when, and the newest lines of its log.
    name NAME: Name or id.
"""

from typing import Any

import msgspec
from gpuaas_contract.capacity import ALLOCATION_GET
from gpuaas_contract.controllers import CONTROLLER_LIST, CONTROLLER_LOG
from gpuaas_contract.errors import NotFound
from gpuaas_contract.holds import HOLD_LIST
from gpuaas_contract.instances import INSTANCE_GET, INSTANCE_LIST, MEMBER_GET, MEMBER_LIST, ROLE_LIST, Member
from gpuaas_contract.operations import OPERATION_GET, OPERATION_LIST, OPERATION_STEPS, Operation

from gpuaas_cli import failures, kinds, output
from gpuaas_cli.client.session import Session
from gpuaas_cli.runner import Call, Command
from gpuaas_cli.show import controllers, story
from gpuaas_cli.work import follow

OPERATIONS_READ = 200
"""An instance has more operations each day. `gpuaas get operations --instance NAME` lists all."""


async def _instance(call: Call) -> tuple[output.Lines, Any]:
    connection = call.session
    result = await connection.call(INSTANCE_GET, instance_id=call["name"])
    around = story.Surroundings(
        members=await kinds.members(connection, result.instance_id),
        operations=await _operations(connection, result.instance_id),
        roles=(await connection.call(ROLE_LIST, instance_id=result.instance_id)).items,
        holds=await connection.every(HOLD_LIST, instance_id=result.instance_id),
        controllers=await connection.every(CONTROLLER_LIST),
    )
    return story.of_instance(result, around), {"instance": result, **vars(around)}


async def _operation(call: Call) -> tuple[output.Lines, Any]:
    connection = call.session
    result = await _with_steps(connection, await connection.call(OPERATION_GET, operation_id=call["name"]))
    members, names = await kinds.members(connection, result.instance_id), await follow.names_in(connection, result)
    return story.of_operation(result, members, names), {"operation": result, "members": members}


async def _member(call: Call) -> tuple[output.Lines, Any]:
    result = await _find_member(call.session, call["name"], call["instance"])
    operations = await _operations(call.session, result.instance_id, result.last_operation_id)
    about = story.operations_on(result, operations)
    return story.of_member(result, operations), {"member": result, "operations": about}


async def _controller(call: Call) -> tuple[output.Lines, Any]:
    known = await call.session.every(CONTROLLER_LIST)
    named = [item for item in known if call["name"] in (item.holder, item.controller_id)]
    if not named:
        raise failures.not_found(f"There is no controller {call['name']}", "gpuaas get controllers")
    if len(named) > 1:
        ids = ", ".join(item.controller_id for item in named)
        raise failures.usage(f"Several controllers have this name: {ids}", "gpuaas describe controller ID")
    [controller] = named
    lines = await call.session.every(CONTROLLER_LOG, query={"controller_id": controller.controller_id})
    return controllers.page(controller, lines), {"controller": controller, "log": lines}


async def _find_member(connection: Session, named: str, instance: str) -> Member:
    """Find a member in the given instance, else in the instances that use the node, else in every live instance."""
    for instance_id in [instance] if instance else await _instances(connection, named):
        try:
            return await connection.call(MEMBER_GET, instance_id=instance_id, member_id=named)
        except NotFound:
            continue
    raise failures.not_found(f"There is no member {named}", "gpuaas get members")


async def _instances(connection: Session, named: str) -> list[str]:
    try:
        allocation = await connection.call(ALLOCATION_GET, allocation_id=named.partition("/")[0])
    except NotFound:
        return [item.instance_id for item in await connection.every(INSTANCE_LIST, query={"live": "true"})]
    return allocation.used_by_instance_ids


async def _operations(connection: Session, instance_id: str, wanted: str = "") -> list[Operation]:
    """Return the newest changes, the oldest of them first: no previews and no actions, which can be many. The list has
    no steps, so they are read for one operation only: for `wanted`, or else for the last that failed."""
    query = {"instance_id": instance_id, "order": "newest", "changes": "true"}
    newest, _ = await connection.first(OPERATIONS_READ, OPERATION_LIST, query=query)
    if wanted and not any(item.operation_id == wanted for item in newest):
        newest.append(await connection.call(OPERATION_GET, operation_id=wanted))
    operations = newest[::-1]
    failed = [item.operation_id for item in operations if item.status == "failed"]
    shown = wanted or (failed[-1] if failed else "")
    return [await _with_steps(connection, item) if item.operation_id == shown else item for item in operations]


async def _with_steps(connection: Session, operation: Operation) -> Operation:
    steps = await connection.every(OPERATION_STEPS, operation_id=operation.operation_id)
    return msgspec.structs.replace(operation, steps=steps)


def _show(call: Call, gathered: tuple[output.Lines, Any]) -> None:
    lines, data = gathered
    output.show_page(call.flags, data, lines)


_OF_INSTANCE = (INSTANCE_GET, ROLE_LIST, MEMBER_LIST, HOLD_LIST, OPERATION_LIST, CONTROLLER_LIST)
_OF_MEMBER = (MEMBER_GET, INSTANCE_LIST, ALLOCATION_GET, OPERATION_LIST, OPERATION_GET)
COMMANDS = {
    "describe instance": Command(calls=_OF_INSTANCE, work=_instance, show=_show),
    "describe operation": Command(calls=(OPERATION_GET, OPERATION_STEPS, MEMBER_LIST), work=_operation, show=_show),
    "describe member": Command(calls=_OF_MEMBER, work=_member, show=_show),
    "describe controller": Command(calls=(CONTROLLER_LIST, CONTROLLER_LOG), work=_controller, show=_show),
}
