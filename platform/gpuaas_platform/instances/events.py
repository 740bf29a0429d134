"""Emit events of an instance."""

from gpuaas_contract.instances import Instance
from gpuaas_contract.wire import Wire

from gpuaas_platform.call import Origin
from gpuaas_platform.kit import db
from gpuaas_platform.record import service as record


async def emit(
    tx: db.Tx, origin: Origin, kind: str, instance: Instance, payload: Wire, *, correlation_id: str = ""
) -> None:
    """Emit an event of the instance. `correlation_id` is the one of the operation that caused it, if there is one."""
    await record.emit(
        tx,
        origin,
        kind,
        payload,
        instance,
        app_slug=instance.app_slug,
        app_instance_id=instance.instance_id,
        correlation_id=correlation_id or origin.correlation_id,
    )
