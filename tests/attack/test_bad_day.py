"""Attack: the server is killed at random moments while sixteen clients write, and one of two servers behind a balancer
is killed. Clients repeat a request without an answer with the same idempotency key. Every acknowledged change must be
stored exactly once, with its event and its audit row, and watchers must receive each event once.

`make bench ARGS=badday` does the same for longer, and more: a full disk, no descriptors, a wrong clock, a stop."""

import pytest

from bench import badday
from bench.badday import crashes
from bench.badday.result import Size

KILLS = {"sqlite": 6, "postgres": 3}


@pytest.mark.parametrize("store", badday.STORES)
async def test_every_acknowledged_change_is_stored_once_however_often_the_server_is_killed(store: str) -> None:
    with badday.place(store, Size(kills=KILLS[store])) as place:
        result = await crashes.kills(place)
    assert result.passed, result
    assert result.unknown > 0, "the kills hit requests"


async def test_clients_continue_at_the_other_server_without_a_gap_or_a_second_event() -> None:
    with badday.place("postgres", Size(failovers=1)) as place:
        result = await crashes.failovers(place)
    assert result.passed, result
    assert result.unknown > 0, "the kills hit requests"
