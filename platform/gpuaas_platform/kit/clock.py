"""The source of the current time, and conversions. Other code gets the time as an argument."""

import datetime
import time
from collections.abc import Callable

import structlog

log = structlog.get_logger()

Clock = Callable[[], datetime.datetime]
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
FIX = "Check the time synchronisation of this machine. If its new time is right, restart the server to accept it."
_JUMP_S_MIN = 60.0
_ACCEPTED_S_PER_DAY = 60.0
_FOLLOW_EVERY_S = 1.0
_REPORT_EVERY_S = 60.0


def utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def boot_s() -> float:
    """Return the seconds since boot, including the time in which the machine was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class GuardedClock:
    """The wall clock, unless it jumped. Then it returns the time at the start plus the seconds that really passed.

    The kernel corrects the wall clock and the clock since boot at the same rate. Their difference changes only if the
    wall clock is set. A change of up to a minute is followed, and the reference moves by a minute per day, so that many
    small corrections do not add up to a jump. A larger jump is never accepted: the wall clock must come back, or an
    operator restarts the server."""

    def __init__(self, wall: Clock, elapsed_s: Callable[[], float] | None = None) -> None:
        """Without `elapsed_s`, the elapsed time is that of the wall clock itself, so that it cannot jump."""
        self._wall, self._elapsed_s = wall, elapsed_s or (lambda: wall().timestamp())
        self._seen_s = self._elapsed_s()
        self._offset_s = wall().timestamp() - self._seen_s
        self._reported_s = 0.0
        self.jump_s = 0.0
        """Seconds between the wall clock and the time that the platform uses; 0 while the wall clock is trusted."""

    def __call__(self) -> datetime.datetime:
        wall, elapsed_s = self._wall(), self._elapsed_s()
        apart_s = wall.timestamp() - elapsed_s - self._offset_s
        if not -_JUMP_S_MIN <= apart_s <= _JUMP_S_MIN:
            used = moment(int((elapsed_s + self._offset_s) * 1_000_000))
            self._note_jump(apart_s, elapsed_s, wall, used)
            return used
        if self.jump_s or elapsed_s - self._seen_s >= _FOLLOW_EVERY_S:
            self._follow(apart_s, elapsed_s)
        return wall

    def _follow(self, apart_s: float, elapsed_s: float) -> None:
        followed_s = (elapsed_s - self._seen_s) * _ACCEPTED_S_PER_DAY / 86_400
        self._offset_s += max(-followed_s, min(apart_s, followed_s))
        self._seen_s = elapsed_s
        if self.jump_s:
            log.warning("clock.came_back", jump_s=round(self.jump_s))
            self.jump_s = 0.0

    def _note_jump(self, apart_s: float, elapsed_s: float, wall: datetime.datetime, used: datetime.datetime) -> None:
        if not self.jump_s or elapsed_s - self._reported_s >= _REPORT_EVERY_S:
            times = {"wall_clock": wall.isoformat(), "time_used": used.isoformat()}
            log.error("clock.jumped", jump_s=round(apart_s), **times, fix=FIX)
            self._reported_s = elapsed_s
        self.jump_s = apart_s


def micros(moment: datetime.datetime) -> int:
    """Return the microseconds since 1970. SQL stores and compares times in this form."""
    return int(moment.timestamp() * 1_000_000)


def moment(micros_since_1970: int) -> datetime.datetime:
    return EPOCH + datetime.timedelta(microseconds=micros_since_1970)


def moment_or_none(micros_since_1970: int) -> datetime.datetime | None:
    """Return the time, or None for 0. For columns in which 0 means "never"."""
    return moment(micros_since_1970) if micros_since_1970 else None
