"""HTTP routes of events and of the audit trail."""

from gpuaas_contract import audit, events

from gpuaas_platform.call import Routes
from gpuaas_platform.record import follow, trail, watch

routes = Routes()
routes.flow(events.EVENT_LIST, follow.poll)
routes.flow(events.ORG_EVENT_LIST, follow.poll)
routes.flow(events.PLATFORM_EVENT_LIST, follow.poll)
routes.stream(events.EVENT_STREAM, watch.open_watch)
routes.stream(events.ORG_EVENT_STREAM, watch.open_watch)
routes.stream(events.PLATFORM_EVENT_STREAM, watch.open_watch)
routes.read(audit.AUDIT_LIST, trail.list_rows)
routes.read(audit.ORG_AUDIT_LIST, trail.list_rows)
routes.read(audit.PLATFORM_AUDIT_LIST, trail.list_rows)
