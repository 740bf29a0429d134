"""Count refused sign-ins of unknown callers, per network and minute, and refused requests of signed-in callers after
the first ones of a minute. `record.refusals` writes them to the audit trail.

Anyone can send such requests, so one audit row for each would let anyone fill the disk. The counts are in memory and
bounded; no text that the caller sent is stored except the correlation id, because a password may be typed as a name."""

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, field

from gpuaas_platform.kit import peers

TALLIES_MAX = 100
"""Most networks (with one action each) that are counted separately at a time; all others are counted together."""
NAMES_MAX = 8
"""Most accounts and most reasons that one tally lists; further ones are counted together."""
ROWS_PER_CALLER = 60
"""Refused requests of one signed-in caller in a minute that get an audit row each; further ones are counted."""
OTHERS = "others"
UNKNOWN = "unknown"
_MINUTE_S = 60


@dataclass(frozen=True)
class Refusal:
    action: str
    route: str
    peer: str
    correlation_id: str
    at: datetime.datetime
    code: str
    account: str = ""
    """Id of the account that the caller tried to use; empty if there is none with that name."""
    reason: str = ""


@dataclass
class Tally:
    """The refusals of one network, action and minute. The sums of `codes` and `accounts` are `count`."""

    first: Refusal
    network: str
    last_at: datetime.datetime
    count: int = 0
    codes: dict[str, int] = field(default_factory=dict)
    accounts: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)

    @property
    def minute(self) -> int:
        return _minute(self.first.at)

    def add(self, refusal: Refusal) -> None:
        self.count += 1
        self.last_at = refusal.at
        _add(self.codes, refusal.code, 1)
        _add(self.accounts, refusal.account or UNKNOWN, 1)
        if refusal.reason:
            _add(self.reasons, refusal.reason, 1)

    def merge(self, other: "Tally") -> None:
        self.count += other.count
        self.last_at = max(self.last_at, other.last_at)
        for mine, theirs in zip(self._counts(), other._counts(), strict=True):
            for name, count in theirs.items():
                _add(mine, name, count)

    def _counts(self) -> tuple[dict[str, int], ...]:
        return self.codes, self.accounts, self.reasons


class Refusals:
    """The tallies that are not written yet. Only the event loop uses it, so it needs no lock."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[int, str, str, str], Tally] = {}
        self._others: dict[tuple[str, str], Tally] = {}
        """By action and route: the refusals of all networks for which there was no room."""
        self._rows: dict[str, int] = {}
        """Refused requests of the minute `_rows_minute`, by signed-in caller."""
        self._rows_minute = 0

    def takes_row(self, actor_id: str, now: datetime.datetime) -> bool:
        """Count a refused request of a signed-in caller. Return whether it gets an audit row."""
        if _minute(now) != self._rows_minute:
            self._rows, self._rows_minute = {}, _minute(now)
        self._rows[actor_id] = self._rows.get(actor_id, 0) + 1
        return self._rows[actor_id] <= ROWS_PER_CALLER

    def count(self, refusal: Refusal) -> None:
        self._tally(refusal, peers.network_of(refusal.peer)).add(refusal)

    def take(self, now: datetime.datetime | None = None) -> list[Tally]:
        """Remove and return the tallies of all other minutes than that of `now`; without `now`, all of them."""
        kept = None if now is None else _minute(now)
        taken = [tally for tally in self._all() if tally.minute != kept]
        self._tallies = {key: tally for key, tally in self._tallies.items() if tally.minute == kept}
        self._others = {key: tally for key, tally in self._others.items() if tally.minute == kept}
        return taken

    def give_back(self, tallies: Iterable[Tally]) -> None:
        """Store tallies again that could not be written."""
        for tally in tallies:
            self._tally(tally.first, tally.network).merge(tally)

    def _all(self) -> list[Tally]:
        return [*self._tallies.values(), *self._others.values()]

    def _tally(self, refusal: Refusal, network: str) -> Tally:
        key = (_minute(refusal.at), network, refusal.action, refusal.route)
        tally = self._tallies.get(key)
        if tally is None and network != OTHERS and len(self._tallies) < TALLIES_MAX:
            tally = self._tallies[key] = Tally(refusal, network, refusal.at)
        if tally is None:
            new = Tally(refusal, OTHERS, refusal.at)
            tally = self._others.setdefault((refusal.action, refusal.route), new)
        return tally


def _add(counts: dict[str, int], name: str, count: int) -> None:
    if name not in counts and len(counts) >= NAMES_MAX:
        name = OTHERS
    counts[name] = counts.get(name, 0) + count


def _minute(moment: datetime.datetime) -> int:
    return int(moment.timestamp()) // _MINUTE_S
