"""Events and audit rows with one correlation id in one project. `operations` adds operations and members."""

from dataclasses import dataclass

from gpuaas_contract.audit import AuditQuery, AuditRow
from gpuaas_contract.correlations import PART_MAX
from gpuaas_contract.events import Event

from gpuaas_platform.kit import db
from gpuaas_platform.record import store, trail


@dataclass(frozen=True)
class Recorded:
    events: list[Event]
    audit: list[AuditRow] | None
    """Audit rows with the correlation id; None if they were not requested."""
    truncated: list[str]


async def under(reader: db.Reader, project_id: str, correlation_id: str, *, with_audit: bool) -> Recorded:
    events = await store.events_under(reader, project_id, correlation_id, PART_MAX + 1)
    truncated = ["events"] if len(events) > PART_MAX else []
    if not with_audit:
        return Recorded(events[:PART_MAX], None, truncated)
    query = AuditQuery(correlation_id=correlation_id, page_size=PART_MAX)
    rows = await trail.search(reader, {"project_id": project_id}, query)
    return Recorded(events[:PART_MAX], rows.items, [*truncated, "audit"] if rows.next_page_token else truncated)
