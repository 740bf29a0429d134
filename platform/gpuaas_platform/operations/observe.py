"""What a controller says between operations: that it is there, and how its instances and members are."""

from collections.abc import Sequence
from typing import Any

import msgspec
from gpuaas_contract import errors, lifecycles
from gpuaas_contract.instances import Condition, Instance, Member
from gpuaas_contract.operations import Evidence
from gpuaas_contract.protocol import request as request_rules
from gpuaas_contract.protocol import status as status_rules
from gpuaas_contract.runtime import (
    Controller,
    ObservedMember,
    RefusedObservation,
    ReportRuntime,
    RuntimeReported,
)

from gpuaas_platform.call import Call
from gpuaas_platform.instances import changes, store
from gpuaas_platform.kit import db

_DETAIL_MAX_BYTES = 16_384
_TEXT_CHARS_MAX = 2_000
_CONDITIONS_MAX = 64
"""Types a controller may speak of; each is kept until the instance is gone."""


async def seen(tx: db.Tx, call: Call, app_slug: str, holder: str, version: str = "") -> None:
    """Presence: people are told when each controller was last heard of."""
    project_id = call.params["project_id"]
    controller_id = f"{project_id}/{app_slug}/{holder}"
    if not version:
        known = await store.CONTROLLERS.get(tx, controller_id)
        version = known.version if known else ""
    await store.put_controller(
        tx,
        Controller(
            controller_id=controller_id,
            project_id=project_id,
            app_slug=app_slug,
            holder=holder,
            actor_id=call.caller.actor_id,
            version=version,
            last_seen_at=call.now,
        ),
    )


async def report(tx: db.Tx, call: Call, instance: Instance, body: ReportRuntime) -> RuntimeReported:
    """Members an operation works on belong to whoever holds that; an observation of an older state is refused."""
    request_rules.check_operator(instance.operator_service_account_id, call.caller.actor_id)
    if body.observed_revision > instance.revision:
        raise errors.ValidationFailed(
            f"The instance is at revision {instance.revision}.", details={"field": "observed_revision"}
        )
    busy = {
        target.member_id
        for operation in await store.active_operations(tx, instance.instance_id)
        for target in operation.targets
    }
    found = [await _observe(tx, call, instance, observed, busy) for observed in body.members]
    conditions = _conditions(call, body)
    _check_count(instance, conditions)
    settled = await changes.settle_instance(tx, call.origin, instance, None, conditions)
    await seen(tx, call, instance.app_slug, body.holder)
    return RuntimeReported(
        instance=settled,
        members=[member for member in found if isinstance(member, Member)],
        refused=[refused for refused in found if isinstance(refused, RefusedObservation)],
    )


def check_size(detail: dict[str, Any] | None, bytes_max: int = _DETAIL_MAX_BYTES, name: str = "adapter_detail") -> None:
    if detail is not None and len(msgspec.json.encode(detail)) > bytes_max:
        raise errors.ValidationFailed(f"{name} holds at most {bytes_max} bytes of JSON.", details={"field": name})


def clipped(text: str) -> str:
    """What is said for people is shortened, not refused: the report matters more than its words."""
    return text[:_TEXT_CHARS_MAX]


def clipped_evidence(seen: Evidence) -> Evidence:
    said = {name: clipped(getattr(seen, name)) for name in ("source", "detail", "work_digest")}
    return msgspec.structs.replace(seen, **said)


def _check_count(instance: Instance, reported: Sequence[Condition]) -> None:
    types = {condition.type for condition in (*instance.conditions, *reported)} - {status_rules.LAST_OPERATION}
    if len(types) > _CONDITIONS_MAX:
        raise errors.ValidationFailed(
            f"An instance has at most {_CONDITIONS_MAX} conditions.", details={"field": "conditions"}
        )


async def _observe(
    tx: db.Tx, call: Call, instance: Instance, observed: ObservedMember, busy: set[str]
) -> Member | RefusedObservation:
    check_size(observed.adapter_detail)
    member = await store.MEMBERS.get(tx, observed.member_id)
    if member is None or member.instance_id != instance.instance_id:
        return _refused(observed, "not_found", "There is no such member in this instance.")
    if observed.member_id in busy:
        return _refused(observed, "operation_in_progress", "An operation works on it; its holder reports.")
    if observed.revision != member.revision:
        return _refused(observed, "stale", f"It is at revision {member.revision} by now.")
    if not _may_be_seen(member, observed):
        return _refused(
            observed, "illegal_move", f"It does not go from {member.status} to {observed.status} by itself."
        )
    changed = msgspec.structs.replace(
        member,
        status=observed.status,
        status_reason=clipped(observed.status_reason),
        adapter_detail=member.adapter_detail if observed.adapter_detail is None else observed.adapter_detail,
        observed_version=member.observed_version if observed.observed_version is None else observed.observed_version,
    )
    if changed == member:
        return member
    return await changes.save_member(tx, call.origin, instance.app_slug, member, changed)


_BY_ITSELF = frozenset({"ready", "degraded", "draining", "drained", "failed"})
"""What can happen to a member without an operation. Nothing comes or goes that way."""


def _may_be_seen(member: Member, observed: ObservedMember) -> bool:
    if observed.status == member.status:
        return True
    both = member.status in _BY_ITSELF and observed.status in _BY_ITSELF
    return both and lifecycles.may_move(lifecycles.MEMBER, member.status, observed.status)


def _conditions(call: Call, body: ReportRuntime) -> list[Condition]:
    for reported in body.conditions:
        if reported.type == status_rules.LAST_OPERATION:
            raise errors.ValidationFailed(f"{reported.type} is said by the platform.", details={"field": "conditions"})
    return [
        Condition(
            type=reported.type,
            status=reported.status,
            reason=reported.reason,
            message=reported.message,
            observed_revision=body.observed_revision,
            changed_at=call.now,
        )
        for reported in body.conditions
    ]


def _refused(observed: ObservedMember, code: Any, message: str) -> RefusedObservation:
    return RefusedObservation(member_id=observed.member_id, code=code, message=message)
