"""Read the audit trail of a project, an organisation or the platform, page after page."""

from collections.abc import Mapping
from typing import Any

from gpuaas_contract.audit import AUDIT_LIST, ORG_AUDIT_LIST, PLATFORM_AUDIT_LIST, AuditRow
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.wire import PAGE_SIZE_MAX, NoBody, Page

from gpuaas_cli.scopes import Level, Scope
from gpuaas_cli.session import Session

LIMIT = 500
PROJECT = Scope("project", {})

_LISTS: dict[Level, Endpoint[NoBody, Page[AuditRow]]] = {
    "project": AUDIT_LIST,
    "org": ORG_AUDIT_LIST,
    "platform": PLATFORM_AUDIT_LIST,
}


async def read(
    session: Session, scope: Scope, query: Mapping[str, Any], limit: int = LIMIT
) -> tuple[list[AuditRow], bool]:
    """Return the first `limit` matching rows, and whether there may be more. A page can be empty and not the last."""
    found: list[AuditRow] = []
    token: str | None = ""
    path: dict[str, Any] = scope.path
    while token is not None and len(found) < limit:
        asked = {**query, "page_size": min(limit - len(found), PAGE_SIZE_MAX), "page_token": token}
        page = await session.call(_LISTS[scope.level], query=asked, **path)
        found += page.items
        token = page.next_page_token
    return found, token is not None
