"""Decide when the app itself replaces a worker whose machine is silent. Pure; `health` requests it.

People allow it by the input `replace_lost_after_minutes`. It is for one broken machine: if several are silent, the
network may be broken, and machines that work would be given up."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from gpuaas_app_slurm import plan, roles

LOST = "MachineLost"
"""The reason of each replace that the app requests begins with this word."""
SILENT = "MachineSilent"
GAP_S = 60.0
"""After so long without a look, a machine may have answered in between, so its silence begins again."""


class Silence(NamedTuple):
    """Since when machines are silent, without a gap between looks."""

    looked_at: float = 0.0
    since: Mapping[str, float] = {}
    """Member id -> time of the first look at which its machine was silent."""


def silence(before: Silence, verdicts: Iterable[plan.Verdict], judged: Collection[str], now_s: float) -> Silence:
    """Return the silence after a look. `judged`: ids of the members that the app judges. One without a verdict was not
    looked at, and stays as it was; one that was removed, or that an operation changes, is forgotten."""
    is_recent = now_s - before.looked_at <= GAP_S
    kept = {member_id: since for member_id, since in before.since.items() if is_recent and member_id in judged}
    for verdict in verdicts:
        if is_silent(verdict):
            kept.setdefault(verdict.member_id, now_s)
        else:
            kept.pop(verdict.member_id, None)
    return Silence(now_s, kept)


def is_silent(verdict: plan.Verdict) -> bool:
    return SILENT in (verdict.detail or {}).get("findings", ())


def to_replace(
    members: Iterable[plan.AnyMember], silent: Silence, unclear: Iterable[str], after_minutes: int | None
) -> plan.AnyMember | None:
    """Return the worker to replace: the only silent machine, for long enough. `unclear`: ids of members that seem
    unwell and were not looked at, so they may be silent too."""
    if not after_minutes or len(silent.since) != 1 or list(unclear):
        return None
    [(member_id, since)] = silent.since.items()
    if silent.looked_at - since < after_minutes * 60:
        return None
    workers = (member for member in members if member.component_key == roles.WORKER and plan.is_judged(member))
    return next((member for member in workers if member.member_id == member_id), None)


def reason(node_name: str, after_minutes: int) -> str:
    return (
        f"{LOST}: {node_name} has not answered for {after_minutes} minutes, and replace_lost_after_minutes of the "
        "instance allows its replace"
    )


def is_of_app(operation_reason: str) -> bool:
    """Return whether the app requested the replace because the machine was silent."""
    return operation_reason.startswith(f"{LOST}:")
