"""Everything recorded under one correlation id, in one document, to find the cause of a problem."""

from gpuaas_contract.audit import AuditRow
from gpuaas_contract.events import Event
from gpuaas_contract.instances import Member
from gpuaas_contract.operations import Operation
from gpuaas_contract.paths import CORRELATION
from gpuaas_contract.wire import Wire

PART_MAX = 500


class Correlation(Wire):
    """What is recorded under one correlation id, up to 500 items each."""

    correlation_id: str
    operations: list[Operation]
    """With their steps and targets."""
    members: list[Member]
    """The targets of these operations as they are now, with the app's details."""
    events: list[Event]
    """Events that are still stored."""
    audit: list[AuditRow] | None
    """None if the caller may not read the audit trail."""
    withheld: dict[str, str]
    """Part that is not shown -> permission that is needed to see it."""
    truncated: list[str]
    """Parts that have more items than are shown."""


CORRELATION_GET = CORRELATION.row(
    "",
    "record.correlation.get",
    "Get the audit rows, events, operations and members of one correlation id",
    "Start here to find the cause of a problem: each answer and event has a correlation id.",
).get(Correlation, "record.correlation.read")
