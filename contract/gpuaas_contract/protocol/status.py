"""Derive an instance's status, conditions and roles from its members, its baseline and the active operation."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec.structs import replace

from gpuaas_contract.catalog import Manifest
from gpuaas_contract.instances import Baseline, BreakerState, Condition, Instance, Role
from gpuaas_contract.lifecycles import InstanceStatus, MemberStatus, OperationStatus
from gpuaas_contract.operations import OperationHead, OperationKind

_UNSOUND = frozenset({"degraded", "failed"})
"""Statuses of a member that make its instance degraded. Members that are joining or leaving do not."""

LAST_OPERATION = "LastOperationSucceeded"
OBSERVED = "Observed"
PLATFORM_CONDITIONS = frozenset({LAST_OPERATION, OBSERVED})
"""The conditions that the platform sets; controllers report all others."""

STATUS_WHILE: dict[str, InstanceStatus] = {
    "deploy": "deploying",
    "upgrade": "upgrading",
    "rollback": "rolling_back",
    "reconfigure": "reconfiguring",
    "stop": "stopping",
    "start": "starting",
    "restart": "starting",
    "decommission": "deleting",
}

_LEFT_BY: dict[str, Baseline] = {"stop": "stopped", "decommission": "deleted"}

_SURVIVES_FAILURE = frozenset({"upgrade", "rollback", "reconfigure"})

_BASELINE_STATUS: dict[Baseline, InstanceStatus] = {
    "new": "requested",
    "stopped": "stopped",
    "failed": "failed",
    "deleted": "deleted",
}


def instance_status(
    instance: Instance, active: OperationKind | None, members: Mapping[str, int], conditions: Sequence[Condition]
) -> InstanceStatus:
    """Return the status. `active`: the running operation on the whole instance; `members`: number by status."""
    if active is not None:
        return STATUS_WHILE[active]
    if instance.baseline != "up":
        return _BASELINE_STATUS[instance.baseline]
    unsound = any(members.get(status) for status in _UNSOUND)
    unsound = unsound or any(condition.status != "true" for condition in conditions)
    return "degraded" if unsound else "running"


def status_reason(instance: Instance, status: InstanceStatus, members: Mapping[str, int]) -> str:
    if status not in ("requested", "degraded", "failed"):
        return ""
    wrong = [condition for condition in instance.conditions if condition.status != "true"]
    reasons = [f"{condition.type}: {condition.message or condition.reason}" for condition in wrong]
    down = {state: members[state] for state in sorted(_UNSOUND) if members.get(state)}
    reasons += [f"{count} {'member is' if count == 1 else 'members are'} {state}" for state, count in down.items()]
    return "; ".join(reasons)


def baseline_after(
    present: Baseline, kind: OperationKind, status: OperationStatus, *, refused: bool = False
) -> Baseline:
    """Return the instance's baseline after an operation on the whole instance. A refusal leaves it as it was."""
    if refused:
        return present
    if status == "succeeded":
        return _LEFT_BY.get(kind, "up")
    if status == "failed":
        return present if kind in _SURVIVES_FAILURE else "failed"
    return "failed" if kind == "deploy" else present


def moved_to(instance: Instance, operation: OperationHead, manifest: Manifest) -> Instance:
    """Return the instance on the operation's version. An upgrade stores the old version and inputs for a rollback."""
    upgrade = operation.kind == "upgrade"
    return replace(
        instance,
        app_version=operation.to_version,
        previous_version=operation.from_version if upgrade else "",
        inputs=operation.inputs,
        previous_inputs=instance.inputs if upgrade else {},
        inputs_before={},
        artifacts={name: wanted.digest for name, wanted in manifest.artifacts.items()},
    )


def reconfigured(instance: Instance, operation: OperationHead) -> Instance:
    """Return the instance with the operation's inputs. It stores those of before, so that people can return to them."""
    return replace(instance, inputs=operation.inputs, inputs_before=operation.inputs_before)


def conditions_after(operation: OperationHead, revision: int, now: datetime.datetime) -> list[Condition]:
    """Return the conditions that the end of an operation on the whole instance changes: none if it was refused, except
    for a deploy, before which there was no instance."""
    refused = operation.error is not None and operation.error.failure_class == "refused"
    return [] if refused and operation.kind != "deploy" else [last_operation(operation, revision, now)]


def last_operation(operation: OperationHead, revision: int, now: datetime.datetime) -> Condition:
    error = operation.error
    failed = error is not None or (operation.status == "cancelled" and operation.kind == "deploy")
    late = any(taken.too_late for taken in operation.exits_taken[-1:])
    cancel = "; the cancel came too late" if late else ""
    summary = f"{operation.kind} {operation.status}{cancel}; operations on members show in the members"
    return Condition(
        type=LAST_OPERATION,
        status="false" if failed else "true",
        reason=error.code if error else operation.status,
        message=error.message if error else summary,
        observed_revision=revision,
        changed_at=now,
    )


def merged(present: Sequence[Condition], reported: Sequence[Condition]) -> list[Condition]:
    """Return the conditions by type. A repeated report changes nothing."""
    by_type = {condition.type: condition for condition in present}
    for condition in reported:
        before = by_type.get(condition.type)
        if before is None or before.status != condition.status:
            by_type[condition.type] = condition
        elif (before.reason, before.message) != (condition.reason, condition.message):
            by_type[condition.type] = replace(condition, changed_at=before.changed_at)
    return [by_type[name] for name in sorted(by_type)]


def leaves_gap(operation: OperationHead, status: MemberStatus) -> bool:
    """Return whether a member that is now `status` is missing in its role: it was given up, and no user asked to
    remove it."""
    backs_out = operation.compensating or operation.status == "cancelling"
    return status == "tombstoned" and operation.kind not in ("remove", "decommission") and not backs_out


def roles(
    manifest: Manifest,
    counts: Mapping[str, Mapping[str, int]],
    breakers: Mapping[str, BreakerState],
    missing: Mapping[str, int],
) -> list[Role]:
    """Return each role with its counts. `counts`: role -> status -> number of live members; `missing`: members that
    were given up and are still wanted."""
    counted = []
    for role in manifest.roles:
        by_status = dict(counts.get(role.component_key, {}))
        live, ready, failed = sum(by_status.values()), by_status.get("ready", 0), by_status.get("failed", 0)
        desired = live + missing.get(role.component_key, 0)
        counted.append(
            Role(
                component_key=role.component_key,
                desired=desired,
                current=live - failed,
                ready=ready,
                health=_health(desired, ready, failed),
                breaker=breakers.get(role.component_key, BreakerState()),
                by_status=by_status,
            )
        )
    return counted


def _health(desired: int, ready: int, failed: int) -> Literal["healthy", "degraded", "failed", "empty"]:
    if desired == 0:
        return "empty"
    if ready == desired:
        return "healthy"
    return "failed" if failed == desired else "degraded"
