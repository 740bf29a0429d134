"""Service accounts and their keys."""

from gpuaas_contract import identity
from gpuaas_contract.wire import NoBody, Page

from gpuaas_platform.call import Call, Routes
from gpuaas_platform.identity import store
from gpuaas_platform.identity.accounts import service as service_accounts
from gpuaas_platform.identity.tokens import store as token_store
from gpuaas_platform.kit import db, paging, tables

routes = Routes()


@routes.write(identity.SERVICE_ACCOUNT_CREATE)
async def create_service_account(call: Call, tx: db.Tx, body: identity.CreateServiceAccount) -> identity.ServiceAccount:
    return await service_accounts.create(tx, call, body.name)


@routes.read(identity.SERVICE_ACCOUNT_LIST)
async def list_service_accounts(call: Call, reader: db.Reader) -> Page[identity.ServiceAccount]:
    found, token = await tables.page(
        store.SERVICE_ACCOUNTS,
        reader,
        "project_id = $1 AND state <> 'deleted'",
        [call.params["project_id"]],
        size=call.query.page_size,
        token=call.query.page_token,
    )
    return Page(items=found, next_page_token=token)


@routes.read(identity.SERVICE_ACCOUNT_GET)
async def get_service_account(call: Call, reader: db.Reader) -> identity.ServiceAccount:
    return await service_accounts.get(reader, call)


@routes.write(identity.SERVICE_ACCOUNT_DISABLE)
async def disable_service_account(call: Call, tx: db.Tx, _: NoBody) -> identity.ServiceAccount:
    return await service_accounts.disable(tx, call)


@routes.write(identity.SERVICE_ACCOUNT_ENABLE)
async def enable_service_account(call: Call, tx: db.Tx, _: NoBody) -> identity.ServiceAccount:
    return await service_accounts.enable(tx, call)


@routes.write(identity.SERVICE_ACCOUNT_DELETE)
async def delete_service_account(call: Call, tx: db.Tx, _: NoBody) -> identity.ServiceAccount:
    return await service_accounts.delete(tx, call)


@routes.write(identity.SERVICE_ACCOUNT_KEY_CREATE)
async def create_key(call: Call, tx: db.Tx, _: NoBody) -> identity.ServiceAccountKey:
    return await service_accounts.create_key(tx, call)


@routes.read(identity.SERVICE_ACCOUNT_KEY_LIST)
async def list_keys(call: Call, reader: db.Reader) -> Page[identity.ServiceAccountKeyInfo]:
    account = await service_accounts.get(reader, call)
    after, limit = paging.bounds("keys", call.query)
    found = await token_store.keys_of(reader, account.service_account_id, call.now, after=after, limit=limit)
    return paging.page("keys", found, limit, lambda key: key.key_id)


@routes.write(identity.SERVICE_ACCOUNT_KEY_ROTATE)
async def rotate_key(call: Call, tx: db.Tx, body: identity.RotateServiceAccountKey) -> identity.ServiceAccountKey:
    return await service_accounts.rotate_key(tx, call, body.grace_s)


@routes.write(identity.SERVICE_ACCOUNT_KEY_REVOKE)
async def revoke_key(call: Call, tx: db.Tx, _: NoBody) -> identity.ServiceAccountKeyInfo:
    return await service_accounts.revoke_key(tx, call)
