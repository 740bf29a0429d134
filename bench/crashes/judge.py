"""Decide what is wrong with an operation that was interrupted, compared with the same one undisturbed. Pure."""

import datetime
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from gpuaas_contract.operations import Operation
from gpuaas_sdk.conformance import effects
from gpuaas_sdk.conformance.plan import Move
from gpuaas_sdk.conformance.stage import States, describe, difference

VICTIMS = ("controller", "platform")
SETTLED_S_MAX = 60.0
LENGTH_GROWTH = 1.2
HEADER = (
    f"{'app':10}{'operation':26}{'killed c/p':>11}{'instants':>9}{'before':>8}{'during':>8}{'after':>7}"
    f"{'settled s':>11}{'slowest':>9}{'doubled':>9}{'different':>11}{'not ended':>11}"
)


@dataclass(frozen=True)
class Undisturbed:
    """What an operation does if nothing is killed: its effects, and what it leaves on the machines."""

    effects: Counter[str]
    states: States


@dataclass(frozen=True)
class Ended:
    """One operation after one kill, as the platform and the machines show it."""

    cluster: int
    operation: Operation
    ends: Sequence[str]
    """The status in each event about its end."""
    killed_at: datetime.datetime
    effects: Sequence[str]
    states: States

    @property
    def settled_s(self) -> float:
        """How long it took from the kill to the end; 0 if it had ended before."""
        ended_at = self.operation.ended_at or datetime.datetime.max.replace(tzinfo=datetime.UTC)
        return max(0.0, (ended_at - self.killed_at).total_seconds())

    @property
    def phase(self) -> str:
        """When the kill came: before the operation was claimed, during its work, or after its end."""
        if self.settled_s == 0:
            return "after"
        started_at = self.operation.started_at
        return "during" if started_at is not None and started_at < self.killed_at else "before"


@dataclass
class Row:
    """The counts of one operation of an app."""

    app: str
    move: Move
    kills: Counter[str] = field(default_factory=Counter)
    """Victim -> how often it was killed during this operation."""
    phases: Counter[str] = field(default_factory=Counter)
    settled_s: list[float] = field(default_factory=list)
    doubled: int = 0
    different: int = 0
    not_ended: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def hits(self) -> int:
        """How many operations had not ended when the kill came."""
        return self.phases["before"] + self.phases["during"]

    def next_victim(self) -> str:
        """Return who is killed next. The victims take turns in each row: turns over all operations of an app would
        kill the same victim in a row whenever the app has an even number of operations."""
        victim = VICTIMS[self.kills.total() % len(VICTIMS)]
        self.kills[victim] += 1
        return victim

    def add(self, ended: Ended, undisturbed: Undisturbed) -> bool:
        """Count one operation. Return whether everything is right."""
        self.phases[ended.phase] += 1
        if ended.phase != "after":
            self.settled_s.append(ended.settled_s)
        reasons = [
            ("not_ended", _end_problem(ended)),
            ("doubled", _doubled(ended, undisturbed)),
            ("different", difference(masked(undisturbed.states, ended.states), ended.states)),
        ]
        for name, reason in reasons:
            if reason:
                setattr(self, name, getattr(self, name) + 1)
                self.wrong.append(f"cluster {ended.cluster}, {ended.phase}, {ended.operation.operation_id}: {reason}")
        return not any(reason for _, reason in reasons)

    def line(self) -> str:
        settled = self.settled_s or [0.0]
        phases = f"{self.phases['before']:8}{self.phases['during']:8}{self.phases['after']:7}"
        counts = f"{self.doubled:9}{self.different:11}{self.not_ended:11}"
        times = f"{statistics.median(settled):11.1f}{max(settled):9.1f}"
        kills = "/".join(str(self.kills[victim]) for victim in VICTIMS)
        return f"{self.app:10}{self.move!s:26}{kills:>11}{self.hits:9}{phases}{times}{counts}"


def undisturbed(seen: Sequence[Sequence[str]], states: Sequence[States]) -> Undisturbed:
    """Return what several undisturbed operations have in common. A value that differs between them (a secret, a time)
    is not compared; that it exists is."""
    common: States = {}
    for node, content in states[0].items():
        for name, value in content.items():
            is_same = all(other.get(node, {}).get(name) == value for other in states)
            common.setdefault(node, {})[name] = value if is_same else ANY
    counts: Counter[str] = Counter()
    for effects_of_one in seen:
        counts |= Counter(effects_of_one)
    return Undisturbed(counts, common)


def length_s(operation: Operation) -> float:
    assert operation.ended_at is not None
    return (operation.ended_at - operation.created_at).total_seconds()


def next_length_s(present_s: float, done: Sequence[Ended]) -> float:
    """Return within which time the next operations are interrupted. It follows the load of the host: it is the longest
    one that ended before its kill. If none did, it grows, so that kills also come near the end."""
    before_kill = [length_s(ended.operation) for ended in done if ended.phase == "after"]
    return max(before_kill, default=present_s * LENGTH_GROWTH)


ANY = "(any value)"


def masked(wanted: States, present: States) -> States:
    """Return the wanted states, with the present value wherever any value is right."""
    return {
        node: {
            name: present.get(node, {}).get(name, value) if value == ANY else value for name, value in content.items()
        }
        for node, content in wanted.items()
    }


def _end_problem(ended: Ended) -> str:
    if ended.operation.status != "succeeded":
        return describe(ended.operation)
    if list(ended.ends) != ["succeeded"]:
        return f"there are {len(ended.ends)} events about its end: {', '.join(ended.ends)}"
    if ended.settled_s > SETTLED_S_MAX:
        return f"it ended {ended.settled_s:.0f} s after the kill"
    return ""


def _doubled(ended: Ended, undisturbed: Undisturbed) -> str:
    more = effects.doubled(undisturbed.effects.elements(), ended.effects)
    return f"more often than undisturbed: {', '.join(more[:3])}" if more else ""
