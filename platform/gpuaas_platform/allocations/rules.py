"""Pure: how an allocation changes its status, what a task result means for it, and when to try again."""

import datetime
import hashlib
from collections.abc import Sequence

import msgspec
from gpuaas_contract import errors, lifecycles
from gpuaas_contract.capacity import Allocation, CreateAllocation, Node, ReleaseEvidence
from gpuaas_contract.lifecycles import AllocationStatus
from gpuaas_contract.node import TaskResult

_RETRY_FIRST = datetime.timedelta(seconds=30)
_RETRY_LAST = datetime.timedelta(hours=1)
_PROVISION_AGAIN_AFTER = datetime.timedelta(minutes=1)
_OBSERVER_ASKED_EVERY = datetime.timedelta(minutes=10)
_OBSERVER_MADE_WITHIN = datetime.timedelta(minutes=1)
_REINSTALLED = "its node was installed again"
_NAMED_MAX = 5
_NO_AUTHORITY = (
    "Waiting for the SSH authority, which is made once custody is open: gpuaas-platform unseal; "
    "with Vault, see the server's log for what is missing"
)


def check_request(wanted: CreateAllocation) -> None:
    if wanted.node_name and wanted.count > 1:
        raise errors.ValidationFailed("`node_name` names one node, so `count` is 1.", details={"field": "count"})


def username(allocation_id: str) -> str:
    """Return the name of the Unix user of this allocation, at most 32 characters long."""
    return "gpu-" + hashlib.sha256(allocation_id.encode()).hexdigest()[:12]


def move(allocation: Allocation, status: AllocationStatus, reason: str = "") -> Allocation:
    if not lifecycles.may_move(lifecycles.ALLOCATION, allocation.status, status):
        raise errors.Conflict(f"The allocation is {allocation.status}; it cannot become {status} now.")
    return msgspec.structs.replace(allocation, status=status, status_reason=reason)


def waiting(allocation: Allocation) -> Allocation:
    """Return a new allocation as `requested`: it waits for the SSH authority, which its machine must trust."""
    return msgspec.structs.replace(allocation, status="requested", status_reason=_NO_AUTHORITY)


def provisioning(allocation: Allocation, answered_by: datetime.datetime) -> Allocation:
    """Return the allocation with its provision task queued. On a reinstalled node it is repeated until it succeeds."""
    if allocation.provision_retry_at is None:
        return move(allocation, "provisioning")
    return msgspec.structs.replace(allocation, provision_retry_at=answered_by + _PROVISION_AGAIN_AFTER)


def reinstalled(allocation: Allocation, now: datetime.datetime) -> Allocation:
    """Return the allocation as `provisioning`, because its machine was reinstalled and must be prepared again."""
    moved = move(allocation, "provisioning", f"{_REINSTALLED} and is prepared again")
    return msgspec.structs.replace(moved, provision_retry_at=now, observer_on_node="", observer_asked_at=None)


def check_unused(allocation: Allocation) -> None:
    """Refuse to release an allocation that instances use. Repeating a failed release needs no second override."""
    if allocation.used_by_instance_ids and allocation.status != "release_failed":
        users = ", ".join(allocation.used_by_instance_ids)
        details = {"instance_ids": allocation.used_by_instance_ids}
        fix = f"gpuaas decommission {allocation.used_by_instance_ids[0]}"
        raise errors.Conflict(f"An app instance uses this allocation: {users}.", details=details, fix=fix)


def check_retire(node: Node, allocations: Sequence[Allocation]) -> None:
    if allocations:
        named = ", ".join(f"{held.allocation_id} ({held.status}) of {held.project_id}" for held in allocations)
        details = {"allocation_ids": [held.allocation_id for held in allocations]}
        fix = f"gpuaas node drain {node.name}, wait for its owner to release it, then retire it."
        raise errors.Conflict(f"Node {node.name} still carries {named}.", details=details, fix=fix)


def releasing(allocation: Allocation, reason: str = "") -> Allocation:
    """Return the allocation at the start of the next release attempt, without the evidence of the last attempt."""
    moved = allocation if allocation.status == "released" else move(allocation, "releasing", reason)
    attempts = allocation.release_attempts + 1
    return msgspec.structs.replace(
        moved, provision_retry_at=None, release_attempts=attempts, release_retry_at=None, release_evidence=None
    )


