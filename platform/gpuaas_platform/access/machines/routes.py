"""Machine access over HTTP: get it, see who has it, take it away."""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract import access
from gpuaas_contract.wire import Page

from gpuaas_platform.access.machines import revoke as revoking
from gpuaas_platform.access.machines import service as grants
from gpuaas_platform.access.machines import store
from gpuaas_platform.call import Call, Routes
from gpuaas_platform.kit import db

routes = Routes()


@routes.prepared_write(access.MACHINE_ACCESS, grants.with_signing_key)
async def machine_access(
    call: Call, tx: db.Tx, asked: tuple[access.RequestMachineAccess, Ed25519PrivateKey]
) -> access.MachineAccess:
    body, signing_key = asked
    return await grants.grant(tx, call, call.params["allocation_id"], body, signing_key)


@routes.read(access.GRANT_LIST)
async def list_grants(call: Call, reader: db.Reader) -> Page[access.MachineGrant]:
    where, values = store.where(call.params["project_id"], call.query)
    return await call.page(reader, store.GRANTS, where, *values)


@routes.write(access.GRANT_REVOKE)
async def revoke_grant(call: Call, tx: db.Tx, body: access.RevokeGrant) -> access.MachineGrant:
    call.details["reason"] = body.reason
    return await revoking.revoke(tx, call, call.params["grant_id"], body.reason)
