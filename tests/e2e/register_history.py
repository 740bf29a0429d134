"""Was a register linearizable, and was every acknowledged write kept? The store numbers its changes, so the order that
it claims is known, and only has to agree with the clock and with what was read. Pure.

A write that was not acknowledged may have happened or not, so it proves nothing by itself."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Done:
    """An operation on the register that was acknowledged. `revision` is that of the write, or of the value read."""

    kind: str
    value: str
    revision: int
    began_s: float
    ended_s: float


def violations(history: Iterable[Done], begun: Mapping[str, float]) -> list[str]:
    """Return what no single copy of the register could have done. `begun` has the start of every write by its value,
    acknowledged or not: what is read must come from one of them."""
    done = sorted(history, key=lambda entry: entry.began_s)
    written: dict[int, str] = {}
    problems = []
    for entry in done:
        if entry.kind == "write" and written.setdefault(entry.revision, entry.value) != entry.value:
            problems.append(f"two writes have revision {entry.revision}")
    for entry in done:
        if entry.kind != "read" or entry.revision == 0:
            continue
        if written.get(entry.revision, entry.value) != entry.value:
            problems.append(
                f"revision {entry.revision} was written as {written[entry.revision]} and read as {entry.value}"
            )
        if begun.get(entry.value, entry.ended_s + 1) > entry.ended_s:
            problems.append(f"{entry.value} was read before it was written")
    return problems + _out_of_order(done)


def _out_of_order(done: list[Done]) -> list[str]:
    """Return operations that show an older state than one which had ended before they began."""
    problems, ended, newest = [], sorted(done, key=lambda entry: entry.ended_s), 0
    at = 0
    for entry in done:
        while at < len(ended) and ended[at].ended_s < entry.began_s:
            newest = max(newest, ended[at].revision)
            at += 1
        if entry.revision < newest or (entry.kind == "write" and entry.revision == newest):
            problems.append(f"a {entry.kind} has revision {entry.revision} after revision {newest} was seen")
    return problems


def lost(acknowledged: Iterable[str], kept: Iterable[str]) -> set[str]:
    """Return the keys whose write was acknowledged and that the store does not have."""
    return set(acknowledged) - set(kept)
