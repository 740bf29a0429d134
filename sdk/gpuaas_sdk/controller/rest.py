"""Read the members of an instance at a moment when no operation of some kinds works on them. Used by operations and by
looks between operations."""

from collections.abc import Awaitable, Callable, Collection

from gpuaas_contract.instances import Member
from gpuaas_contract.lifecycles import ENDED_OPERATION, GONE_MEMBER
from gpuaas_contract.operations import Operation, OperationKind

ReadMembers = Callable[[], Awaitable[tuple[Member, ...]]]
ReadOperation = Callable[[str], Awaitable[Operation]]


async def members_at_rest(
    read_members: ReadMembers, read_operation: ReadOperation, kinds: Collection[OperationKind]
) -> tuple[Member, ...] | None:
    """Return every member, also those that are gone, read now; None if an operation of one of these kinds works on one.

    What a caller observed before, and what no member has, was then not made by such an operation. The members are read
    twice: an operation that ended between may have changed them. A replace that failed counts as working."""
    if not kinds:
        return await read_members()
    live = [member for member in await read_members() if member.status not in GONE_MEMBER]
    for operation_id in sorted({member.last_operation_id for member in live} - {""}):
        operation = await read_operation(operation_id)
        if operation.kind in kinds and _is_at_work(operation):
            return None
    return await read_members()


def _is_at_work(operation: Operation) -> bool:
    """A replace that failed has a new machine that no member has, until it is retried or undone."""
    return operation.status not in ENDED_OPERATION or (operation.kind == "replace" and operation.status == "failed")
