"""Emit events of an instance, and of the operations on it."""

from gpuaas_contract.instances import Instance
from gpuaas_contract.operations import OperationHead
from gpuaas_contract.wire import Wire

from gpuaas_platform.call import Origin
from gpuaas_platform.kit import db
from gpuaas_platform.record import service as record

Subject = Instance | OperationHead


async def emit(
    tx: db.Tx, origin: Origin, kind: str, of: Subject, payload: Wire, cause: OperationHead | None = None
) -> None:
    """Emit an event. If an operation is its subject or cause, it gets the operation's correlation id."""
    operation = of if isinstance(of, OperationHead) else cause
    under = operation.correlation_id if operation else ""
    await record.emit(
        tx, origin, kind, payload, of, app_slug=of.app_slug, app_instance_id=of.instance_id, correlation_id=under
    )
