"""Pure: the check of a request against its entitlement, and the data for checks of a controller's requests."""

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.catalog import SecretPurpose

NEEDS_ENTITLEMENT = frozenset({"deploy", "upgrade"})
"""Operation kinds that deploy something new. Without an entitlement their controllers get no machine access and no
secrets; those of other kinds do, so that a running app stays manageable."""


class ClaimedOperation(msgspec.Struct, frozen=True):
    """An operation that the caller has claimed, with the secret purposes of its app and the inputs of users."""

    operation_id: str
    instance_id: str
    org_id: str
    project_id: str
    app_slug: str
    correlation_id: str
    purposes: tuple[SecretPurpose, ...]
    """From the app's manifest."""
    inputs: tuple[dict[str, object], ...] = ()
    """The inputs of the instance and of the operation."""


def check_entitled_count(thing: str, limit: int, present: int, asked: int) -> None:
    if present + asked > limit:
        raise errors.NotEntitled(
            f"The entitlement allows {limit} {thing}; there would be {present + asked}.",
            details={"limit": limit, "present": present, "asked": asked},
            fix="Ask a tenant admin to widen the entitlement.",
        )
