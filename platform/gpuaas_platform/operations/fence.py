"""The one place that loads an operation and refuses a caller who does not hold it with its newest epoch."""

from gpuaas_contract.operations import OperationHead
from gpuaas_contract.paths import ProjectPath
from gpuaas_contract.protocol import request as request_rules

from gpuaas_platform.call import Call
from gpuaas_platform.catalog import service as catalog
from gpuaas_platform.instances import service as instances
from gpuaas_platform.kit import db, structs
from gpuaas_platform.operations import read
from gpuaas_platform.operations.rules import ClaimedOperation


async def check(reader: db.Reader, call: Call[ProjectPath], operation_id: str, epoch: int) -> OperationHead:
    """Return the operation that the caller holds; refuse all other callers."""
    operation = await read.head(reader, call, operation_id)
    request_rules.check_holder(operation, epoch, call.caller.actor_id)
    return operation


async def claimed(reader: db.Reader, call: Call[ProjectPath], operation_id: str, epoch: int) -> ClaimedOperation:
    """Return the operation that the caller holds, with what secrets and credentials are checked against.

    The purposes are those of the version that is being brought up: an upgrade may need new ones."""
    operation = await check(reader, call, operation_id, epoch)
    instance = await instances.get(reader, operation.instance_id)
    manifest = await catalog.manifest_of(reader, instance.app_slug, operation.to_version or instance.app_version)
    purposes, inputs = tuple(manifest.secret_purposes), (instance.inputs, operation.inputs)
    return structs.pick(ClaimedOperation, operation, purposes=purposes, inputs=inputs)
