"""What the crash matrix calls wrong, and at which point of an operation it counts a kill."""

import datetime
from collections import Counter, defaultdict
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from gpuaas_contract.operations import Operation
from gpuaas_sdk.conformance import plan
from gpuaas_sdk.conformance.plan import Move
from gpuaas_sdk.testing import FakePlatform
from msgspec.structs import replace

from bench.crashes import judge
from bench.crashes.judge import Ended, Row, Undisturbed
from bench.crashes.rounds import Interrupted, Rounds

BEGUN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
STATES = {"n1": {"/etc/kv": "1", "/etc/secret": "abc"}}


def at(seconds: float) -> datetime.datetime:
    return BEGUN + datetime.timedelta(seconds=seconds)


def operation(**changes: Any) -> Operation:
    platform = FakePlatform("hello")
    made = platform.request(platform.add_instance({"server": ["n1"]}), "deploy")
    wanted = {"status": "succeeded", "created_at": at(0), "started_at": at(1), "ended_at": at(20)}
    return replace(made, **{**wanted, **changes})


def row_of(**changes: Any) -> Row:
    """Judge an operation that was killed two seconds after it was requested, with these differences."""
    undisturbed = judge.undisturbed(
        [["n1: file /etc/kv"]] * 2, [STATES, {"n1": {**STATES["n1"], "/etc/secret": "def"}}]
    )
    ended: dict[str, Any] = {
        "operation": operation(),
        "ends": ["succeeded"],
        "killed_at": at(2),
        "effects": ["n1: file /etc/kv"],
        "states": {"n1": {"/etc/kv": "1", "/etc/secret": "other"}},
    }
    row = Row("hello", Move("deploy"))
    row.add(Ended(cluster=0, **{**ended, **changes}), undisturbed)
    return row


def test_an_operation_that_ended_once_with_the_same_effects_is_right() -> None:
    row = row_of()
    assert (row.wrong, row.phases["during"], row.settled_s) == ([], 1, [18.0])


@pytest.mark.parametrize(
    ("changes", "phase", "hits"),
    [
        ({"started_at": at(3)}, "before", 1),
        ({"started_at": at(1)}, "during", 1),
        ({"started_at": at(1), "ended_at": at(1.5)}, "after", 0),
    ],
)
def test_a_kill_before_the_claim_and_one_during_the_work_count_as_hits(
    changes: dict[str, Any], phase: str, hits: int
) -> None:
    row = row_of(operation=operation(**changes))
    assert (row.phases, row.hits, row.wrong) == ({phase: 1}, hits, [])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"effects": ["n1: file /etc/kv"] * 2}, "more often than undisturbed: n1: file /etc/kv"),
        ({"effects": ["n1: file /etc/other"]}, "more often than undisturbed: n1: file /etc/other"),
        ({"states": {"n1": {"/etc/kv": "11", "/etc/secret": "x"}}}, "n1 has /etc/kv = '11' instead of /etc/kv = '1'"),
        ({"states": {"n1": {"/etc/kv": "1"}}}, "n1 has no /etc/secret instead of /etc/secret = '(any value)'"),
        ({"states": {**STATES, "n2": {"/etc/kv": "1"}}}, "n2 has /etc/kv = '1' instead of no /etc/kv"),
        ({"ends": ["succeeded", "succeeded"]}, "there are 2 events about its end: succeeded, succeeded"),
        ({"ends": []}, "there are 0 events about its end"),
        ({"operation": operation(ended_at=at(63))}, "it ended 61 s after the kill"),
        ({"operation": operation(status="failed")}, "ended as failed"),
        ({"operation": operation(status="running", ended_at=None)}, "ended as running"),
    ],
)
def test_what_differs_from_the_undisturbed_run_is_wrong(changes: dict[str, Any], reason: str) -> None:
    row = row_of(**changes)
    assert len(row.wrong) == 1
    assert reason in row.wrong[0]


def test_the_row_counts_what_is_wrong_by_what_it_is() -> None:
    row = row_of(effects=["n1: file /etc/kv"] * 2, states={}, ends=[])
    assert (row.doubled, row.different, row.not_ended) == (1, 1, 1)


@pytest.mark.parametrize(
    ("ended_after_s", "wanted_s"),
    [((5.0, 9.0, 30.0), 9.0), ((30.0, 40.0), 12.0)],
    ids=["some ended before the kill", "none did"],
)
def test_the_next_kills_come_within_the_time_that_an_operation_takes_now(
    ended_after_s: Sequence[float], wanted_s: float
) -> None:
    done = [Ended(0, operation(ended_at=at(seconds)), ["succeeded"], at(10), [], STATES) for seconds in ended_after_s]
    assert judge.next_length_s(10.0, done) == pytest.approx(wanted_s)


class NoCloud(Rounds):
    """Rounds without machines: they record who would be killed during which operation."""

    def __init__(self) -> None:
        subject = SimpleNamespace(manifest=SimpleNamespace(slug="hello"), driver=None)
        super().__init__(SimpleNamespace(subject=subject), [], (), seed=1)  # type: ignore[arg-type]
        self._undisturbed = {move: Undisturbed(Counter(), {}) for move in self.moves}
        self._lengths_s = dict.fromkeys(self.moves, 1.0)
        self.victims: dict[Move, list[str]] = defaultdict(list)

    async def once(self) -> None:
        for move in self.moves:
            await self._interrupt(move, print)

    async def _all(self, move: Move, into_s: Sequence[float], victim: str = "") -> list[Interrupted]:
        self.victims[move].append(victim)
        return []


@pytest.mark.parametrize("count", [1, 2, 3, 4])
async def test_each_operation_is_interrupted_by_kills_of_the_controller_and_of_the_platform(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves = [Move("deploy"), Move("add"), Move("drain"), Move("decommission")][:count]
    monkeypatch.setattr(plan, "tour", lambda manifest, driver: moves)
    tour = NoCloud()
    await tour.once()
    await tour.once()
    assert tour.victims == {move: ["controller", "platform"] for move in moves}
    assert all(" 1/1 " in row.line() for row in tour.rows.values())
