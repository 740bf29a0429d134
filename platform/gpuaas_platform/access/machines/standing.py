"""Pure: does a machine grant still stand? The answer is the sentence its owner reads when it does not."""

import datetime
from dataclasses import dataclass

from gpuaas_contract.access import MachineGrant
from gpuaas_contract.capacity import Allocation
from gpuaas_contract.operations import OperationHead

NEEDS_ENTITLEMENT = frozenset({"deploy", "upgrade"})
"""Kinds that bring something new in. Without the entitlement they end; what runs stays manageable."""


@dataclass(frozen=True)
class Standing:
    """What a grant rests on, as it is now."""

    allocation: Allocation | None
    operation: OperationHead | None
    actor_state: str
    """Of the person or service account; empty when there is none any more."""
    is_permitted: bool
    """The actor may still log in to machines of the project."""
    is_entitled: bool
    """The project may still deploy the operation's app."""
    leases_count: bool
    """This process has been awake long enough to have heard every heartbeat."""


def why_over(grant: MachineGrant, standing: Standing, now: datetime.datetime) -> str:
    """Empty while the grant stands."""
    allocation = standing.allocation
    if allocation is None or allocation.status != "active":
        return f"the allocation is {allocation.status if allocation else 'gone'}"
    if standing.actor_state != "active":
        return f"{_ACTORS[grant.actor_type]} is {standing.actor_state or 'gone'}"
    if not standing.is_permitted:
        return f"{_ACTORS[grant.actor_type]} may no longer log in to machines of the project"
    if grant.sessions_until is not None and grant.sessions_until <= now:
        return "its time is over"
    return _why_not_held(grant, allocation, standing, now) if grant.operation_id else ""


_ACTORS = {"user": "the person", "service_account": "the service account"}


def _why_not_held(grant: MachineGrant, allocation: Allocation, standing: Standing, now: datetime.datetime) -> str:
    operation = standing.operation
    if operation is None or operation.status not in ("running", "cancelling"):
        return f"the operation is {operation.status if operation else 'gone'}"
    if operation.epoch != grant.epoch or operation.lease is None:
        return "a newer claim holds the operation"
    if standing.leases_count and operation.lease.expires_at <= now:
        return "the lease of the operation ran out"
    if operation.kind in NEEDS_ENTITLEMENT and not standing.is_entitled:
        return f"the project may no longer deploy {operation.app_slug}"
    if operation.instance_id not in allocation.used_by_instance_ids:
        return "the allocation no longer belongs to the operation's instance"
    return ""
