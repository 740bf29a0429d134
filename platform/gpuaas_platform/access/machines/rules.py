"""Pure: the terms of a certificate."""

import datetime
from dataclasses import dataclass

from gpuaas_contract import errors
from gpuaas_contract.capacity import Allocation

_LOOPBACK = ("127.0.0.1", "::1", "")


@dataclass(frozen=True)
class CertificateTerms:
    principal: str
    source: str
    key_id: str
    valid_from: datetime.datetime
    valid_to: datetime.datetime
    interactive: bool
    """People get a terminal; controllers get commands only."""


def terms(
    allocation: Allocation,
    *,
    actor_id: str,
    operation_id: str,
    source: str,
    ttl_s: int,
    ttl_max_s: int,
    now: datetime.datetime,
) -> CertificateTerms:
    check_open(allocation)
    return CertificateTerms(
        principal=allocation.allocation_id,
        source=source,
        key_id=f"{actor_id} {operation_id or 'interactive'}",
        valid_from=now - datetime.timedelta(seconds=30),
        valid_to=now + datetime.timedelta(seconds=min(ttl_s, ttl_max_s)),
        interactive=not operation_id,
    )


def check_open(allocation: Allocation) -> None:
    if allocation.status != "active":
        why = f": {allocation.status_reason}" if allocation.status_reason else ""
        raise errors.Conflict(f"The allocation is {allocation.status}{why}; only an active one can be entered.")


def is_loopback(peer: str) -> bool:
    return peer in _LOOPBACK
