"""The audit trail: who did what, from where, and who was refused. Rows are only ever added."""

from typing import Annotated, Any

import msgspec

from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.errors import NotFound
from gpuaas_contract.wire import NoBody, PageSize, Query, Timestamp, Wire


class AuditEntry(Wire):
    """What is written, once. The hash chain runs over these exact bytes; request bodies and secrets are never in it."""

    audit_id: str
    occurred_at: Timestamp
    actor_type: str
    """`user`, `service_account`, `node`, `system` for the platform itself, or `anonymous`."""
    actor_id: str
    action: str
    """The endpoint's name, or what the platform did on its own; `authz.deny` for a refusal."""
    target: str
    """Ids of what it was done to, outermost first; for a refusal the endpoint's name."""
    result: str
    """`success` or `failure`."""
    correlation_id: str
    org_id: str
    project_id: str
    details: dict[str, Any]
    """What else matters about the act: reasons, ids, digests."""
    actor_name: str = ""
    peer: str = ""
    """Address the request came from."""
    route: str = ""
    """Name of the endpoint that was called; empty for the platform's own work."""


class AuditRow(AuditEntry):
    """Who did what, or was refused; rows are only ever added."""

    cursor: int = 0
    """Place among all rows, in commit order; pass it as `after` to go on from here."""
    chain: str = ""
    """The organisation's id, or `platform` for rows of no organisation."""
    position: int = 0
    """Place in its chain, from 1, without gaps."""
    hash: str = ""
    """SHA-256 over chain, position, the hash before and the entry."""


class AuditQuery(Query):
    after: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    """Rows behind this cursor only; 0 starts with the oldest."""
    limit: PageSize = 200
    """How many rows at the most; more than 500 is read as 500."""
    correlation_id: str = ""
    """Rows under this id only; empty: all."""
    actor_id: str = ""
    """Rows of this person or service account only; empty: of all."""
    action: str = ""
    """Rows of this action only, such as `apps.instance.create`; empty: of all."""
    target: str = ""
    """Rows of this target only, just as rows show it; empty: of all."""
    result: str = ""
    """`success` or `failure`; empty: both."""
    since: Timestamp | None = None
    """Rows of this moment or later, by the platform's clock."""
    until: Timestamp | None = None
    """Rows of this moment or earlier."""


class AuditRows(Wire):
    """A part of the audit trail, oldest first."""

    items: list[AuditRow]
    cursor: int = 0
    """Pass it as `after` to go on. A page looks at a bounded number of rows, so it may hold few or none and go on."""
    more: bool = False
    """Whether there is anything behind `cursor` to look at."""


AUDIT_LIST = Endpoint(
    "record.audit",
    "GET",
    "/api/v1/projects/{project_id}/audit",
    "Who did what in a project, and who was refused",
    permission="record.audit.read",
    request=NoBody,
    query=AuditQuery,
    response=AuditRows,
    errors=(NotFound,),
)
ORG_AUDIT_LIST = Endpoint(
    "record.org_audit",
    "GET",
    "/api/v1/orgs/{org_id}/audit",
    "Who did what in an organisation and its projects, and who was refused",
    permission="record.audit.read",
    request=NoBody,
    query=AuditQuery,
    response=AuditRows,
    errors=(NotFound,),
)
PLATFORM_AUDIT_LIST = Endpoint(
    "record.platform_audit",
    "GET",
    "/api/v1/admin/audit",
    "Who did what anywhere, and who was refused",
    permission="record.audit.read_all",
    request=NoBody,
    query=AuditQuery,
    response=AuditRows,
)
ENDPOINTS = (AUDIT_LIST, ORG_AUDIT_LIST, PLATFORM_AUDIT_LIST)
