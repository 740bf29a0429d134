"""The port to a provisioner: the system outside the machine that can reinstall it (MAAS, Ironic, the lab).

An attempt is repeated with the same id until the provisioner has a record of it, so `begin` must be idempotent.
"""

from typing import Literal, Protocol

import msgspec


class Unavailable(Exception):
    """The provisioner does not answer, or its answer cannot be used. The loop tries again."""


class Enrolment(msgspec.Struct, frozen=True, kw_only=True):
    """What the reinstalled system needs to enrol. No other party gets this token."""

    token: str
    ca_sha256: str
    """Fingerprint of the platform's certificate authority, for the agent's configuration."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """The request to reinstall one machine."""

    attempt_id: str
    """Id of the attempt, the same in every repeat of an order, so that a provisioner starts an attempt once."""
    node_id: str
    node_name: str
    address: str
    """Last address of the machine, as a hint. The machine reported it, so identify the machine by its name."""
    enrolment: Enrolment
    """Every repeat has a fresh token. Each token of the attempt works, once."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    state: Literal["unknown", "pending", "done", "failed"]
    """`unknown`: the provisioner has no record of the attempt, so the order is sent."""
    reason: str = ""


class Provisioner(Protocol):
    name: str
    """Stored in `sanitised_by` of a node."""

    async def begin(self, order: Order) -> Progress:
        """Start the attempt, unless it has started. May raise `Unavailable`."""

    async def state(self, attempt_id: str) -> Progress:
        """Return the state of the attempt. May raise `Unavailable`."""
