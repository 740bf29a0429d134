"""The audit trail: who did what, from where, and who was refused. Rows are only ever added."""

from typing import Annotated, Any, Literal

import msgspec

from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.errors import NotFound
from gpuaas_contract.wire import NoBody, Page, PageQuery, Timestamp, Wire

AuditResult = Literal["success", "failure"]


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
    """Position among all rows, in commit order."""
    chain: str = ""
    """The organisation's id, or `platform` for rows of no organisation."""
    position: int = 0
    """Place in its chain, from 1, without gaps."""
    hash: str = ""
    """SHA-256 over chain, position, the hash before and the entry."""


class AuditQuery(PageQuery):
    after: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    """Rows after this cursor only; 0: all."""
    correlation_id: str = ""
    """Rows under this id only; empty: all."""
    actor_id: str = ""
    """Rows of this person or service account only; empty: of all."""
    action: str = ""
    """Rows of this action only, such as `apps.instance.create`; empty: of all."""
    target: str = ""
    """Rows of this target only, just as rows show it; empty: of all."""
    result: AuditResult | None = None
    """Rows with this result only; none: both."""
    since: Timestamp | None = None
    """Rows of this moment or later, by the platform's clock."""
    until: Timestamp | None = None
    """Rows of this moment or earlier."""


AUDIT_LIST = Endpoint(
    "record.audit",
    "GET",
    "/api/v1/projects/{project_id}/audit",
    "Who did what in a project, and who was refused",
    permission="record.audit.read",
    request=NoBody,
    query=AuditQuery,
    response=Page[AuditRow],
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
    response=Page[AuditRow],
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
    response=Page[AuditRow],
)
ENDPOINTS = (AUDIT_LIST, ORG_AUDIT_LIST, PLATFORM_AUDIT_LIST)
