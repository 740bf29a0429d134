"""Instances, members and operations for large records, made with the structs of the contract."""

import datetime
from collections.abc import Iterator
from typing import Any

from gpuaas_contract.instances import BULK_MAX, Instance, Member
from gpuaas_contract.operations import Lease, Operation, Progress, Step, Target
from msgspec.structs import replace

APP = "bench"
ROLE = "hand"
MEMBERS_EACH, OPERATIONS_EACH = 10, 100
"""The number of members and of operations of each instance."""
_NOW = datetime.datetime.now(datetime.UTC)
_LATER = _NOW + datetime.timedelta(days=1)


def manifest(slug: str) -> dict[str, Any]:
    """Return the manifest of an app with one role, whose members can be drained."""
    return {
        "slug": slug,
        "display_name": "Bench",
        "version": "1.0.0",
        "runtime_backend": "bench",
        "operating_modes": ["tenant_dedicated"],
        "control_plane_scopes": ["project"],
        "roles": [{"component_key": ROLE, "max": BULK_MAX, "operations": ["drain"]}],
        "topologies": {"star": {ROLE: "hand_allocations"}},
        "deploy_form": {
            "type": "object",
            "properties": {"hand_allocations": {"type": "array", "items": {"type": "string"}}},
        },
    }


def instance_id(number: int) -> str:
    return f"inst_{number:026d}"


def member_id(number: int) -> str:
    return f"mem_{number:026d}"


def operation_id(number: int) -> str:
    return f"op_{number:026d}"


def instance(org_id: str, project_id: str, number: int, app_slug: str = APP) -> Instance:
    return Instance(
        instance_id=instance_id(number),
        resource_name="",
        org_id=org_id,
        project_id=project_id,
        app_slug=app_slug,
        app_version="1.0.0",
        name=f"bench-{number}",
        status="running",
        status_reason="",
        topology="star",
        operating_mode="tenant_dedicated",
        control_plane_scope="project",
        runtime_backend="bench",
        placement={ROLE: ["alloc_1"]},
        inputs={"hand_allocations": ["alloc_1"]},
        operator_service_account_id="",
        requested_by="user_1",
        correlation_id="cor_1",
        last_operation_id="",
        revision=5,
        created_at=_NOW,
        updated_at=_NOW,
    )


def instances(org_id: str, project_id: str, count: int) -> Iterator[Instance]:
    first = instance(org_id, project_id, 0)
    for number in range(count):
        yield replace(first, instance_id=instance_id(number), name=f"bench-{number}")


def member(org_id: str, project_id: str, number: int, of_instance: int) -> Member:
    return Member(
        member_id=member_id(number),
        instance_id=instance_id(of_instance),
        org_id=org_id,
        project_id=project_id,
        component_key=ROLE,
        status="ready",
        status_reason="",
        allocation_id="alloc_1",
        node_id="node_1",
        node_name="gpu-1",
        address="10.0.0.1",
        last_operation_id="",
        correlation_id="cor_1",
        adapter_detail={"state": "idle"},
        observed_version="1.0.0",
        was_ready=True,
        revision=7,
        created_at=_NOW,
        updated_at=_NOW,
    )


def members(org_id: str, project_id: str, count: int) -> Iterator[Member]:
    """Yield the members of the first `count` instances."""
    first = member(org_id, project_id, 0, 0)
    for number in range(count * MEMBERS_EACH):
        yield replace(first, member_id=member_id(number), instance_id=instance_id(number // MEMBERS_EACH))


def members_of_first(org_id: str, project_id: str, count: int, after: int) -> Iterator[Member]:
    """Yield further members of the first instance; `after` is the number of members before them."""
    first = member(org_id, project_id, 0, 0)
    for number in range(after, after + count):
        yield replace(first, member_id=member_id(number))


def operations(org_id: str, project_id: str, count: int) -> Iterator[Operation]:
    """Yield the operations of `count` instances, in turns. Every tenth instance has one that is claimed."""
    accepted = _operation(org_id, project_id)
    ended = replace(accepted, status="succeeded", attempts=1, epoch=1, started_at=_NOW, ended_at=_NOW)
    running = replace(ended, status="running", ended_at=None)
    for number in range(count * OPERATIONS_EACH):
        of_instance = number % count
        operation = _numbered(ended, number, of_instance)
        if number >= count * (OPERATIONS_EACH - 1) and of_instance % 10 == 0:
            lease = Lease(holder="other", claim_id=f"claim-{number}", epoch=1, expires_at=_LATER)
            operation = replace(_numbered(running, number, of_instance), lease=lease)
        yield operation


def history(org_id: str, project_id: str, count: int) -> Iterator[Operation]:
    """Yield operations of the first instance that have ended."""
    ended = replace(_operation(org_id, project_id), status="succeeded", started_at=_NOW, ended_at=_NOW)
    for number in range(count):
        yield _numbered(ended, number, 0)


def waiting_operations(
    org_id: str, project_id: str, first: int, count: int, instances_used: int
) -> Iterator[Operation]:
    """Yield accepted operations, numbered from `first`, on instances without a claimed operation."""
    accepted = _operation(org_id, project_id)
    for number in range(count):
        yield _numbered(accepted, first + number, number % (instances_used // 10) * 10 + 1)


def _operation(org_id: str, project_id: str) -> Operation:
    step = Step(name="draining", state="succeeded", started_at=_NOW, ended_at=_NOW)
    return Operation(
        operation_id="",
        org_id=org_id,
        project_id=project_id,
        instance_id="",
        instance_name="bench",
        app_slug=APP,
        kind="drain",
        component_key=ROLE,
        status="accepted",
        targets=[],
        steps=[step],
        steps_total=1,
        reason="",
        force=False,
        requested_by="user_1",
        correlation_id="",
        attempts=0,
        epoch=0,
        lease=None,
        deadline_at=_LATER,
        error=None,
        revision=4,
        created_at=_NOW,
        started_at=None,
        ended_at=None,
        progress=Progress(done=1, total=1),
    )


def _numbered(operation: Operation, number: int, of_instance: int) -> Operation:
    return replace(
        operation,
        operation_id=operation_id(number),
        instance_id=instance_id(of_instance),
        correlation_id=f"cor_{number}",
        targets=[Target(member_id=member_id(of_instance * MEMBERS_EACH))],
    )
