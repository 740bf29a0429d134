"""Read operations: the head alone, or with its targets and steps, as the caller needs it."""

from collections.abc import Sequence

from gpuaas_contract import errors
from gpuaas_contract.operations import Operation, OperationHead, OperationListQuery, Step
from gpuaas_contract.paths import OperationPath, ProjectPath
from gpuaas_contract.wire import Page

from gpuaas_platform.call import Call
from gpuaas_platform.kit import db, paging, tables
from gpuaas_platform.operations import store


async def head(reader: db.Reader, call: Call[ProjectPath], operation_id: str) -> OperationHead:
    """Return an operation of the call's project, without targets and steps."""
    operation = await store.get(reader, operation_id)
    if operation is None or operation.project_id != call.path.project_id:
        raise errors.NotFound(f"There is no operation {operation_id} in this project.")
    return operation


async def named(reader: db.Reader, call: Call[OperationPath]) -> Operation:
    """Return the operation in the path of the call, with its targets and latest steps."""
    return await shown(reader, await head(reader, call, call.path.operation_id))


async def heads_by_id(reader: db.Reader, operation_ids: Sequence[str]) -> dict[str, OperationHead]:
    """Return the operations with these ids in one statement; ids that do not exist are left out."""
    if not operation_ids:
        return {}
    heads = await store.heads(reader, f"operation_id IN ({db.marks(len(operation_ids))})", *operation_ids)
    return {operation.operation_id: operation for operation in heads}


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


async def page(reader: db.Reader, call: Call[ProjectPath, OperationListQuery]) -> Page[Operation]:
    heads = await store.page(reader, call.query, call.path.project_id)
    items = await with_targets(reader, heads.items)
    return Page(items=items, next_page_token=heads.next_page_token)


async def steps_page(reader: db.Reader, call: Call[OperationPath]) -> Page[Step]:
    operation = await head(reader, call, call.path.operation_id)

    async def read(after: str, limit: int) -> list[tuple[int, Step]]:
        if after and not after.isdecimal():
            raise tables.PageTokenInvalid(after)
        return await store.steps_after(reader, operation.operation_id, int(after or 0), call.query.changed_since, limit)

    rows = await paging.page("operation_steps", call.query, read, lambda row: str(row[0]))
    return Page(items=[step for _, step in rows.items], next_page_token=rows.next_page_token)
