"""Read operations: put heads, targets and steps together as far as each reader needs them."""

from collections.abc import Sequence

from gpuaas_contract import errors
from gpuaas_contract.operations import Operation, OperationHead, Step
from gpuaas_contract.wire import Page

from gpuaas_platform.call import Call
from gpuaas_platform.kit import db, tables
from gpuaas_platform.operations import store

_OPERATIONS, _STEPS = "operations", "operation_steps"


async def head(reader: db.Reader, call: Call, operation_id: str) -> OperationHead:
    """Return an operation of the call's project, without targets and steps."""
    operation = await store.get(reader, operation_id)
    if operation is None or operation.project_id != call.params["project_id"]:
        raise errors.NotFound(f"There is no operation {operation_id} in this project.")
    return operation


async def heads_by_id(reader: db.Reader, operation_ids: Sequence[str]) -> dict[str, OperationHead]:
    """Return those of the operations that exist, in one statement."""
    return {operation.operation_id: operation for operation in await store.named(reader, operation_ids)}


async def shown(reader: db.Reader, operation: OperationHead) -> Operation:
    """Return the operation with its targets and the steps that changed last."""
    targets = await store.targets(reader, [operation.operation_id])
    steps = await store.latest_steps(reader, operation.operation_id)
    return store.whole(operation, targets[operation.operation_id], steps)


async def whole(reader: db.Reader, operation: OperationHead) -> Operation:
    """Return the operation with all targets and steps."""
    targets = await store.targets(reader, [operation.operation_id])
    return store.whole(operation, targets[operation.operation_id], await store.steps(reader, operation.operation_id))


async def with_targets(reader: db.Reader, heads: Sequence[OperationHead]) -> list[Operation]:
    """Return the operations with their targets, in one statement, without steps."""
    targets = await store.targets(reader, [operation.operation_id for operation in heads])
    return [store.whole(operation, targets[operation.operation_id], ()) for operation in heads]


async def active(reader: db.Reader, instance_id: str) -> list[Operation]:
    """Return the open operations of an instance with their targets."""
    return await with_targets(reader, await store.active(reader, instance_id))


async def page(reader: db.Reader, call: Call) -> Page[Operation]:
    where, values = "project_id = $1", [call.params["project_id"]]
    if call.query.instance_id:
        where, values = "project_id = $1 AND instance_id = $2", [*values, call.query.instance_id]
    size, token = _size(call), call.query.page_token
    after = tables.read_token(_OPERATIONS, token) if token else ""
    heads = await store.page(reader, where, values, after, size + 1)
    items = await with_targets(reader, heads[:size])
    following = tables.write_token(_OPERATIONS, items[-1].operation_id) if len(heads) > size else None
    return Page(items=items, next_page_token=following)


async def steps_page(reader: db.Reader, call: Call) -> Page[Step]:
    operation = await head(reader, call, call.params["operation_id"])
    size, token, since = _size(call), call.query.page_token, call.query.changed_since
    after = _position(token) if token else 0
    found = await store.steps_after(reader, operation.operation_id, after, since, size + 1)
    following = tables.write_token(_STEPS, str(found[size - 1][0])) if len(found) > size else None
    return Page(items=[step for _, step in found[:size]], next_page_token=following)


def _size(call: Call) -> int:
    size: int = call.query.page_size
    return max(1, min(size, tables.PAGE_MAX))


def _position(token: str) -> int:
    position = tables.read_token(_STEPS, token)
    if not position.isdecimal():
        raise tables.PageTokenInvalid(token)
    return int(position)
