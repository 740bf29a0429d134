"""The operation a controller holds, as `access` sees it: what may be issued and delivered for it."""

from gpuaas_contract import errors
from gpuaas_contract.catalog import SecretPurpose
from gpuaas_contract.protocol import request as request_rules

from gpuaas_platform.access.secrets.rules import HeldOperation
from gpuaas_platform.call import Call
from gpuaas_platform.catalog import service as catalog
from gpuaas_platform.instances import store
from gpuaas_platform.kit import db


async def find(call: Call, operation_id: str, epoch: int, reader: db.Reader) -> HeldOperation:
    """Refuses whoever does not hold the operation with its newest epoch."""
    operation = await store.OPERATIONS.get(reader, operation_id)
    if operation is None or operation.project_id != call.params["project_id"]:
        raise errors.NotFound(f"There is no operation {operation_id} in this project.")
    request_rules.check_holder(operation, epoch, call.caller.actor_id)
    instance = await store.INSTANCES.get(reader, operation.instance_id)
    if instance is None:
        raise LookupError(operation.instance_id)
    return HeldOperation(
        operation_id=operation.operation_id,
        instance_id=operation.instance_id,
        org_id=operation.org_id,
        project_id=operation.project_id,
        app_slug=operation.app_slug,
        correlation_id=operation.correlation_id,
        purposes=await _purposes(reader, instance.app_slug, operation.to_version or instance.app_version),
        inputs=(instance.inputs, operation.inputs),
    )


async def _purposes(reader: db.Reader, app_slug: str, version: str) -> tuple[SecretPurpose, ...]:
    """Of the version that is being brought up: an upgrade may need what the one before did not know."""
    manifest = await catalog.manifest_of(reader, app_slug, version)
    return tuple(manifest.secret_purposes)
