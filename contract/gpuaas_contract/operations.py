"""Operations: the one resource for every long change, as people and requesters see it."""

import datetime
from typing import Literal

from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.lifecycles import OperationStatus, StepState
from gpuaas_contract.wire import NoBody, Page, PageSize, Query, WaitSeconds, Wire

OperationKind = Literal["deploy", "decommission", "add", "drain", "resume", "remove"]
FailureClass = Literal["retryable", "repairable", "needs_operator", "expired"]

DEADLINES_S: dict[str, int] = {
    "deploy": 1800,
    "decommission": 1800,
    "add": 1800,
    "drain": 86400,
    "resume": 600,
    "remove": 86400,
}
"""Used where an app's manifest says nothing: an operation always has a deadline."""


INSTANCE_KINDS = frozenset({"deploy", "decommission"})
"""Operations on the whole instance exclude every other."""

GOALS: dict[str, frozenset[str]] = {
    "deploy": frozenset({"ready"}),
    "add": frozenset({"ready"}),
    "drain": frozenset({"drained"}),
    "resume": frozenset({"ready"}),
    "remove": frozenset({"removed", "tombstoned"}),
    "decommission": frozenset({"removed", "tombstoned"}),
}
"""Where each target of an operation must be for the operation to succeed."""

EVIDENCE_FRESH_FOR_S = 120
"""How old an observation may be that allows a removal."""


class OperationError(Wire):
    code: str
    message: str
    failure_class: FailureClass
    retryable: bool
    fix: str = ""


class Step(Wire):
    name: str
    state: StepState
    started_at: datetime.datetime
    member_id: str = ""
    """Empty for a step of the whole operation."""
    message: str = ""
    attempt: int = 1
    ended_at: datetime.datetime | None = None


class Evidence(Wire):
    """What a controller saw before it took a member away."""

    state: Literal["idle", "busy", "unknown", "unreachable"]
    source: str
    observed_at: datetime.datetime
    detail: str = ""


class Target(Wire):
    member_id: str
    outcome: Literal["pending", "succeeded", "failed"] = "pending"
    error: str = ""
    evidence: Evidence | None = None


class Lease(Wire):
    holder: str
    claim_id: str
    epoch: int
    expires_at: datetime.datetime


class Operation(Wire):
    operation_id: str
    org_id: str
    project_id: str
    instance_id: str
    instance_name: str
    app_slug: str
    kind: OperationKind
    component_key: str
    status: OperationStatus
    targets: list[Target]
    steps: list[Step]
    reason: str
    force: bool
    requested_by: str
    correlation_id: str
    attempts: int
    epoch: int
    """Grows with every claim; a report with a lower one is refused."""
    lease: Lease | None
    deadline_at: datetime.datetime
    error: OperationError | None
    revision: int
    created_at: datetime.datetime
    started_at: datetime.datetime | None
    ended_at: datetime.datetime | None


class OperationQuery(Query):
    wait_s: WaitSeconds = 0
    """Wait this long, 30 at the most, for a revision other than `revision`."""
    revision: int = -1


class OperationListQuery(Query):
    page_size: PageSize = 100
    page_token: str = ""
    instance_id: str = ""


OPERATION_GET = Endpoint(
    "apps.operation.get",
    "GET",
    "/api/v1/projects/{project_id}/operations/{operation_id}",
    "One operation with its steps; waits for the next change when asked",
    permission="apps.operation.read",
    request=NoBody,
    query=OperationQuery,
    response=Operation,
)
OPERATION_LIST = Endpoint(
    "apps.operation.list",
    "GET",
    "/api/v1/projects/{project_id}/operations",
    "Operations of a project, or of one instance",
    permission="apps.operation.read",
    request=NoBody,
    query=OperationListQuery,
    response=Page[Operation],
)
ENDPOINTS = (OPERATION_GET, OPERATION_LIST)
