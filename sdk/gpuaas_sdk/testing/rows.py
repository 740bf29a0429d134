"""First versions of what the platform in memory keeps. `records` calls these and changes copies from then on."""

import datetime
from dataclasses import dataclass
from typing import Any

from gpuaas_contract.instances import Instance, Member
from gpuaas_contract.operations import Operation, OperationKind, Target


@dataclass(frozen=True)
class Asked:
    """What a requester says beside the kind of an operation."""

    targets: tuple[Member, ...]
    component_key: str
    reason: str
    force: bool
    deadline_s: float


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
    )


def member(member_id: str, owner: Instance, component_key: str, node_name: str, *, now: datetime.datetime) -> Member:
    return Member(
        member_id=member_id,
        instance_id=owner.instance_id,
        org_id=owner.org_id,
        project_id=owner.project_id,
        component_key=component_key,
        status="requested",
        status_reason="",
        allocation_id=f"alloc_{node_name}",
        node_id=f"node_{node_name}",
        node_name=node_name,
        address=node_name,
        last_operation_id="",
        correlation_id=owner.correlation_id,
        adapter_detail={},
        observed_version="",
        was_ready=False,
        revision=1,
        created_at=now,
        updated_at=now,
    )


def operation(
    operation_id: str, owner: Instance, kind: OperationKind, asked: Asked, *, now: datetime.datetime
) -> Operation:
    return Operation(
        operation_id=operation_id,
        org_id=owner.org_id,
        project_id=owner.project_id,
        instance_id=owner.instance_id,
        instance_name=owner.name,
        app_slug=owner.app_slug,
        kind=kind,
        component_key=asked.component_key,
        status="accepted",
        targets=[Target(member_id=member.member_id) for member in asked.targets],
        steps=[],
        reason=asked.reason,
        force=asked.force,
        requested_by="test",
        correlation_id=f"cor_{operation_id}",
        attempts=0,
        epoch=0,
        lease=None,
        deadline_at=now + datetime.timedelta(seconds=asked.deadline_s),
        error=None,
        revision=1,
        created_at=now,
        started_at=None,
        ended_at=None,
    )
