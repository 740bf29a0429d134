"""Holds: a named reason why a member must not take work or must not be removed. Every hold expires."""

from typing import Annotated, Literal

import msgspec

from gpuaas_contract.operations import Reason
from gpuaas_contract.paths import HOLD, INSTANCE, MEMBER
from gpuaas_contract.wire import Label, Request, Timestamp, Wire

HoldKind = Literal["no_work", "no_removal"]
"""`no_work`: the member must not be resumed. `no_removal`: it must not be removed, replaced or decommissioned."""
HOLD_S_MAX = 90 * 24 * 3600


class Hold(Wire):
    """Protects a member from new work or from removal."""

    hold_id: str
    instance_id: str
    org_id: str
    project_id: str
    member_id: str
    name: str
    kind: HoldKind
    """`no_work`: the member must not be resumed. `no_removal`: it must not be removed, replaced or decommissioned."""
    reason: str
    owner: str
    """Who placed the hold; only this person or account can lift it."""
    expires_at: Timestamp
    """When it expires."""
    created_at: Timestamp
    lifted_at: Timestamp | None = None
    """When the hold's owner lifted it before it expired; none otherwise."""


class PlaceHold(Request):
    """Keeps a member from work or from removal for some time."""

    name: Label
    """Name of the hold, chosen by the caller, such as `bad-fan`."""
    kind: HoldKind
    """`no_work`: the member must not be resumed. `no_removal`: it must not be removed, replaced or decommissioned."""
    reason: Reason
    """Why the hold is placed; shown to callers whose requests it prevents."""
    ttl_s: Annotated[int, msgspec.Meta(ge=60, le=HOLD_S_MAX)] = 24 * 3600
    """Seconds after which the hold ends."""


HOLD_PLACE = MEMBER.row(
    "/holds",
    "apps.hold.place",
    "Place a hold on a member",
    "The hold counts from now on, also for operations that are running.",
).post(
    PlaceHold,
    Hold,
    status=201,
    example={"name": "bad-fan", "kind": "no_work", "reason": "the fan is loud; technician on Monday"},
)
HOLD_LIST = INSTANCE.row(
    "/holds", "apps.hold.list", "List the holds in an instance, lifted and expired ones included"
).list(Hold, "apps.instance.read")
HOLD_LIFT = HOLD.row("", "apps.hold.lift", "Lift a hold that you placed").delete(
    Hold, "apps.hold.place", repeat="natural"
)
