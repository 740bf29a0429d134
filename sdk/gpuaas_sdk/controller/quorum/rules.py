"""Decisions about members that agree by majority. Pure."""

from collections.abc import Mapping

from gpuaas_sdk.checks import Check

HAS_QUORUM, ALL_HEALTHY = "HasQuorum", "AllMembersHealthy"


def quorum(voters: int) -> int:
    """Return how many of the members must agree.

    quorum(3)  # 2"""
    return voters // 2 + 1


def conditions(unwell: Mapping[str, str], members: int) -> dict[str, Check]:
    """Return the health conditions that every such app has. `unwell` has the machines whose member does not serve, with
    the reason.

    conditions({"gpu-1": "no answer"}, 3)["HasQuorum"].ok  # True"""
    serving, needed = members - len(unwell), quorum(members)
    text = f"{serving} of {members} members serve, and {needed} are needed: {listed(unwell)}"
    return {HAS_QUORUM: Check(serving >= needed, text), ALL_HEALTHY: Check(not unwell, listed(unwell))}


def may_leave(unwell: Mapping[str, str], others: int, name: str) -> Check:
    """Return whether the others keep a quorum after this member has left. For members that agree, this is what `safe to
    remove` means: a member has no work of its own.

    may_leave({}, 2, "gpu-1").ok  # True"""
    is_safe = others == 0 or others - len(unwell) >= quorum(others)
    return Check(is_safe, f"without {name} there would be no quorum, because others do not serve: {listed(unwell)}")


def may_pause(unwell: Mapping[str, str], name: str) -> Check:
    """Return whether this member may restart. All others must serve, so that never two members are away.

    may_pause({"gpu-2": "no answer"}, "gpu-1").ok  # False"""
    return Check(not unwell, f"the restart of {name} waits, because others do not serve: {listed(unwell)}")


def listed(unwell: Mapping[str, str]) -> str:
    """Return the members that do not serve, as people read them.

    listed({"gpu-1": "no answer"})  # gpu-1: no answer"""
    return "; ".join(f"{name}: {reason}" for name, reason in sorted(unwell.items()))
