"""Pure: what an allocation is made of, how it moves, what a node's answer means for it, when to try again."""

import datetime
import hashlib

import msgspec
from gpuaas_contract import errors, lifecycles
from gpuaas_contract.capacity import INTEGRATION_METADATA_BYTES_MAX, Allocation, CreateAllocation, Node, ReleaseEvidence
from gpuaas_contract.lifecycles import AllocationStatus
from gpuaas_contract.node import TaskResult

_RETRY_FIRST = datetime.timedelta(seconds=30)
_RETRY_LAST = datetime.timedelta(hours=1)
_PROVISION_AGAIN_AFTER = datetime.timedelta(minutes=1)
_REINSTALLED = "its node was installed anew"
_NAMED_MAX = 5
_NO_AUTHORITY = (
    "Waiting for the SSH authority, which is made once custody is open: gpuaas-platform unseal; "
    "with Vault, the server's log says what is missing"
)


def check_request(wanted: CreateAllocation) -> None:
    if wanted.node_name and wanted.count > 1:
        raise errors.ValidationFailed("`node_name` names one node, so `count` is 1.", details={"field": "count"})
    size = len(msgspec.json.encode(wanted.integration_metadata))
    if size > INTEGRATION_METADATA_BYTES_MAX:
        raise errors.ValidationFailed(
            f"`integration_metadata` has {size} bytes as JSON; {INTEGRATION_METADATA_BYTES_MAX} is the most.",
            details={"field": "integration_metadata"},
        )


def username(allocation_id: str) -> str:
    """A Unix user of this allocation's own, within 32 characters."""
    return "gpu-" + hashlib.sha256(allocation_id.encode()).hexdigest()[:12]


def move(allocation: Allocation, status: AllocationStatus, reason: str = "") -> Allocation:
    if not lifecycles.may_move(lifecycles.ALLOCATION, allocation.status, status):
        raise errors.Conflict(f"The allocation is {allocation.status}; it cannot become {status} now.")
    return msgspec.structs.replace(allocation, status=status, status_reason=reason)


def waiting(allocation: Allocation) -> Allocation:
    """Its node has to be told whom to trust, and there is no SSH authority yet."""
    return msgspec.structs.replace(allocation, status="requested", status_reason=_NO_AUTHORITY)


def provisioning(allocation: Allocation, answered_by: datetime.datetime) -> Allocation:
    """Its node was told. One that was installed anew is told again if nothing has come of it after a while."""
    if allocation.provision_retry_at is None:
        return move(allocation, "provisioning")
    return msgspec.structs.replace(allocation, provision_retry_at=answered_by + _PROVISION_AGAIN_AFTER)


def installed_anew(allocation: Allocation, now: datetime.datetime) -> Allocation:
    """An active one: nothing of it is on its node any more."""
    moved = move(allocation, "provisioning", f"{_REINSTALLED} and is prepared again")
    return msgspec.structs.replace(moved, provision_retry_at=now)


def check_unused(allocation: Allocation) -> None:
    """Once somebody has overridden it, trying again needs no second override."""
    if allocation.used_by_instance_ids and allocation.status != "release_failed":
        users = ", ".join(allocation.used_by_instance_ids)
        raise errors.Conflict(
            f"An app instance uses this allocation: {users}.",
            details={"instance_ids": allocation.used_by_instance_ids},
            fix=f"gpuaas decommission {allocation.used_by_instance_ids[0]}",
        )


def releasing(allocation: Allocation, reason: str = "") -> Allocation:
    """The next attempt begins; what the node said in the last one no longer counts."""
    moved = allocation if allocation.status == "released" else move(allocation, "releasing", reason)
    return msgspec.structs.replace(
        moved,
        provision_retry_at=None,
        release_attempts=allocation.release_attempts + 1,
        release_retry_at=None,
        release_evidence=None,
    )


def given_up(allocation: Allocation, reason: str) -> Allocation:
    if allocation.status != "release_failed":
        raise errors.Conflict(
            f"The allocation is {allocation.status}; only one whose release failed can be given up.",
            fix=f"gpuaas allocation release {allocation.allocation_id}",
        )
    return move(allocation, "released", f"given up: {reason}")


def provisioned(allocation: Allocation, error: str, now: datetime.datetime) -> Allocation:
    """The first time it fails for good. Prepared again it is in use, so its node is told until it has done it."""
    if allocation.status != "provisioning":
        return allocation
    if not error:
        return msgspec.structs.replace(move(allocation, "active"), provision_retry_at=None)
    if allocation.provision_retry_at is None:
        return move(allocation, "failed", error)
    waiting = move(allocation, "provisioning", f"{_REINSTALLED} and could not be prepared again yet: {error}")
    return msgspec.structs.replace(waiting, provision_retry_at=now + _PROVISION_AGAIN_AFTER)


def cleaned(allocation: Allocation, error: str, evidence: ReleaseEvidence | None, now: datetime.datetime) -> Allocation:
    """A node that found something of the allocation after all is not clean, whatever else its agent says.

    One that was given up stays released; its node is told again until it has been cleaned.
    """
    noted = msgspec.structs.replace(allocation, release_evidence=evidence)
    why = error or _left_behind(evidence)
    if not why:
        return move(noted, "released", noted.status_reason)
    failed = noted if allocation.status == "released" else move(noted, "release_failed", why)
    return msgspec.structs.replace(failed, release_retry_at=now + _pause(allocation.release_attempts))


def evidence(result: TaskResult, now: datetime.datetime) -> ReleaseEvidence | None:
    """As the agent gives it; one that gives none, or none we can read, has shown nothing."""
    try:
        found = msgspec.convert(result.result.get("evidence"), ReleaseEvidence)
    except msgspec.ValidationError:
        return None
    return msgspec.structs.replace(found, reported_at=now)


def without_allocation(node: Node, allocation_id: str) -> Node:
    return msgspec.structs.replace(node, allocation_id=None) if node.allocation_id == allocation_id else node


def _left_behind(found: ReleaseEvidence | None) -> str:
    if found is None or not found.left_behind:
        return ""
    named = ", ".join(found.left_behind[:_NAMED_MAX])
    more = len(found.left_behind) - _NAMED_MAX
    return f"left_behind: {named}" + (f" and {more} more" if more > 0 else "")


def _pause(attempts: int) -> datetime.timedelta:
    """Longer from attempt to attempt; the node has usually failed for a reason that stays for a while."""
    doublings = min(max(attempts - 1, 0), 10)
    return min(_RETRY_FIRST * float(2**doublings), _RETRY_LAST)
