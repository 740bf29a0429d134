"""Read the audit trail of a project, an organisation or the platform, page after page."""

from collections.abc import Mapping
from typing import Any

from gpuaas_contract.audit import AUDIT_LIST, ORG_AUDIT_LIST, PLATFORM_AUDIT_LIST, AuditRow, AuditRows
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.wire import NoBody

from gpuaas_cli.client.session import Session
from gpuaas_cli.runner.scopes import Level, Scope

LIMIT = 500
PROJECT = Scope("project", {})

_LISTS: dict[Level, Endpoint[NoBody, AuditRows]] = {
    "project": AUDIT_LIST,
    "org": ORG_AUDIT_LIST,
    "platform": PLATFORM_AUDIT_LIST,
}


async def read(session: Session, scope: Scope, query: Mapping[str, Any], limit: int = LIMIT) -> AuditRows:
    """The first `limit` rows that fit. A page may be empty and still go on: the server looks at a bounded number."""
    found: list[AuditRow] = []
    cursor, more = int(query.get("after", 0)), True
    path: dict[str, Any] = scope.path
    while more and len(found) < limit:
        asked = {**query, "after": cursor, "limit": limit - len(found)}
        page = await session.call(_LISTS[scope.level], query=asked, **path)
        found += page.items
        cursor, more = page.cursor, page.more
    return AuditRows(items=found, cursor=cursor, more=more)