def given_up(allocation: Allocation, reason: str) -> Allocation:
    if allocation.status != "release_failed":
        raise errors.Conflict(
            f"The allocation is {allocation.status}; only one whose release failed can be given up.",
            fix=f"gpuaas allocation release {allocation.allocation_id}",
        )
    return move(allocation, "released", f"given up: {reason}")


def provisioned(allocation: Allocation, error: str, now: datetime.datetime) -> Allocation:
    """Return the allocation after a provision task. A new allocation fails with the first error. For a reinstalled
    machine the task is retried until it succeeds, because the allocation is in use."""
    if allocation.status != "provisioning":
        return allocation
    if not error:
        return msgspec.structs.replace(move(allocation, "active"), provision_retry_at=None)
    if allocation.provision_retry_at is None:
        return move(allocation, "failed", error)
    waiting = move(allocation, "provisioning", f"{_REINSTALLED} and could not be prepared again yet: {error}")
    return msgspec.structs.replace(waiting, provision_retry_at=now + _PROVISION_AGAIN_AFTER)


def with_observer(allocation: Allocation, result: TaskResult) -> Allocation:
    """Return the allocation with the user that the agent made for observers. Older agents make none."""
    observer = result.result.get("observer_user") if result.status == "succeeded" else None
    return msgspec.structs.replace(allocation, observer_on_node=observer) if isinstance(observer, str) else allocation


def must_ask_for_observer(allocation: Allocation, now: datetime.datetime) -> bool:
    """Return whether to have the machine prepared again, because it has no user for observers: an earlier release of
    the platform or the agent prepared it."""
    if allocation.observer_on_node or allocation.status != "active":
        return False
    return allocation.observer_asked_at is None or now - allocation.observer_asked_at >= _OBSERVER_ASKED_EVERY


def check_observer(allocation: Allocation, now: datetime.datetime) -> None:
    """Refuse observer access to a machine without a user for it."""
    if allocation.observer_on_node:
        return
    asked_at, details = allocation.observer_asked_at, {"allocation_id": allocation.allocation_id}
    if asked_at is not None and now - asked_at >= _OBSERVER_MADE_WITHIN:
        raise errors.AgentTooOld(f"The agent on {allocation.node_name} made no user for observers.", details=details)
    raise errors.AccountPending(f"{allocation.node_name} gets its user for observers now.", details=details)


def cleaned(allocation: Allocation, error: str, evidence: ReleaseEvidence | None, now: datetime.datetime) -> Allocation:
    """Return the allocation after a release task. The release failed if the node reports something left behind.

    An allocation that was given up stays `released`; the task is repeated until the node has been cleaned.
    """
    noted = msgspec.structs.replace(allocation, release_evidence=evidence)
    why = error or _left_behind(evidence)
    if not why:
        return move(noted, "released", noted.status_reason)
    failed = noted if allocation.status == "released" else move(noted, "release_failed", why)
    return msgspec.structs.replace(failed, release_retry_at=now + _pause(allocation.release_attempts))


def evidence(result: TaskResult, now: datetime.datetime) -> ReleaseEvidence | None:
    """Return the evidence in the agent's result; None if it is missing or not valid."""
    try:
        reported = msgspec.convert(result.result.get("evidence"), ReleaseEvidence)
    except msgspec.ValidationError:
        return None
    return msgspec.structs.replace(reported, reported_at=now)


def _left_behind(reported: ReleaseEvidence | None) -> str:
    if reported is None or not reported.left_behind:
        return ""
    named = ", ".join(reported.left_behind[:_NAMED_MAX])
    more = len(reported.left_behind) - _NAMED_MAX
    return f"left_behind: {named}" + (f" and {more} more" if more > 0 else "")


def _pause(attempts: int) -> datetime.timedelta:
    """Return the pause before the next attempt. It grows, because the cause of a failure often persists for a while."""
    doublings = min(max(attempts - 1, 0), 10)
    return min(_RETRY_FIRST * float(2**doublings), _RETRY_LAST)
