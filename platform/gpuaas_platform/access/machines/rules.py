"""Pure: the contents of a certificate, and whether the conditions of a grant are still met."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from gpuaas_contract import errors
from gpuaas_contract.access import MACHINE_ACCESS, AccessKind, MachineGrant, RequestMachineAccess
from gpuaas_contract.capacity import Allocation
from gpuaas_contract.instances import Steward
from gpuaas_contract.operations import OperationHead

from gpuaas_platform.operations.rules import NEEDS_ENTITLEMENT

ROOT = "access.machine.root"
CLOCK_BEHIND_MAX = datetime.timedelta(hours=1)
"""Machines accept certificates if their clocks are behind by no more than this: who repairs a clock must log in. They
refuse revoked serials for this long after the certificate has expired."""
_ADMINS_NAMED_MAX = 5
_ACTORS = {"user": "the person", "service_account": "the service account"}


@dataclass(frozen=True)
class CertificateTerms:
    principal: str
    source: str
    key_id: str
    valid_from: datetime.datetime
    valid_to: datetime.datetime
    interactive: bool
    """True for people, who get a terminal. Controllers can only run commands."""


@dataclass(frozen=True)
class Door:
    """As whom a certificate lets its holder log in."""

    access: AccessKind
    user: str
    """The Unix user on the machine."""
    principal: str
    """The only principal of the certificate. The machine accepts it for this user only."""


def root_door(allocation: Allocation) -> Door:
    """Return the door to the allocation's user, which has sudo."""
    return Door("root", allocation.username_on_node, allocation.allocation_id)


def observer_door(allocation: Allocation) -> Door:
    """Return the door to the user for observers, which cannot change anything."""
    return Door("observer", allocation.observer_on_node, f"observer/{allocation.allocation_id}")


def is_replaced(grant: MachineGrant, allocation: Allocation, body: RequestMachineAccess) -> bool:
    """Return whether a grant is replaced by new observer access of the same instance to the same machine."""
    return (grant.allocation_id, grant.instance_id) == (allocation.allocation_id, body.instance_id)


def check_as(body: RequestMachineAccess) -> None:
    if body.instance_id and (body.operation_id or body.as_):
        raise errors.ValidationFailed(
            "A request with instance_id has no operation_id and no `as`: it is for the observer.",
            details={"field": "instance_id"},
        )
    if body.operation_id and body.as_ == "person":
        raise errors.ValidationFailed("An operation logs in as root.", details={"field": "as"})


def no_root(admins: Sequence[str]) -> str:
    """Return why a person may not log in as root, and who can change that."""
    named = ", ".join(admins[:_ADMINS_NAMED_MAX]) or "none at the moment"
    more = " and others" if len(admins) > _ADMINS_NAMED_MAX else ""
    return (
        "To log in as root you need access.machine.root, which admins of the project have. "
        f"These people can give you the role: {named}{more}."
    )


def terms(
    allocation: Allocation,
    door: Door,
    *,
    actor_id: str,
    held_id: str,
    source: str,
    ttl_s: int,
    ttl_max_s: int,
    now: datetime.datetime,
) -> CertificateTerms:
    """`held_id` is the operation or the instance that a controller holds; empty for a person."""
    check_open(allocation)
    return CertificateTerms(
        principal=door.principal,
        source=source,
        key_id=f"{actor_id} {held_id or 'interactive'}",
        valid_from=now - CLOCK_BEHIND_MAX,
        valid_to=now + datetime.timedelta(seconds=min(ttl_s, ttl_max_s)),
        interactive=not held_id,
    )


def check_open(allocation: Allocation) -> None:
    if allocation.status != "active":
        why = f": {allocation.status_reason}" if allocation.status_reason else ""
        raise errors.Conflict(f"The allocation is {allocation.status}{why}; only an active one can be entered.")


def permission(grant: MachineGrant) -> str:
    """Return the permission that the holder of the grant must keep."""
    return ROOT if grant.access == "root" and not grant.operation_id else MACHINE_ACCESS.permission


@dataclass(frozen=True)
class Conditions:
    """The current state of everything that a grant depends on."""

    allocation: Allocation | None
    operation: OperationHead | None
    actor_state: str
    """State of the person or service account; empty if it no longer exists."""
    session_exists: bool
    """The session in which the grant was made was not revoked. It may have expired."""
    is_permitted: bool
    """The actor may still log in to machines of the project, in the way that was granted."""
    is_entitled: bool
    """The project may still deploy the operation's app."""
    steward: Steward | None
    """The steward of the instance that the grant is for."""
    leases_count: bool
    """Whether expired leases count: the platform has run long enough to have received every heartbeat."""


def why_over(grant: MachineGrant, conditions: Conditions, now: datetime.datetime) -> str:
    """Return why the grant must end, as text for its owner; empty while all its conditions are met."""
    allocation = conditions.allocation
    if allocation is None or allocation.status != "active":
        return f"the allocation is {allocation.status if allocation else 'gone'}"
    if conditions.actor_state != "active":
        return f"{_ACTORS[grant.actor_type]} is {conditions.actor_state or 'gone'}"
    if not conditions.session_exists:
        return "the session in which it was granted was ended"
    if not conditions.is_permitted:
        way = " as root" if grant.access == "root" and not grant.operation_id else ""
        return f"{_ACTORS[grant.actor_type]} may no longer log in to machines of the project{way}"
    if grant.sessions_until is not None and grant.sessions_until <= now:
        return "its time is over"
    if grant.instance_id:
        return _why_not_steward(grant, allocation, conditions, now)
    return _why_not_claimed(grant, allocation, conditions, now) if grant.operation_id else ""


def _why_not_steward(
    grant: MachineGrant, allocation: Allocation, conditions: Conditions, now: datetime.datetime
) -> str:
    steward = conditions.steward
    if steward is None or steward.epoch != grant.epoch:
        return "another controller looks after the instance, or none"
    if conditions.leases_count and steward.expires_at <= now:
        return "the stewardship of the instance expired"
    if grant.instance_id not in allocation.used_by_instance_ids:
        return "the allocation no longer belongs to the instance"
    return ""


def _why_not_claimed(
    grant: MachineGrant, allocation: Allocation, conditions: Conditions, now: datetime.datetime
) -> str:
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
