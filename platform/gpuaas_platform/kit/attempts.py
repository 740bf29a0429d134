"""Count failures per key over a sliding window, to limit password guessing.

The counts are in memory: each platform process counts separately, from its start. Several processes allow several times
as many guesses, which is still few compared with the number of possible passwords."""

import datetime
import math
import threading
from collections import OrderedDict, deque
from collections.abc import Sequence


class Attempts:
    """Counts of recent failures. Thread-safe, because passwords are checked in threads."""

    def __init__(self, failures_max: int = 5, window_s: float = 60, keys_max: int = 10_000) -> None:
        self._failures_max, self._window_s, self._keys_max = failures_max, window_s, keys_max
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait_s(self, keys: Sequence[str], now: datetime.datetime) -> int:
        """Return the seconds until another attempt is allowed under all keys; 0 if it is allowed now."""
        with self._lock:
            return max(self._wait_of(key, now.timestamp()) for key in keys)

    def failed(self, keys: Sequence[str], now: datetime.datetime) -> None:
        with self._lock:
            for key in keys:
                moments = self._failures.setdefault(key, deque(maxlen=self._failures_max))
                moments.append(now.timestamp())
                self._failures.move_to_end(key)
            while len(self._failures) > self._keys_max:
                self._failures.popitem(last=False)

    def forget(self, key: str) -> None:
        with self._lock:
            self._failures.pop(key, None)

    def _wait_of(self, key: str, now_s: float) -> int:
        moments = self._failures.get(key)
        if moments is None or len(moments) < self._failures_max:
            return 0
        return max(0, math.ceil(moments[0] + self._window_s - now_s))
