"""The guarded clock: small corrections are followed, a jump is not, and only the right time ends it."""

import datetime

import structlog
from gpuaas_platform.kit import clock

START = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)


class Machine:
    """A wall clock that can be set, and the seconds since boot."""

    def __init__(self) -> None:
        self.set_s = self.passed_s = 0.0
        self.clock = clock.GuardedClock(self.wall, lambda: self.passed_s)

    def wall(self) -> datetime.datetime:
        return START + datetime.timedelta(seconds=self.set_s + self.passed_s)

    def after(self, passed_s: float = 0.0, *, set_by_s: float = 0.0) -> float:
        """Return the seconds since the start on the guarded clock, after both clocks were moved."""
        self.passed_s += passed_s
        self.set_s += set_by_s
        return round((self.clock() - START).total_seconds(), 3)


def test_without_a_jump_the_time_is_that_of_the_wall_clock() -> None:
    machine = Machine()
    assert [machine.after(passed_s) for passed_s in (0, 0.5, 3600, 30 * 86_400)] == [0, 0.5, 3600.5, 2595600.5]
    assert machine.clock.jump_s == 0


def test_a_small_correction_is_followed_in_both_directions() -> None:
    machine = Machine()
    assert machine.after(10, set_by_s=59) == 69
    assert machine.after(10, set_by_s=-59 - 59) == -39
    assert machine.clock.jump_s == 0


def test_after_a_jump_time_continues_by_the_seconds_that_passed() -> None:
    for jump_s in (61, -61, 8 * 86_400, -8 * 86_400):
        machine = Machine()
        assert machine.after(10, set_by_s=jump_s) == 10
        assert machine.after(86_400) == 86_410
        assert round(machine.clock.jump_s) == jump_s


def test_a_jump_ends_when_the_wall_clock_comes_back() -> None:
    machine = Machine()
    machine.after(10, set_by_s=7200)
    assert machine.after(10, set_by_s=-7200) == 20
    assert machine.clock.jump_s == 0


def test_a_jump_is_never_accepted_with_time() -> None:
    machine = Machine()
    machine.after(set_by_s=7200)
    for _ in range(365):
        machine.after(86_400)
    assert round(machine.clock.jump_s) == 7200


def test_many_small_corrections_over_months_are_no_jump() -> None:
    machine = Machine()
    for _ in range(100):
        machine.after(86_400, set_by_s=30)
    assert machine.clock.jump_s == 0


def test_many_small_steps_in_a_short_time_are_a_jump() -> None:
    """Someone who sets the clock moves it by two minutes per day, not by a minute per second."""
    machine = Machine()
    for _ in range(60):
        machine.after(1, set_by_s=30)
    assert machine.clock.jump_s > 1700
    assert machine.after() <= 61


def test_a_jump_is_reported_when_it_happens_every_minute_and_when_it_ends() -> None:
    machine = Machine()
    with structlog.testing.capture_logs() as lines:
        machine.after(set_by_s=-7200)
        for _ in range(130):
            machine.after(1)
        machine.after(set_by_s=7200)
    assert [line["event"] for line in lines] == ["clock.jumped"] * 3 + ["clock.came_back"]
    assert (lines[0]["log_level"], lines[0]["jump_s"]) == ("error", -7200)
    assert "restart the server" in lines[0]["fix"]
