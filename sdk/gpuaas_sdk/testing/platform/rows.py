"""Build the new rows of the fake platform: instances, members, operations, holds. `records` stores them."""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuaas_contract.holds import Hold, HoldKind
from gpuaas_contract.instances import Instance, Member
from gpuaas_contract.operations import Operation, OperationKind, Target


@dataclass(frozen=True)
class OperationRequest:
    """The contents of a request for an operation, except its kind."""

    targets: tuple[Member, ...]
    deadline_s: float
    component_key: str = ""
    reason: str = ""
    force: bool = False
    by_steward: bool = False
    stop_after_failures: int = 0
    replacements: Mapping[str, str] = field(default_factory=dict)
    """For `replace`: the name of the node that each member id moves to."""
    to_version: str = ""
    action: str = ""
    inputs: dict[str, Any] = field(default_factory=dict)
    inputs_before: dict[str, Any] = field(default_factory=dict)
    preview_of: OperationKind | None = None
    requested_by: str = "test"


def instance(
    instance_id: str,
    *,
    project_id: str,
    app_slug: str,
    name: str,
    topology: str,
    inputs: dict[str, Any],
    now: datetime.datetime,
) -> Instance:
    """Return a new instance."""
    return Instance(
        instance_id=instance_id,
        resource_name=f"gpuaas:local:org_test:{project_id}:app-instance:{instance_id}",
        org_id="org_test",
        project_id=project_id,
        app_slug=app_slug,
        app_version="1.0.0",
        name=name,
        status="requested",
        status_reason="",
        topology=topology,
        operating_mode="",
        control_plane_scope="",
        runtime_backend="",
        placement={},
        inputs=inputs,
        operator_service_account_id="",
        requested_by="test",
        correlation_id=f"cor_{instance_id}",
        last_operation_id="",
        revision=1,
        created_at=now,
        updated_at=now,
        baseline="new",
    )


def member(member_id: str, owner: Instance, component_key: str, node_name: str, *, now: datetime.datetime) -> Member:
    """Return a new member of the instance on the node."""
    return Member(
        member_id=member_id,
        instance_id=owner.instance_id,
        org_id=owner.org_id,
        project_id=owner.project_id,
        component_key=component_key,
        status="requested",
        status_reason="",
        last_operation_id="",
        correlation_id=owner.correlation_id,
        adapter_detail={},
        observed_version="",
        was_ready=False,
        revision=1,
        created_at=now,
        updated_at=now,
        **place(allocation_id(node_name)),
    )


def allocation_id(node_name: str) -> str:
    """Return the id of the node's allocation."""
    return f"alloc_{node_name}"


def place(allocation_id: str) -> dict[str, Any]:
    """Return the fields that locate a member on this allocation. Every node of a test has one allocation."""
    node_name = allocation_id.removeprefix("alloc_")
    return {
        "allocation_id": allocation_id,
        "node_id": f"node_{node_name}",
        "node_name": node_name,
        "address": node_name,
    }


def operation(
    operation_id: str, owner: Instance, kind: OperationKind, request: OperationRequest, *, now: datetime.datetime
) -> Operation:
    """Return an accepted operation. An upgrade without inputs of its own has those of the instance."""
    return Operation(
        operation_id=operation_id,
        org_id=owner.org_id,
        project_id=owner.project_id,
        instance_id=owner.instance_id,
        instance_name=owner.name,
        app_slug=owner.app_slug,
        kind=kind,
        component_key=request.component_key,
        status="accepted",
        targets=[_target(member, request) for member in request.targets],
        steps=[],
        reason=request.reason,
        force=request.force,
        requested_by=request.requested_by,
        correlation_id=f"cor_{operation_id}",
        attempts=0,
        epoch=0,
        lease=None,
        deadline_at=now + datetime.timedelta(seconds=request.deadline_s),
        error=None,
        revision=1,
        created_at=now,
        started_at=None,
        ended_at=None,
        stop_after_failures=request.stop_after_failures,
        from_version=owner.app_version if request.to_version else "",
        to_version=request.to_version,
        action=request.action,
        inputs=request.inputs or (owner.inputs if request.to_version else {}),
        inputs_before=request.inputs_before,
        preview_of=request.preview_of,
        by_steward=request.by_steward,
    )


def hold(hold_id: str, member: Member, kind: HoldKind, reason: str, ttl_s: float, *, now: datetime.datetime) -> Hold:
    """Return a hold on the member."""
    return Hold(
        hold_id=hold_id,
        instance_id=member.instance_id,
        org_id=member.org_id,
        project_id=member.project_id,
        member_id=member.member_id,
        name="test",
        kind=kind,
        reason=reason,
        owner="test",
        expires_at=now + datetime.timedelta(seconds=ttl_s),
        created_at=now,
    )


def _target(member: Member, request: OperationRequest) -> Target:
    node_name = request.replacements.get(member.member_id, "")
    allocation = allocation_id(node_name) if node_name else ""
    return Target(member_id=member.member_id, allocation_id=allocation, status_before=member.status)
