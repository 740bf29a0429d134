"""Since when this process has been awake without a break: what it could not hear says nothing of who was silent."""

import datetime


class Uptime:
    def __init__(self) -> None:
        self._since: datetime.datetime | None = None
        self._noted_at: datetime.datetime | None = None

    def note(self, now: datetime.datetime, pause_s_max: float) -> float:
        """Seconds awake so far. Called steadily; a longer pause than `pause_s_max` between two calls starts anew."""
        if self._since is None or self._noted_at is None or (now - self._noted_at).total_seconds() > pause_s_max:
            self._since = now
        self._noted_at = now
        return (now - self._since).total_seconds()
