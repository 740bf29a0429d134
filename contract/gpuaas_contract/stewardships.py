"""The steward API: between operations, one controller at a time looks after an instance, under a lease with an epoch.

A controller takes and renews the stewardships of all its instances in one request. Its reports carry the epoch, and the
platform refuses an older one."""

from typing import Annotated

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.catalog import StewardVerb
from gpuaas_contract.instances import BULK_MAX, AccessBundle
from gpuaas_contract.operations import Operation, Reason
from gpuaas_contract.paths import PROJECT, STEWARD
from gpuaas_contract.runtime import LeaseSeconds, PublishAccess
from gpuaas_contract.wire import Id, Request, Timestamp, Wire

STEWARDSHIPS_MAX = 5000
"""Largest number of stewardships that one request can renew."""
STEWARD_LEASE_S = 30
"""How long a stewardship lasts without a renewal, if the controller does not choose another time."""


class HeldStewardship(Request):
    """A stewardship that the caller holds, and when it last looked at the instance."""

    instance_id: Id
    epoch: int
    observed_at: Timestamp | None = None
    """When the controller last looked at the instance; none: not since the last renewal."""


class RenewStewardships(Request):
    """Renews the caller's stewardships of an app's instances, and takes free ones."""

    app_slug: Id
    holder: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    """Name of the controller process; different for each process. Shown to people."""
    lease_s: LeaseSeconds = STEWARD_LEASE_S
    """Seconds after which a stewardship ends if it is not renewed. Renew at a third of it."""
    held: Annotated[list[HeldStewardship], msgspec.Meta(max_length=STEWARDSHIPS_MAX)] = []
    """Stewardships to renew."""
    take_max: Annotated[int, msgspec.Meta(ge=0, le=STEWARDSHIPS_MAX)] = 0
    """How many free stewardships to take: those that no controller holds, or whose lease has expired."""


class Stewardship(Wire):
    """A stewardship that the caller holds now."""

    instance_id: str
    epoch: int
    """Sent with every report on the instance."""
    expires_at: Timestamp
    revision: int
    """Revision of the instance now. If it is not the one that the caller has read, the instance has changed."""


class Stewardships(Wire):
    """The stewardships that the caller holds, and those that it has lost."""

    held: list[Stewardship]
    """Renewed and newly taken ones."""
    lost: list[str]
    """Instance ids of the request whose stewardship was not renewed: another controller took it, or the instance is
    deleted or has another operator."""


class StewardOperationRequest(Request):
    """Requests an operation on members of an instance that the caller looks after."""

    epoch: int
    """Epoch of the caller's stewardship of the instance. The platform refuses a number that is not the newest."""
    kind: StewardVerb
    """One that the app's manifest lists in `steward.requests`."""
    member_ids: Annotated[list[Id], msgspec.Meta(min_length=1, max_length=BULK_MAX)]
    """Members of one role; for `replace` exactly one. The platform chooses the machine that it moves to: a spare."""
    reason: Reason
    """What the controller observed; stored with the operation and in the audit trail."""


RENEW = PROJECT.row(
    "/stewardships",
    "steward.renew",
    "Take and renew the stewardships of an app's instances",
    "One request for all instances of an app in a project. Free stewardships of instances that the caller may operate "
    "are taken with a higher epoch. A stewardship that is not renewed in time can be taken by another controller.",
).post(
    RenewStewardships,
    Stewardships,
    "apps.operation.execute",
    subject="project_id",
    repeat="natural",
    audited=False,
    errors=(errors.AppUnknown,),
)
ACCESS_PUBLISH = STEWARD.row(
    "/access-bundle",
    "steward.access",
    "Publish how people use the app, between operations",
    "`epoch` is that of the caller's stewardship.",
).put(PublishAccess, AccessBundle, "apps.operation.execute", subject="instance_id", errors=(errors.LeaseLost,))
OPERATION_REQUEST = STEWARD.row(
    "/operations",
    "steward.request",
    "Request an operation on members, as the controller that looks after the instance",
    "For changes that the controller finds necessary, such as a repair. Limited for each member and kind by the app's "
    "manifest; the role's breaker and disruption budget apply. `replace` is for a member whose machine does not "
    "answer, so it has force; holds apply. An input of the instance must allow it, and the member moves to a spare: an "
    "active allocation of the project on a ready node that no app instance uses, with the SKU, the region and the "
    "number of GPUs of the member's allocation.",
).post(
    StewardOperationRequest,
    Operation,
    "apps.operation.request",
    status=202,
    errors=(
        errors.LeaseLost,
        errors.StewardBudgetUsed,
        errors.OperationInProgress,
        errors.MemberHeld,
        errors.DisruptionBudget,
        errors.CircuitOpen,
        errors.NoSpare,
    ),
)
