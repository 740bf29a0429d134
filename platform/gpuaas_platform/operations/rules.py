"""Pure: the check of a request against its entitlement, and what the holder of an operation is checked against."""

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.catalog import SecretPurpose


class ClaimedOperation(msgspec.Struct, frozen=True):
    """An operation that the caller holds with its newest epoch, with what its app declares and what people gave it."""

    operation_id: str
    instance_id: str
    org_id: str
    project_id: str
    app_slug: str
    correlation_id: str
    purposes: tuple[SecretPurpose, ...]
    """What the app's manifest declares."""
    inputs: tuple[dict[str, object], ...] = ()
    """What people gave the instance, and the operation."""


def check_entitled_count(thing: str, limit: int, present: int, asked: int) -> None:
    if present + asked > limit:
        raise errors.NotEntitled(
            f"The entitlement allows {limit} {thing}; there would be {present + asked}.",
            details={"limit": limit, "present": present, "asked": asked},
            fix="Ask a tenant admin to widen the entitlement.",
        )
