"""Follow events, read the audit trail."""

from gpuaas_contract import audit, events
from gpuaas_contract.wire import NoBody, Page

from gpuaas_platform.call import Call, Routes
from gpuaas_platform.kit import db
from gpuaas_platform.record import chain, trail, watch
from gpuaas_platform.record import follow as following

routes = Routes()


@routes.flow(events.EVENT_LIST)
@routes.flow(events.ORG_EVENT_LIST)
@routes.flow(events.PLATFORM_EVENT_LIST)
async def follow_events(call: Call, _: NoBody) -> events.Events:
    query: events.EventsQuery = call.query
    scope, filters = following.scope_of(call), following.filters_of(query)

    async def look() -> events.Events:
        found, cursor = await following.after(call.site.database.reader, scope, query.after, query.limit, filters)
        return events.Events(items=list(found), cursor=cursor)

    return await call.site.hub.poll(following.topic(scope), query.wait_s, look, lambda found: bool(found.items))


@routes.stream(events.EVENT_STREAM)
@routes.stream(events.ORG_EVENT_STREAM)
@routes.stream(events.PLATFORM_EVENT_STREAM)
async def stream_events(call: Call) -> watch.Watch:
    return await watch.open_watch(call)


@routes.read(audit.AUDIT_LIST)
async def list_audit(call: Call, reader: db.Reader) -> Page[audit.AuditRow]:
    return await trail.search(reader, {"project_id": call.params["project_id"]}, call.query)


@routes.read(audit.ORG_AUDIT_LIST)
async def list_org_audit(call: Call, reader: db.Reader) -> Page[audit.AuditRow]:
    return await trail.search(reader, {"chain": chain.name_of(call.params["org_id"])}, call.query)


@routes.read(audit.PLATFORM_AUDIT_LIST)
async def list_platform_audit(call: Call, reader: db.Reader) -> Page[audit.AuditRow]:
    return await trail.search(reader, {}, call.query)
