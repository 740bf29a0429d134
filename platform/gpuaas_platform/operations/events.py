"""Emit events of an operation, under the correlation id of the request that asked for it."""

from gpuaas_contract.operations import OperationHead
from gpuaas_contract.wire import Wire

from gpuaas_platform.call import Origin
from gpuaas_platform.kit import db
from gpuaas_platform.record import service as record


async def emit(tx: db.Tx, origin: Origin, kind: str, operation: OperationHead, payload: Wire) -> None:
    await record.emit(
        tx,
        origin,
        kind,
        payload,
        operation,
        app_slug=operation.app_slug,
        app_instance_id=operation.instance_id,
        correlation_id=operation.correlation_id,
    )
