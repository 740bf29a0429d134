"""Load an operation; refuse a caller that has not claimed it or that sends an older epoch."""

from gpuaas_contract import errors
from gpuaas_contract.operations import OperationHead
from gpuaas_contract.paths import ProjectPath
from gpuaas_contract.protocol import request as request_rules

from gpuaas_platform.call import Call
from gpuaas_platform.catalog import service as catalog
from gpuaas_platform.instances import service as instances
from gpuaas_platform.instances import stewardships
from gpuaas_platform.kit import db, structs
from gpuaas_platform.operations import read, store
from gpuaas_platform.operations.rules import NEEDS_ENTITLEMENT, ClaimedOperation

_EPOCHS_RAISED_BY = 1_000_000
"""More than the claims that one operation can get between a backup and its restore."""


async def raise_epochs(tx: db.Tx) -> int:
    """After a restore, refuse every controller that claimed an operation or took a stewardship before or after the
    backup was made: their epochs are lower from now on. Return the number of open operations, which have to be claimed
    again."""
    await stewardships.raise_epochs(tx, _EPOCHS_RAISED_BY)
    return await store.raise_epochs(tx, _EPOCHS_RAISED_BY)


async def check(reader: db.Reader, call: Call[ProjectPath], operation_id: str, epoch: int) -> OperationHead:
    """Return the operation; refuse unless the caller has claimed it and `epoch` is the newest."""
    operation = await read.head(reader, call, operation_id)
    request_rules.check_holder(operation, epoch, call.caller)
    return operation


async def check_entitled(reader: db.Reader, operation: OperationHead) -> None:
    """Refuse access for an operation that deploys something new if the project's entitlement is disabled."""
    if operation.kind not in NEEDS_ENTITLEMENT:
        return
    if not await catalog.entitled(reader, [(operation.project_id, operation.app_slug)]):
        raise errors.NotEntitled(f"The project may no longer deploy {operation.app_slug}.")


async def claimed(reader: db.Reader, call: Call[ProjectPath], operation_id: str, epoch: int) -> ClaimedOperation:
    """Return the operation if the caller has claimed it, with the data for checks of secrets and credentials.

    The purposes are those of the version that the operation deploys: an upgrade may need new ones."""
    operation = await check(reader, call, operation_id, epoch)
    await check_entitled(reader, operation)
    instance = await instances.get(reader, operation.instance_id)
    manifest = await catalog.manifest_of(reader, instance.app_slug, operation.to_version or instance.app_version)
    purposes, inputs = tuple(manifest.secret_purposes), (instance.inputs, operation.inputs)
    return structs.pick(ClaimedOperation, operation, purposes=purposes, inputs=inputs)
