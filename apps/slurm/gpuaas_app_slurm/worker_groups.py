"""In which groups an upgrade changes workers, and what it reports when one fails. Pure. Called by `upgrade`."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from gpuaas_sdk.failures import Permanent

Worker = TypeVar("Worker")

FIRST, LARGEST = 2, 16
"""Sizes of the first group after the canary and of the largest one. Each group is twice as large as the one before, so
a fault that not every worker has stops the upgrade while most workers are untouched."""
NAMES_MAX = 20
"""An error has room for this many names of each kind."""


def groups(workers: Sequence[Worker]) -> Iterator[tuple[Worker, ...]]:
    """Return the workers in the groups in which they are upgraded: 2, 4, 8, then 16 at a time."""
    begin, size = 0, FIRST
    while begin < len(workers):
        yield tuple(workers[begin : begin + size])
        begin, size = begin + size, min(size * 2, LARGEST)


def stopped(
    operation_id: str, instance: str, error: Permanent, failed: Sequence[str], new: Sequence[str], old: Sequence[str]
) -> Permanent:
    """Return the error of an upgrade in which workers failed after the canary, with the workers of each version."""
    listed = f"new version: {_names(new)}; old version, untouched: {_names(old)}"
    retry, back = f"gpuaas op retry {operation_id} --reason TEXT", f"gpuaas op compensate {operation_id} --reason TEXT"
    remove = f"gpuaas member remove {instance} {failed[0]} --force --reason TEXT"
    return Permanent(
        f"the upgrade stopped because {_names(failed)} failed, and queued jobs wait; {listed}; {error}",
        fix=f"repair {_names(failed)}, then: {retry}; or return to the old version: {back}; "
        f"or give the machine up: {remove}, then request the upgrade again",
    )


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(sorted(names)[:NAMES_MAX]) or "none"
    return shown if len(names) <= NAMES_MAX else f"{shown} and {len(names) - NAMES_MAX} more"
