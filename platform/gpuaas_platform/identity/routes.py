"""Sign-in, who am I, organisations, projects, service accounts."""

from gpuaas_contract import identity
from gpuaas_contract.wire import NoBody, Page

from gpuaas_platform.call import Call, Routes
from gpuaas_platform.identity import rules, service, store
from gpuaas_platform.kit import db, tables

routes = Routes()


@routes.flow(identity.LOGIN)
async def login(call: Call, body: identity.Login) -> identity.Token:
    return await service.login(call, body.name, body.password)


@routes.flow(identity.SERVICE_ACCOUNT_TOKEN)
async def service_account_token(call: Call, body: identity.ServiceAccountLogin) -> identity.Token:
    return await service.service_account_login(call, body.key_id, body.client_secret)


@routes.read(identity.ME)
async def me(call: Call, _: db.Reader) -> identity.Me:
    caller = call.caller
    return identity.Me(
        actor_type=caller.actor_type, actor_id=caller.actor_id, name=caller.name, bindings=list(caller.bindings)
    )


@routes.write(identity.ORG_CREATE)
async def create_org(call: Call, tx: db.Tx, body: identity.CreateOrg) -> identity.Org:
    return await service.create_org(tx, call, body.name)


@routes.read(identity.ORG_LIST)
async def list_orgs(call: Call, reader: db.Reader) -> Page[identity.Org]:
    found, token = await tables.page(
        store.ORGS, reader, "1 = 1", [], size=call.query.page_size, token=call.query.page_token
    )
    if not rules.sees_everything(call.caller.bindings, "identity.org.read"):
        scopes = {binding.scope for binding in call.caller.bindings}
        found = [org for org in found if org.org_id in scopes]
    return Page(items=found, next_page_token=token)


@routes.write(identity.PROJECT_CREATE)
async def create_project(call: Call, tx: db.Tx, body: identity.CreateProject) -> identity.Project:
    return await service.create_project(tx, call, body.name)


@routes.read(identity.PROJECT_LIST)
async def list_projects(call: Call, reader: db.Reader) -> Page[identity.Project]:
    found, token = await tables.page(
        store.PROJECTS, reader, "1 = 1", [], size=call.query.page_size, token=call.query.page_token
    )
    if not rules.sees_everything(call.caller.bindings, "identity.project.read"):
        scopes = {binding.scope for binding in call.caller.bindings}
        found = [project for project in found if project.org_id in scopes or project.project_id in scopes]
    return Page(items=found, next_page_token=token)


@routes.write(identity.SERVICE_ACCOUNT_CREATE)
async def create_service_account(call: Call, tx: db.Tx, body: identity.CreateServiceAccount) -> identity.ServiceAccount:
    return await service.create_service_account(tx, call, body.name)


@routes.read(identity.SERVICE_ACCOUNT_LIST)
async def list_service_accounts(call: Call, reader: db.Reader) -> Page[identity.ServiceAccount]:
    found, token = await tables.page(
        store.SERVICE_ACCOUNTS,
        reader,
        "project_id = $1",
        [call.params["project_id"]],
        size=call.query.page_size,
        token=call.query.page_token,
    )
    return Page(items=found, next_page_token=token)


@routes.write(identity.SERVICE_ACCOUNT_KEY_CREATE)
async def create_key(call: Call, tx: db.Tx, _: NoBody) -> identity.ServiceAccountKey:
    return await service.create_key(tx, call, call.params["service_account_id"])
