"""Accept a request: insert its operation, with the requested members as targets."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from gpuaas_contract.catalog import Manifest
from gpuaas_contract.event_types import OperationAccepted
from gpuaas_contract.instances import Instance, Member
from gpuaas_contract.operations import Operation, OperationKind, Progress, Target
from gpuaas_contract.protocol import request as request_rules

from gpuaas_platform.allocations import service as allocations
from gpuaas_platform.call import Call
from gpuaas_platform.instances import events, names
from gpuaas_platform.instances import members as instance_members
from gpuaas_platform.kit import db, ids, structs
from gpuaas_platform.operations import state, store


@dataclass(frozen=True)
class OperationDraft:
    """The fields of an operation that come from its request; `Operation` describes them."""

    kind: OperationKind
    members: Sequence[Member] = ()
    replacements: Mapping[str, str] = field(default_factory=dict)
    """Only for `replace`: the allocation that each member moves to, by member id."""
    component_key: str = ""
    reason: str = ""
    force: bool = False
    by_steward: bool = False
    stop_after_failures: int = 0
    from_version: str = ""
    to_version: str = ""
    action: str = ""
    exclusive: bool = False
    reading: bool = False
    inputs: dict[str, object] = field(default_factory=dict)
    inputs_before: dict[str, object] = field(default_factory=dict)
    preview_of: OperationKind | None = None


async def accept(tx: db.Tx, call: Call, instance: Instance, manifest: Manifest, draft: OperationDraft) -> Operation:
    operation = _operation(call, instance, manifest, draft)
    await store.insert(tx, operation)
    await take(tx, call, operation, draft.members)
    payload = structs.pick(OperationAccepted, operation, members=[member.member_id for member in draft.members])
    await events.emit(tx, call.origin, "apps.operation.accepted", operation, payload)
    tx.wake(state.claims_topic(instance.project_id, instance.app_slug))
    return operation


async def take(tx: db.Tx, call: Call, operation: Operation, members: Iterable[Member]) -> None:
    """Store the operation as the last one of these members."""
    for member in members:
        taken = msgspec.structs.replace(
            member, last_operation_id=operation.operation_id, correlation_id=operation.correlation_id
        )
        await instance_members.save(tx, call.origin, operation.app_slug, member, taken)


async def with_allocation_ids(
    reader: db.Reader, project_id: str, form: Mapping[str, object], fields: Iterable[str], inputs: Mapping[str, object]
) -> dict[str, object]:
    """Return the inputs with node names replaced by allocation ids: a request may name an allocation by its node."""
    ids_by_name = await allocations.ids_of(reader, project_id, names.allocations_in(form, fields, inputs))
    return names.with_allocations(form, fields, inputs, ids_by_name)


def _operation(call: Call, instance: Instance, manifest: Manifest, draft: OperationDraft) -> Operation:
    targets = [
        Target(
            member_id=member.member_id,
            allocation_id=draft.replacements.get(member.member_id, ""),
            status_before=member.status,
        )
        for member in draft.members
    ]
    return Operation(
        operation_id=ids.new("op"),
        org_id=instance.org_id,
        project_id=instance.project_id,
        instance_id=instance.instance_id,
        instance_name=instance.name,
        app_slug=instance.app_slug,
        kind=draft.kind,
        component_key=draft.component_key,
        status="accepted",
        targets=targets,
        steps=[],
        reason=draft.reason,
        force=draft.force,
        requested_by=call.caller.actor_id,
        correlation_id=call.origin.correlation_id,
        attempts=0,
        epoch=0,
        lease=None,
        deadline_at=request_rules.deadline(manifest, draft.kind, call.now, draft.action),
        error=None,
        revision=1,
        created_at=call.now,
        started_at=None,
        ended_at=None,
        progress=Progress(total=len(targets)),
        stop_after_failures=draft.stop_after_failures,
        from_version=draft.from_version,
        to_version=draft.to_version,
        action=draft.action,
        exclusive=draft.exclusive,
        reading=draft.reading,
        inputs=draft.inputs,
        inputs_before=draft.inputs_before,
        preview_of=draft.preview_of,
        operator_service_account_id=instance.operator_service_account_id,
        by_steward=draft.by_steward,
        traceparent=call.origin.traceparent,
    )
