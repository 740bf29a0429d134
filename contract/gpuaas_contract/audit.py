"""The audit trail: who did what, from where, and who was refused. Rows are added and never changed."""

from typing import Annotated, Any, Literal

import msgspec

from gpuaas_contract.errors import NotFound
from gpuaas_contract.paths import ADMIN, ORG, PROJECT
from gpuaas_contract.wire import OrderedQuery, Timestamp, Wire

AuditResult = Literal["success", "failure"]


class AuditEntry(Wire):
    """The stored part of an audit row. The hash chain covers these exact bytes. It contains no request bodies or
    secrets."""

    audit_id: str
    occurred_at: Timestamp
    actor_type: str
    """`user`, `service_account`, `node`, `system` for the platform itself, or `anonymous`."""
    actor_id: str
    action: str
    """What was done: the name of the called endpoint, or of an action of the platform itself. `authz.deny`: the caller
    lacked the permission. `policy.deny`: a policy overlay forbade the request."""
    target: str
    """Ids of the resources that the action changed, outermost first; for a refused request, the endpoint's name."""
    result: str
    """`success` or `failure`."""
    correlation_id: str
    org_id: str
    project_id: str
    details: dict[str, Any]
    """More facts about the action: reasons, ids, digests."""
    actor_name: str = ""
    peer: str = ""
    """Network address that the request came from."""
    route: str = ""
    """Name of the endpoint that was called; empty for the platform's own work."""


class AuditRow(AuditEntry):
    """Who did what, or was refused. Rows are never changed."""

    cursor: int = 0
    """Position among all rows, in commit order."""
    chain: str = ""
    """The organisation's id, or `platform` for rows of no organisation."""
    position: int = 0
    """Position in its chain, from 1, without gaps."""
    hash: str = ""
    """SHA-256 over chain, position, the previous hash and the entry."""


class AuditQuery(OrderedQuery):
    after: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    """Only rows after this cursor; 0: all."""
    correlation_id: str = ""
    """Only rows with this correlation id; empty: all."""
    actor_id: str = ""
    """Only rows of this person or service account; empty: all."""
    action: str = ""
    """Only rows of this action, such as `apps.instance.create`; empty: all."""
    target: str = ""
    """Only rows with exactly this `target`; empty: all."""
    result: AuditResult | None = None
    """Only rows with this result; none: both."""
    since: Timestamp | None = None
    """Only rows from this time on, by the platform's clock."""
    until: Timestamp | None = None
    """Only rows up to this time."""


_ORDER = (
    "Oldest first, unless `order` is `newest`. A page looks at a limited number of rows, so it can be empty and still "
    "not be the last."
)

AUDIT_LIST = PROJECT.row(
    "/audit",
    "record.audit",
    "List the audit trail of a project",
    _ORDER,
).list(AuditRow, "record.audit.read", query=AuditQuery, errors=(NotFound,))
ORG_AUDIT_LIST = ORG.row(
    "/audit",
    "record.org_audit",
    "List the audit trail of an organisation and its projects",
    _ORDER,
).list(AuditRow, "record.audit.read", query=AuditQuery, errors=(NotFound,))
PLATFORM_AUDIT_LIST = ADMIN.row(
    "/audit",
    "record.platform_audit",
    "List the audit trail of the whole platform",
    _ORDER,
).list(AuditRow, "record.audit.read_all", query=AuditQuery)
