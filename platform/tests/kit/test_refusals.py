"""Refused sign-ins are counted in bounded memory, and no count is lost."""

import datetime

from gpuaas_platform.kit.refusals import NAMES_MAX, OTHERS, TALLIES_MAX, UNKNOWN, Refusal, Refusals

START = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)


def _refusal(
    peer: str = "192.0.2.1", seconds: float = 0, code: str = "credentials_invalid", account: str = ""
) -> Refusal:
    at = START + datetime.timedelta(seconds=seconds)
    return Refusal("auth.login", "auth.login", peer, "cor_1", at, code, account=account)


def test_refusals_of_one_network_and_minute_are_one_tally() -> None:
    refusals = Refusals()
    for seconds in range(60):
        refusals.count(_refusal(f"2001:db8::{seconds}", seconds, code="a" if seconds % 2 else "b"))
    [tally] = refusals.take()
    assert (tally.network, tally.count, tally.codes) == ("2001:db8::/64", 60, {"a": 30, "b": 30})
    assert (tally.last_at - tally.first.at).total_seconds() == 59
    assert refusals.take() == []


def test_only_minutes_that_are_over_are_taken() -> None:
    refusals = Refusals()
    for seconds in (0, 59, 60, 61, 120):
        refusals.count(_refusal(seconds=seconds))
    assert [tally.count for tally in refusals.take(_refusal(seconds=119).at)] == [2, 1]
    assert [tally.count for tally in refusals.take(_refusal(seconds=179).at)] == [2]


def test_networks_beyond_the_limit_are_counted_together() -> None:
    refusals = Refusals()
    for number in range(1000):
        for _ in range(2):
            refusals.count(_refusal(f"10.0.{number // 250}.{number % 250}"))
    tallies = refusals.take()
    assert len(tallies) == TALLIES_MAX + 1
    assert sum(tally.count for tally in tallies) == 2000
    assert [tally.count for tally in tallies if tally.network == OTHERS] == [2 * (1000 - TALLIES_MAX)]


def test_only_ids_of_accounts_are_listed_and_only_a_few() -> None:
    refusals = Refusals()
    refusals.count(_refusal())
    for number in range(50):
        refusals.count(_refusal(account=f"user_{number}"))
    [tally] = refusals.take()
    assert tally.accounts == {UNKNOWN: 1} | {f"user_{number}": 1 for number in range(NAMES_MAX - 1)} | {OTHERS: 43}


def test_while_nothing_can_be_written_memory_stays_bounded_and_counts_add_up() -> None:
    refusals, sent = Refusals(), 0
    for minute in range(500):
        for number in range(5):
            refusals.count(_refusal(f"10.0.0.{number}", 60 * minute))
            sent += 1
        refusals.give_back(refusals.take(_refusal(seconds=60 * minute).at))
    tallies = refusals.take()
    assert len(tallies) <= TALLIES_MAX + 1
    assert sum(tally.count for tally in tallies) == sent
