"""How fast passwords can be guessed, and that no one can exclude another person from signing in."""

import datetime
import itertools
from collections.abc import Callable

import pytest
from gpuaas_platform.identity.users.store import NETWORKS_MAX
from gpuaas_platform.kit.attempts import OWN, SHARED, Attempts, Key

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
DAY_S = 86_400


def _after(seconds: float) -> datetime.datetime:
    return START + datetime.timedelta(seconds=seconds)


def _guesses_in_a_day(keys: Callable[[int], list[Key]]) -> int:
    """Guess without a pause for a day: each time as soon as it is allowed, with the keys of that guess."""
    attempts, now_s = Attempts(), 0.0
    for guess in itertools.count():
        now_s += attempts.wait_s(keys(guess), _after(now_s))
        if now_s >= DAY_S:
            return guess
        attempts.failed(keys(guess), _after(now_s))
    raise AssertionError


def test_one_network_has_about_a_hundred_guesses_per_day_for_an_account() -> None:
    assert _guesses_in_a_day(lambda _: [Key("own", OWN)]) == 103


def test_all_networks_together_have_at_most_1464_guesses_per_day_for_an_account() -> None:
    """An attacker with a new network for each guess. With the networks that the account has used before it is 2,288."""
    guesses = _guesses_in_a_day(lambda guess: [Key(f"own-{guess}", OWN), Key("account", SHARED)])
    assert guesses == 1464
    assert guesses + NETWORKS_MAX * 103 == 2288


def test_a_network_that_tries_many_accounts_is_slowed_down_too() -> None:
    assert _guesses_in_a_day(lambda guess: [Key(f"own-{guess}", OWN), Key("network", SHARED)]) == 1464


@pytest.mark.parametrize(("failures", "wait_s"), [(4, 0), (5, 60), (6, 120), (8, 480), (9, 900), (1000, 900)])
def test_the_wait_doubles_up_to_a_limit(failures: int, wait_s: int) -> None:
    attempts, key = Attempts(), Key("own", OWN)
    for _ in range(failures):
        attempts.failed([key], START)
    assert attempts.wait_s([key], START) == wait_s
    assert attempts.wait_s([key], _after(wait_s)) == 0


def test_failures_are_forgotten_after_a_quiet_time_or_a_success() -> None:
    attempts, key = Attempts(), Key("own", OWN)
    for _ in range(20):
        attempts.failed([key], START)
    attempts.failed([key], _after(OWN.kept_s))
    assert attempts.wait_s([key], _after(OWN.kept_s)) == 0
    for _ in range(20):
        attempts.failed([key], START)
    attempts.forget(key)
    assert attempts.wait_s([key], START) == 0


def test_a_clock_that_is_set_back_does_not_make_the_wait_longer() -> None:
    attempts, key = Attempts(), Key("own", OWN)
    for _ in range(5):
        attempts.failed([key], _after(DAY_S))
    assert attempts.wait_s([key], START) == 60


def test_the_number_of_keys_is_bounded_and_the_oldest_is_dropped() -> None:
    attempts = Attempts(keys_max=10)
    for number in range(100):
        for _ in range(5):
            attempts.failed([Key(f"key-{number}", OWN)], START)
    waits = [attempts.wait_s([Key(f"key-{number}", OWN)], START) for number in range(100)]
    assert waits == [0] * 90 + [60] * 10
