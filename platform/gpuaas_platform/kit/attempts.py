"""Count failures per key, to limit password guessing: each further failure has to wait longer than the one before.

The counts are in memory: each platform process counts separately, from its start. Several processes allow several times
as many guesses, which is still few compared with the number of possible passwords."""

import datetime
import math
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpuaas_platform.kit import ids

KEYS_MAX = 50_000
_DOUBLINGS_MAX = 30


@dataclass(frozen=True)
class Pace:
    """How fast attempts may follow each other."""

    free: int
    """Failures after which there is no wait yet."""
    first_s: float
    """The first wait. It doubles with each further failure."""
    most_s: float
    """The longest wait."""
    kept_s: float
    """Seconds without another failed sign-in after which earlier failures no longer count."""

    def wait_s(self, failures: int) -> float:
        """Return the wait after so many failures."""
        if failures < self.free:
            return 0.0
        return min(self.first_s * 2.0 ** min(failures - self.free, _DOUBLINGS_MAX), self.most_s)


OWN = Pace(free=5, first_s=60, most_s=900, kept_s=86_400)
"""For one account from one network."""
SHARED = Pace(free=20, first_s=1, most_s=60, kept_s=3600)
"""For one account from all networks, and for one network with all accounts. Others cause these failures too, so the
wait is short: no one can exclude an account from signing in."""


class Key(NamedTuple):
    name: str
    pace: Pace


class Attempts:
    """Counts of recent failures. Thread-safe, because passwords are checked in threads."""

    def __init__(self, keys_max: int = KEYS_MAX) -> None:
        self._keys_max = keys_max
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()
        """Number of failures and time of the last one, by the digest of the key: names have no limit in length."""
        self._lock = threading.Lock()

    def wait_s(self, keys: Sequence[Key], now: datetime.datetime) -> int:
        """Return the seconds until another attempt is allowed under all keys; 0 if it is allowed now."""
        with self._lock:
            return max(self._wait_of(key, now.timestamp()) for key in keys)

    def failed(self, keys: Sequence[Key], now: datetime.datetime) -> None:
        now_s = now.timestamp()
        with self._lock:
            for key in keys:
                digest = ids.digest(key.name)
                self._failures[digest] = (self._count(key, now_s) + 1, now_s)
                self._failures.move_to_end(digest)
            while len(self._failures) > self._keys_max:
                self._failures.popitem(last=False)

    def forget(self, key: Key) -> None:
        with self._lock:
            self._failures.pop(ids.digest(key.name), None)

    def _count(self, key: Key, now_s: float) -> int:
        failures, last_s = self._failures.get(ids.digest(key.name), (0, now_s))
        return failures if now_s - last_s < key.pace.kept_s else 0

    def _wait_of(self, key: Key, now_s: float) -> int:
        failures, last_s = self._count(key, now_s), self._failures.get(ids.digest(key.name), (0, now_s))[1]
        wait_s = key.pace.wait_s(failures)
        return math.ceil(max(0.0, min(wait_s, last_s + wait_s - now_s)))
