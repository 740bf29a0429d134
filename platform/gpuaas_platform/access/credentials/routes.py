"""Access credentials over HTTP: who holds which operation is known here, the rest is `access`."""

import functools

from gpuaas_contract import credentials
from gpuaas_contract.wire import Page

from gpuaas_platform.access import values as keeping
from gpuaas_platform.access.credentials import service, store
from gpuaas_platform.call import Call, Routes
from gpuaas_platform.kit import db
from gpuaas_platform.operations import fence

routes = Routes()


@routes.flow(credentials.CREDENTIAL_CREATE)
async def create_credential(call: Call, body: credentials.CreateCredential) -> credentials.Credential:
    return await service.create(call, body)


@routes.read(credentials.CREDENTIAL_LIST)
async def list_credentials(call: Call, reader: db.Reader) -> Page[credentials.Credential]:
    return await call.page(reader, store.CREDENTIALS, "project_id = $1", call.params["project_id"])


@routes.read(credentials.CREDENTIAL_GET)
async def get_credential(call: Call, reader: db.Reader) -> credentials.Credential:
    return await service.in_project(reader, call, call.params["credential_id"])


@routes.flow(credentials.CREDENTIAL_ROTATE)
async def rotate_credential(call: Call, body: credentials.RotateCredential) -> credentials.Credential:
    return await service.rotate(call, call.params["credential_id"], body)


@routes.write(credentials.CREDENTIAL_REVOKE)
async def revoke_credential(call: Call, tx: db.Tx, body: credentials.RevokeCredential) -> credentials.Credential:
    call.details["reason"] = body.reason
    return await service.revoke(tx, call, call.params["credential_id"], body.reason)


async def _check_custody(call: Call, body: credentials.DeliverCredential) -> credentials.DeliverCredential:
    with keeping.translated():
        await call.site.custody.check()
    return body


@routes.prepared_write(credentials.CREDENTIAL_DELIVER, _check_custody)
async def deliver_credential(
    call: Call, tx: db.Tx, body: credentials.DeliverCredential
) -> credentials.CredentialDelivery:
    operation = await fence.held(tx, call, call.params["operation_id"], body.epoch)
    return await service.deliver(tx, call, operation, body)


@routes.flow(credentials.CREDENTIAL_OPEN)
async def open_credential(call: Call, body: credentials.OpenCredential) -> credentials.OpenedCredential:
    find_held = functools.partial(fence.held, call=call, operation_id=body.operation_id, epoch=body.epoch)
    return await service.open_delivery(call, find_held, call.params["delivery_id"])
