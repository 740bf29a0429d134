"""The runtime API of app controllers: claim an operation, keep its lease, report, end it.

Every report carries the epoch its claim returned; the platform refuses a lower one."""

from typing import Any

from gpuaas_contract import errors
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.instances import AccessBundle, Command, Connection, Instance, Member
from gpuaas_contract.lifecycles import MemberStatus, StepState
from gpuaas_contract.operations import Evidence, FailureClass, Lease, Operation
from gpuaas_contract.wire import Request, WaitSeconds, Wire


class ClaimOperation(Request):
    app_slug: str
    holder: str
    claim_id: str
    """Chosen by the caller: the same id asks again for the same lease after a lost answer."""
    lease_s: int = 15
    wait_s: WaitSeconds = 0


class Claim(Wire):
    """All a controller needs to start: the operation, its instance and its live members. Empty if nothing waits."""

    operation: Operation | None = None
    instance: Instance | None = None
    members: list[Member] = []
    epoch: int = 0


class Heartbeat(Request):
    epoch: int
    lease_s: int = 15


class ReportStep(Request):
    epoch: int
    name: str
    state: StepState
    member_id: str = ""
    message: str = ""


class ReportMember(Request):
    epoch: int
    status: MemberStatus
    status_reason: str = ""
    adapter_detail: dict[str, Any] | None = None
    observed_version: str | None = None
    evidence: Evidence | None = None


class CompleteOperation(Request):
    epoch: int


class FailOperation(Request):
    epoch: int
    code: str
    message: str
    failure_class: FailureClass
    fix: str = ""


class PublishAccess(Request):
    epoch: int
    endpoints: list[Connection] = []
    paths: dict[str, str] = {}
    commands: list[Command] = []
    notes: list[str] = []


_OPERATION = "/api/v1/projects/{project_id}/operations/{operation_id}"

CLAIM = Endpoint(
    "runtime.claim",
    "POST",
    "/api/v1/projects/{project_id}/operations/claim",
    "Take the next operation of an app, waiting for one when asked",
    permission="apps.operation.execute",
    request=ClaimOperation,
    response=Claim,
    audited=False,
    repeat="natural",
)
HEARTBEAT = Endpoint(
    "runtime.heartbeat",
    "PUT",
    f"{_OPERATION}/lease",
    "Keep the lease",
    permission="apps.operation.execute",
    request=Heartbeat,
    response=Lease,
    audited=False,
    repeat="natural",
    errors=(errors.LeaseLost,),
)
STEP_REPORT = Endpoint(
    "runtime.step",
    "PUT",
    f"{_OPERATION}/steps",
    "Say that a step runs, succeeded or failed",
    permission="apps.operation.execute",
    request=ReportStep,
    response=Operation,
    audited=False,
    repeat="natural",
    errors=(errors.LeaseLost,),
)
MEMBER_REPORT = Endpoint(
    "runtime.member",
    "PUT",
    f"{_OPERATION}/members/{{member_id}}",
    "Say how a member is",
    permission="apps.operation.execute",
    request=ReportMember,
    response=Member,
    audited=False,
    repeat="natural",
    errors=(errors.LeaseLost, errors.EvidenceRequired),
)
ACCESS_PUBLISH = Endpoint(
    "runtime.access",
    "PUT",
    f"{_OPERATION}/access-bundle",
    "Write how people reach the app",
    permission="apps.operation.execute",
    request=PublishAccess,
    response=AccessBundle,
    repeat="natural",
    errors=(errors.LeaseLost,),
)
COMPLETE = Endpoint(
    "runtime.complete",
    "PUT",
    f"{_OPERATION}/complete",
    "The operation succeeded",
    permission="apps.operation.execute",
    request=CompleteOperation,
    response=Operation,
    repeat="natural",
    errors=(errors.LeaseLost, errors.EvidenceRequired),
)
FAIL = Endpoint(
    "runtime.fail",
    "PUT",
    f"{_OPERATION}/fail",
    "The operation failed, and why",
    permission="apps.operation.execute",
    request=FailOperation,
    response=Operation,
    repeat="natural",
    errors=(errors.LeaseLost,),
)
ENDPOINTS = (CLAIM, HEARTBEAT, STEP_REPORT, MEMBER_REPORT, ACCESS_PUBLISH, COMPLETE, FAIL)
