"""Rate limits: one bucket per caller, refilled steadily. `authorise` asks before any work is done.

Buckets are in this process only: several platform processes each allow the full rate.
"""

import time
from collections.abc import Callable

CALLERS_MAX = 20_000


class Limiter:
    """A bucket is one number: the moment at which it will be full again. A full bucket needs no number at all."""

    def __init__(self, per_s: float, burst: int, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._interval_s = 1.0 / per_s if per_s > 0 else 0.0
        self._span_s = self._interval_s * max(1, burst)
        self._monotonic_s = monotonic_s
        self._full_at: dict[str, float] = {}

    def take(self, caller: str) -> float:
        """0 when the request may pass, else the seconds until the next one may."""
        if not self._interval_s:
            return 0.0
        now = self._monotonic_s()
        full_at = self._full_at.get(caller, now)
        full_at = (full_at if full_at > now else now) + self._interval_s
        wait_s = full_at - now - self._span_s
        if wait_s > 1e-9:
            return wait_s
        self._full_at[caller] = full_at
        if len(self._full_at) > CALLERS_MAX:
            self._forget(now)
        return 0.0

    def callers(self) -> int:
        """How many buckets are kept."""
        return len(self._full_at)

    def _forget(self, now: float) -> None:
        """Drop full buckets, and if that is not enough the fullest: memory is bounded for any number of callers."""
        kept = {caller: full_at for caller, full_at in self._full_at.items() if full_at > now}
        if len(kept) > CALLERS_MAX // 2:
            emptiest = sorted(kept.items(), key=lambda bucket: bucket[1], reverse=True)
            kept = dict(emptiest[: CALLERS_MAX // 2])
        self._full_at = kept
