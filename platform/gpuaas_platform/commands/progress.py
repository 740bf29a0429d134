"""Progress of commands that can take long."""

import sys
import time

_EVERY_S = 1.0


class Progress:
    """Writes a line to stderr about every second, so that users see that a long command works."""

    def __init__(self) -> None:
        self._shown_at = time.monotonic()

    def __call__(self, text: str) -> None:
        if time.monotonic() - self._shown_at >= _EVERY_S:
            self._shown_at = time.monotonic()
            sys.stderr.write(f"{text}\n")
