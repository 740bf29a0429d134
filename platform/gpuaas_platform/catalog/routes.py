"""The catalog over HTTP."""

from gpuaas_contract import catalog
from gpuaas_contract.wire import NoBody, Page

from gpuaas_platform.call import Call, Routes
from gpuaas_platform.catalog import service, store
from gpuaas_platform.kit import db, tables
from gpuaas_platform.policy import rules as policy_rules
from gpuaas_platform.policy import service as policy

routes = Routes()


@routes.write(catalog.VERSION_REGISTER)
async def register(call: Call, tx: db.Tx, body: catalog.Manifest) -> catalog.AppVersion:
    return await service.register(tx, call, body)


@routes.write(catalog.VERSION_PUBLISH)
async def publish(call: Call, tx: db.Tx, _: NoBody) -> catalog.AppVersion:
    return await service.publish(tx, call.params["app_slug"], call.params["version"])


@routes.read(catalog.VERSION_LIST)
async def list_versions(call: Call, reader: db.Reader) -> Page[catalog.AppVersion]:
    query = call.query
    found, token = await tables.page_as_stored(
        store.VERSIONS, reader, "1 = 1", [], size=query.page_size, token=query.page_token
    )
    return Page(items=found, next_page_token=token)


@routes.read(catalog.PROJECT_APP_LIST)
async def list_project_apps(call: Call, reader: db.Reader) -> Page[catalog.AppVersion]:
    where = f"state = 'published' AND {store.ENTITLED}"
    query = call.query
    found, token = await tables.page(
        store.VERSIONS, reader, where, [call.params["project_id"]], size=query.page_size, token=query.page_token
    )
    layers = await policy.of_project(reader, call.in_project())
    shown = [one for one in found if policy_rules.verdict(layers, "app", one.app_slug).allowed]
    return Page(items=shown, next_page_token=token)


@routes.write(catalog.ENTITLEMENT_SET)
async def set_entitlement(call: Call, tx: db.Tx, body: catalog.SetEntitlement) -> catalog.Entitlement:
    return await service.set_entitlement(tx, call, call.params["app_slug"], body.enabled)
