"""Decide which operations of the tour are possible with the machines and versions that a project has. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from gpuaas_contract.catalog import Manifest

from gpuaas_sdk.conformance import plan
from gpuaas_sdk.conformance.driver import Driver
from gpuaas_sdk.conformance.plan import Move


class Tour(NamedTuple):
    """What is tried, and what is left out for a reason."""

    moves: list[Move]
    left_out: dict[Move, str]

    @property
    def note(self) -> str:
        """A sentence about what is left out; empty if nothing is."""
        return plan.note(self.left_out)


def needed(manifest: Manifest, driver: Driver) -> int:
    """Return how many machines a deploy takes."""
    return sum(plan.counts(manifest, driver).values())


def tour(manifest: Manifest, driver: Driver, moves: Sequence[Move], machines: int, *, upgrades: bool) -> Tour:
    """Return the moves that are possible with so many machines. `upgrades`: the project has the version before."""
    used, added = needed(manifest, driver), set[str]()
    result = Tour([], {})
    for move in moves:
        reason = ""
        if move.kind in ("add", "replace") and used >= machines:
            reason = f"needs {used + 1} machines"
        elif move.kind == "remove" and move.role not in added and _is_least(manifest, driver, move.role):
            reason = "needs the add before it"
        elif move.kind in ("upgrade", "rollback") and not upgrades:
            reason = f"needs {plan.previous_version(manifest)} in the catalog"
        if reason:
            result.left_out[move] = reason
            continue
        result.moves.append(move)
        if move.kind == "add":
            used, added = used + 1, added | {move.role}
        used -= move.kind == "remove"
    return result


def _is_least(manifest: Manifest, driver: Driver, role: str) -> bool:
    least = next(spec.min for spec in manifest.roles if spec.component_key == role)
    return plan.counts(manifest, driver)[role] <= least
