"""Runtime secrets over HTTP: who holds which operation is known here, the rest is `access`."""

import functools

from gpuaas_contract import errors, secrets
from gpuaas_contract.catalog import SecretPurpose
from gpuaas_contract.instances import Instance
from gpuaas_contract.wire import NoBody, Page

from gpuaas_platform.access import secrets_service, secrets_store
from gpuaas_platform.access.secrets_rules import HeldOperation
from gpuaas_platform.call import Call, Routes
from gpuaas_platform.catalog import service as catalog
from gpuaas_platform.instances import rules, service, store
from gpuaas_platform.kit import db

routes = Routes()


@routes.flow(secrets.SECRET_ISSUE)
async def issue_secret(call: Call, body: secrets.IssueSecret) -> secrets.IssuedSecret:
    find_held = functools.partial(_held, call, call.params["operation_id"], body.epoch)
    return await secrets_service.issue(call, find_held, body)


@routes.flow(secrets.DELIVERY_OPEN)
async def open_delivery(call: Call, body: secrets.OpenDelivery) -> secrets.OpenedDelivery:
    find_held = functools.partial(_held, call, body.operation_id, body.epoch)
    return await secrets_service.open_delivery(call, find_held, call.params["delivery_id"])


@routes.read(secrets.SECRET_LIST)
async def list_secrets(call: Call, reader: db.Reader) -> Page[secrets.RuntimeSecret]:
    instance = await service.in_project(reader, call, call.params["instance_id"])
    return await call.page(reader, secrets_store.SECRETS, "instance_id = $1", instance.instance_id)


@routes.write(secrets.SECRET_REVOKE)
async def revoke_secret(call: Call, tx: db.Tx, _: NoBody) -> secrets.RuntimeSecret:
    instance = await service.in_project(tx, call, call.params["instance_id"])
    return await secrets_service.revoke(tx, call, instance.instance_id, call.params["secret_id"])


async def _held(call: Call, operation_id: str, epoch: int, reader: db.Reader) -> HeldOperation:
    operation = await store.OPERATIONS.get(reader, operation_id)
    if operation is None or operation.project_id != call.params["project_id"]:
        raise errors.NotFound(f"There is no operation {operation_id} in this project.")
    rules.check_holder(operation, epoch, call.caller.actor_id)
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
        purposes=await _purposes(reader, instance),
    )


async def _purposes(reader: db.Reader, instance: Instance) -> tuple[SecretPurpose, ...]:
    manifest = await catalog.manifest_of(reader, instance.app_slug, instance.app_version)
    return tuple(manifest.secret_purposes)
