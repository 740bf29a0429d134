"""Everything that happened under one correlation id, in one document: where every search for a cause begins."""

from gpuaas_contract.audit import AuditRow
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.events import Event
from gpuaas_contract.instances import Member
from gpuaas_contract.operations import Operation
from gpuaas_contract.paths import CorrelationPath
from gpuaas_contract.wire import NoBody, Wire

PART_MAX = 500


class Correlation(Wire):
    """Each part is in the order in which things were made, the first 500 of it."""

    correlation_id: str
    operations: list[Operation]
    """With their steps and targets."""
    members: list[Member]
    """The targets of these operations as they are now, with what the app says about them."""
    events: list[Event]
    """Those that are still kept."""
    audit: list[AuditRow] | None
    """None where the caller may not read the audit trail."""
    withheld: dict[str, str]
    """Part that is not shown -> permission that would show it."""
    truncated: list[str]
    """Parts of which there is more than is shown."""


CORRELATION_GET = Endpoint(
    "record.correlation.get",
    "GET",
    "/api/v1/projects/{project_id}/correlations/{correlation_id}",
    "Audit rows, events, operations and members of one correlation id",
    params=CorrelationPath,
    permission="record.correlation.read",
    request=NoBody,
    response=Correlation,
)
ENDPOINTS = (CORRELATION_GET,)
