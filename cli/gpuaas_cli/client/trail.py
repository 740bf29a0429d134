"""Read the audit trail of a project, an organisation or the platform, page after page."""

from collections.abc import Mapping
from typing import Any

from gpuaas_contract.audit import AuditRow, AuditRows
from gpuaas_contract.endpoint import Endpoint

from gpuaas_cli.client.session import Session

LIMIT = 500


async def read(
    session: Session,
    endpoint: Endpoint[Any, AuditRows],
    path: Mapping[str, Any],
    query: Mapping[str, Any],
    limit: int = LIMIT,
) -> AuditRows:
    """The first `limit` rows that fit. A page may be empty although more follow: the server reads a bounded number."""
    rows: list[AuditRow] = []
    cursor, more = int(query.get("after", 0)), True
    while more and len(rows) < limit:
        asked = {**query, "after": cursor, "limit": limit - len(rows)}
        page = await session.call(endpoint, query=asked, **path)
        rows += page.items
        cursor, more = page.cursor, page.more
    return AuditRows(items=rows, cursor=cursor, more=more)
