"""Pure: whether the conditions of a machine grant still hold. If not, the result is the reason that its owner reads."""

import datetime
from dataclasses import dataclass

from gpuaas_contract.access import MachineGrant
from gpuaas_contract.capacity import Allocation
from gpuaas_contract.operations import OperationHead

NEEDS_ENTITLEMENT = frozenset({"deploy", "upgrade"})
"""Kinds that bring something new in. Without the entitlement they end; running instances can still be managed."""
_ACTORS = {"user": "the person", "service_account": "the service account"}


@dataclass(frozen=True)
class Conditions:
    """What a grant depends on, as it is now."""

    allocation: Allocation | None
    operation: OperationHead | None
    actor_state: str
    """Of the person or service account; empty when it no longer exists."""
    is_permitted: bool
    """The actor may still log in to machines of the project."""
    is_entitled: bool
    """The project may still deploy the operation's app."""
    leases_count: bool
    """This process has run long enough to have received every heartbeat."""


def why_over(grant: MachineGrant, conditions: Conditions, now: datetime.datetime) -> str:
    """Return why the grant is over; empty while all its conditions hold."""
    allocation = conditions.allocation
    if allocation is None or allocation.status != "active":
        return f"the allocation is {allocation.status if allocation else 'gone'}"
    if conditions.actor_state != "active":
        return f"{_ACTORS[grant.actor_type]} is {conditions.actor_state or 'gone'}"
    if not conditions.is_permitted:
        return f"{_ACTORS[grant.actor_type]} may no longer log in to machines of the project"
    if grant.sessions_until is not None and grant.sessions_until <= now:
        return "its time is over"
    return _why_not_held(grant, allocation, conditions, now) if grant.operation_id else ""


def _why_not_held(grant: MachineGrant, allocation: Allocation, conditions: Conditions, now: datetime.datetime) -> str:
    operation = conditions.operation
    if operation is None or operation.status not in ("running", "cancelling"):
        return f"the operation is {operation.status if operation else 'gone'}"
    if operation.epoch != grant.epoch or operation.lease is None:
        return "a newer claim holds the operation"
    if conditions.leases_count and operation.lease.expires_at <= now:
        return "the lease of the operation ran out"
    if operation.kind in NEEDS_ENTITLEMENT and not conditions.is_entitled:
        return f"the project may no longer deploy {operation.app_slug}"
    if operation.instance_id not in allocation.used_by_instance_ids:
        return "the allocation no longer belongs to the operation's instance"
    return ""
