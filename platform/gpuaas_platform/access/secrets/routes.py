"""Runtime secrets over HTTP: who holds which operation is known here, the rest is `access`."""

import functools

from gpuaas_contract import secrets
from gpuaas_contract.wire import NoBody, Page

from gpuaas_platform.access.secrets import service as secrets_service
from gpuaas_platform.access.secrets import store as secrets_store
from gpuaas_platform.call import Call, Routes
from gpuaas_platform.instances import service as instances
from gpuaas_platform.kit import db
from gpuaas_platform.operations import fence

routes = Routes()


@routes.flow(secrets.SECRET_ISSUE)
async def issue_secret(call: Call, body: secrets.IssueSecret) -> secrets.IssuedSecret:
    find_held = functools.partial(fence.held, call=call, operation_id=call.params["operation_id"], epoch=body.epoch)
    return await secrets_service.issue(call, find_held, body)


@routes.flow(secrets.DELIVERY_OPEN)
async def open_delivery(call: Call, body: secrets.OpenDelivery) -> secrets.OpenedDelivery:
    find_held = functools.partial(fence.held, call=call, operation_id=body.operation_id, epoch=body.epoch)
    return await secrets_service.open_delivery(call, find_held, call.params["delivery_id"])


@routes.read(secrets.SECRET_LIST)
async def list_secrets(call: Call, reader: db.Reader) -> Page[secrets.RuntimeSecret]:
    instance = await instances.named(reader, call)
    return await call.page(reader, secrets_store.SECRETS, "instance_id = $1", instance.instance_id)


@routes.write(secrets.SECRET_REVOKE)
async def revoke_secret(call: Call, tx: db.Tx, _: NoBody) -> secrets.RuntimeSecret:
    instance = await instances.named(tx, call)
    return await secrets_service.revoke(tx, call, instance.instance_id, call.params["secret_id"])
