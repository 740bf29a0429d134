"""The catalog over HTTP, and the question "may I?", which the keys of apps are part of."""

import asyncio

from gpuaas_contract import catalog, errors, policy
from gpuaas_contract.permissions import KEYS
from gpuaas_contract.wire import Page

from gpuaas_platform.call import Call, Routes
from gpuaas_platform.catalog import manifests, permissions, service, store
from gpuaas_platform.kit import db, tables
from gpuaas_platform.policy import service as policy_service

routes = Routes()


async def _sound(_: Call, body: catalog.Manifest) -> catalog.Manifest:
    """A large manifest takes a second to check: nobody else's write waits for it, and no other request."""
    await asyncio.to_thread(manifests.check, body)
    return body


@routes.prepared_write(catalog.VERSION_REGISTER, _sound)
async def register(call: Call, tx: db.Tx, body: catalog.Manifest) -> catalog.AppVersion:
    return await service.register(tx, call, body)


@routes.write(catalog.VERSION_PUBLISH)
async def publish(call: Call, tx: db.Tx, body: catalog.PublishVersion) -> catalog.AppVersion:
    return await service.publish(tx, call, call.params["app_slug"], call.params["version"], body.channels)


@routes.write(catalog.VERSION_DEPRECATE)
async def deprecate(call: Call, tx: db.Tx, body: catalog.RetireVersion) -> catalog.AppVersion:
    return await service.retire(tx, call, call.params["app_slug"], call.params["version"], "deprecated", body.reason)


@routes.write(catalog.VERSION_WITHDRAW)
async def withdraw(call: Call, tx: db.Tx, body: catalog.RetireVersion) -> catalog.AppVersion:
    return await service.retire(tx, call, call.params["app_slug"], call.params["version"], "withdrawn", body.reason)


@routes.read(catalog.VERSION_LIST)
async def list_versions(call: Call, reader: db.Reader) -> Page[catalog.AppVersion]:
    return await call.page(reader, store.VERSIONS, "1 = 1")


@routes.read(catalog.VERSION_GET)
async def get_version(call: Call, reader: db.Reader) -> catalog.AppVersion:
    return await service.registered(reader, call.params["app_slug"], call.params["version"])


@routes.read(catalog.PROJECT_APP_LIST)
async def list_project_apps(call: Call, reader: db.Reader) -> Page[catalog.AppVersion]:
    """A page is filtered after it was read, so it may hold fewer than were asked for."""
    project, query = call.in_project(), call.query
    found, token = await tables.page(
        store.VERSIONS, reader, store.SHOWN, [project.project_id], size=query.page_size, token=query.page_token
    )
    return Page(items=await service.shown(reader, project, found), next_page_token=token)


@routes.read(catalog.PROJECT_APP_GET)
async def get_project_app(call: Call, reader: db.Reader) -> catalog.AppVersion:
    app_slug, version = call.params["app_slug"], call.params["version"]
    found = await store.version(reader, app_slug, version)
    shown = await service.shown(reader, call.in_project(), [found] if found is not None else [])
    if not shown:
        raise errors.NotFound(f"This project has no app {app_slug} {version}.")
    return shown[0]


async def _only_people(call: Call, body: catalog.SetEntitlement) -> catalog.SetEntitlement:
    """No service account's role holds the permission, and this check does not rest on that."""
    if call.caller.actor_type != "user":
        permission = catalog.ENTITLEMENT_SET.permission
        raise await permissions.denial(call, permission, "Only a person can change entitlements.")
    return body


@routes.authorised_write(catalog.ENTITLEMENT_SET, _only_people)
async def set_entitlement(call: Call, tx: db.Tx, body: catalog.SetEntitlement) -> catalog.Entitlement:
    return await service.set_entitlement(tx, call, call.params["app_slug"], body)


@routes.read(catalog.ENTITLEMENT_LIST)
async def list_entitlements(call: Call, reader: db.Reader) -> Page[catalog.Entitlement]:
    return await call.page(reader, store.ENTITLEMENTS, "project_id = $1", call.params["project_id"])


@routes.read(catalog.ENTITLEMENT_GET)
async def get_entitlement(call: Call, reader: db.Reader) -> catalog.Entitlement:
    return await service.entitlement_of(reader, call.params["project_id"], call.params["app_slug"])


@routes.flow(policy.CAN_I)
async def can_i(call: Call, body: policy.CanI) -> policy.CanIAnswer:
    """Outside a project nobody learns which keys apps declared: there, each is just not held, declared or not."""
    reader = call.site.database.reader
    if body.permission not in KEYS and not (body.project_id and permissions.may_be_an_apps(body.permission)):
        raise errors.ValidationFailed(
            f"There is no permission {body.permission}.",
            details={"field": "permission"},
            fix="GET /api/v1/me shows your roles; for a permission of an app, name the project too.",
        )
    holders = await permissions.holders(reader, body.permission, body.project_id, app_slug=body.app)
    return await policy_service.can_i(reader, call, body, holders)
