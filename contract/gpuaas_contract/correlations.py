"""Everything recorded under one correlation id, in one document, to find the cause of a problem."""

from gpuaas_contract.audit import AuditRow
from gpuaas_contract.events import Event
from gpuaas_contract.instances import Member
from gpuaas_contract.operations import Operation
from gpuaas_contract.paths import CORRELATION
from gpuaas_contract.wire import Timestamp, Wire

PART_MAX = 500


class RefusedRequest(Wire):
    """A request that was refused. The server keeps the last ones of each project in memory, until it restarts."""

    occurred_at: Timestamp
    route: str
    """Name of the endpoint that was called."""
    actor_type: str
    actor_id: str
    actor_name: str
    status: int
    """HTTP status of the answer."""
    code: str
    message: str
    fix: str


class Correlation(Wire):
    """What is recorded under one correlation id, up to 500 items each."""

    correlation_id: str
    operations: list[Operation]
    """Operations with the correlation id, with their steps and targets."""
    members: list[Member]
    """The targets of these operations as they are now, with the app's details."""
    events: list[Event]
    """Events with the correlation id that are still stored."""
    audit: list[AuditRow] | None
    """None if the caller may not read the audit trail."""
    withheld: dict[str, str]
    """Part that is not shown -> permission that is needed to see it."""
    truncated: list[str]
    """Names of the parts of this answer that have more items than are shown."""
    refused: list[RefusedRequest] = []
    """Requests that were refused, recently and by the server that answers: your own; of others, if you may read the
    audit trail."""


CORRELATION_GET = CORRELATION.row(
    "",
    "record.correlation.get",
    "Get the audit rows, events, operations and members of one correlation id",
    "Start here to find the cause of a problem: each answer and event has a correlation id.",
).get(Correlation, "record.correlation.read")
