"""Sign-in, sessions, who am I, organisations, projects. `people_routes` and `account_routes` have the rest."""

from gpuaas_contract import identity, sessions
from gpuaas_contract.wire import NoBody, Page

from gpuaas_platform.call import Call, Routes
from gpuaas_platform.identity import oidc, orgs, service, store
from gpuaas_platform.kit import db, paging

routes = Routes()


@routes.flow(identity.LOGIN)
async def login(call: Call, body: identity.Login) -> identity.Token:
    return await service.login(call, body.name, body.password)


@routes.flow(identity.SERVICE_ACCOUNT_TOKEN)
async def service_account_token(call: Call, body: identity.ServiceAccountLogin) -> identity.Token:
    return await service.service_account_login(call, body.key_id, body.client_secret)


@routes.flow(sessions.OIDC_AUTHORIZE)
async def start_oidc(call: Call, _: NoBody) -> sessions.OidcStart:
    return await oidc.start(call)


@routes.flow(sessions.OIDC_EXCHANGE)
async def finish_oidc(call: Call, body: sessions.OidcExchange) -> identity.Token:
    return await oidc.finish(call, body.code, body.state)


@routes.read(identity.ME)
async def me(call: Call, reader: db.Reader) -> identity.Me:
    caller = call.caller
    return identity.Me(
        actor_type=caller.actor_type,
        actor_id=caller.actor_id,
        name=caller.name,
        bindings=list(await service.all_bindings(reader, caller, call.now)),
        session_id=caller.session_id,
        session_expires_at=caller.session_expires_at,
    )


@routes.read(sessions.SESSION_LIST)
async def list_sessions(call: Call, reader: db.Reader) -> Page[sessions.Session]:
    after, limit = paging.bounds("sessions", call.query)
    found = await service.sessions(reader, call, after=after, limit=limit)
    return paging.page("sessions", found, limit, lambda session: session.session_id)


@routes.write(sessions.SESSION_END)
async def end_session(call: Call, tx: db.Tx, _: NoBody) -> sessions.Session:
    return await service.end_session(tx, call, call.params["session_id"])


@routes.write(sessions.LOGOUT)
async def logout(call: Call, tx: db.Tx, _: NoBody) -> sessions.Session:
    return await service.end_session(tx, call, call.caller.session_id)


@routes.write(identity.ORG_CREATE)
async def create_org(call: Call, tx: db.Tx, body: identity.CreateOrg) -> identity.Org:
    return await orgs.create_org(tx, call, body.name)


@routes.read(identity.ORG_LIST)
async def list_orgs(call: Call, reader: db.Reader) -> Page[identity.Org]:
    where, values = store.visible_orgs(call.caller, call.now)
    return await call.page(reader, store.ORGS, where, *values)


@routes.write(identity.PROJECT_CREATE)
async def create_project(call: Call, tx: db.Tx, body: identity.CreateProject) -> identity.Project:
    return await orgs.create_project(tx, call, body.name)


@routes.read(identity.PROJECT_GET)
async def get_project(call: Call, reader: db.Reader) -> identity.Project:
    return await orgs.project(reader, call)


@routes.write(identity.PROJECT_RENAME)
async def rename_project(call: Call, tx: db.Tx, body: identity.RenameProject) -> identity.Project:
    return await orgs.rename_project(tx, call, body.name)


@routes.read(identity.PROJECT_LIST)
async def list_projects(call: Call, reader: db.Reader) -> Page[identity.Project]:
    where, values = store.visible_projects(call.caller, call.now)
    if call.query.name:
        place = f"${len(values) + 1}"
        where, values = f"{where} AND (name = {place} OR project_id = {place})", [*values, call.query.name]
    return await call.page(reader, store.PROJECTS, where, *values)
