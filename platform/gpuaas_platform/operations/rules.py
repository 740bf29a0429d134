"""Pure: checks of a request against policy and entitlement, and what the holder of an operation is checked against."""

from collections.abc import Mapping, Sequence

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.catalog import SecretPurpose

from gpuaas_platform.policy import rules as policy_rules


class HeldOperation(msgspec.Struct, frozen=True):
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


def check_policy(layers: policy_rules.Layers, instances: int, placement: Mapping[str, Sequence[str]]) -> None:
    """One more instance in the project, with a member per placed allocation."""
    policy_rules.check_limit(layers, "instances_max", present=instances, asked=1)
    check_members_max(layers, 0, sum(len(allocation_ids) for allocation_ids in placement.values()))


def check_members_max(layers: policy_rules.Layers, present: int, asked: int) -> None:
    policy_rules.check_limit(layers, "members_per_instance_max", present=present, asked=asked)


def check_entitled_count(thing: str, limit: int, present: int, asked: int) -> None:
    if present + asked > limit:
        raise errors.NotEntitled(
            f"The entitlement allows {limit} {thing}; there would be {present + asked}.",
            details={"limit": limit, "present": present, "asked": asked},
            fix="Ask a tenant admin to widen the entitlement.",
        )
