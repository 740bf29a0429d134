"""Follow events, read the audit trail."""

from gpuaas_contract import events
from gpuaas_contract.wire import NoBody

from gpuaas_platform.call import Call, Routes
from gpuaas_platform.kit import db
from gpuaas_platform.record import service, store

routes = Routes()
_LIMIT_MAX = 500


@routes.flow(events.EVENT_LIST)
async def follow_events(call: Call, _: NoBody) -> events.Events:
    query: events.EventsQuery = call.query
    project_id = call.params["project_id"]
    limit = max(1, min(query.limit, _LIMIT_MAX))

    async def look() -> list[events.Event]:
        return await store.events_after(
            call.site.database.reader, project_id, query.after, limit, query.app_instance_id, query.correlation_id
        )

    found = await call.site.hub.poll(f"{service.EVENTS_TOPIC}:{project_id}", query.wait_s, look, bool)
    return events.Events(items=found, cursor=found[-1].cursor if found else query.after)


@routes.read(events.AUDIT_LIST)
async def list_audit(call: Call, reader: db.Reader) -> events.AuditRows:
    query: events.AuditQuery = call.query
    limit = max(1, min(query.limit, _LIMIT_MAX))
    rows = await store.audit_after(reader, call.params["project_id"], query.after, limit, query.correlation_id)
    return events.AuditRows(items=list(rows))
