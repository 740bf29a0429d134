"""Pure checks of a request against the platform's policy and the project's entitlement."""

from collections.abc import Mapping, Sequence

from gpuaas_contract import errors

from gpuaas_platform.policy import rules as policy_rules


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
