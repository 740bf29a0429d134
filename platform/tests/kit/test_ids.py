"""Ids sort in the order they were made, so that a list by id is a list by age."""

import time

import pytest
from gpuaas_platform.kit import ids


def test_ids_made_in_the_same_instant_sort_in_the_order_they_were_made() -> None:
    made = [ids.new("x") for _ in range(2_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_a_clock_that_stops_or_goes_back_does_not_disturb_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [ids.new("x")]
    for moment_ns in (time.time_ns(), 0):
        monkeypatch.setattr(time, "time_ns", lambda moment_ns=moment_ns: moment_ns)
        made += [ids.new("x") for _ in range(40_000)]
    assert made == sorted(made)
    assert {len(new_id) for new_id in made} == {len("x_") + 26}
    assert len(set(made)) == len(made)


def test_a_secret_carries_its_kind_and_a_checksum() -> None:
    secret = ids.new_secret("sak")
    assert secret.startswith("gpuaas_sak_")
    assert secret != ids.new_secret("sak")
