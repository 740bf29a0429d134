"""What a large operation costs, counted in statements and rows: it grows with the members, not with their square."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from gpuaas_contract import instances
from gpuaas_contract.operations import Operation
from gpuaas_platform.kit import db
from gpuaas_platform.operations import reconcile
from platform_world import World
from scripted_controller import DEADLINE_S, Cluster, take_exit, with_hands

SIZES = (4, 8, 16)
PATIENT = with_hands(breaker={"failures": 1000})
Ending = Callable[[Cluster, Operation], Awaitable[object]]


async def _cancelled(cluster: Cluster, added: Operation) -> object:
    return await take_exit(cluster.world, added, "cancel")


async def _forced(cluster: Cluster, added: Operation) -> object:
    return await take_exit(cluster.world, added, "force_complete")


async def _expired(cluster: Cluster, _: Operation) -> None:
    cluster.world.clock.forward(DEADLINE_S + 1)
    await reconcile.sweep(cluster.world.site)


async def _given_up(cluster: Cluster, added: Operation) -> object:
    await (await cluster.controller.take()).fail()
    return await take_exit(cluster.world, added, "tombstone")


async def _failed_half_way(cluster: Cluster, _: Operation) -> object:
    held = await cluster.controller.take()
    for member_id in held.member_ids:
        await held.report(member_id, "provisioning")
    return await held.fail()


async def _stopped_by_its_rule(cluster: Cluster, _: Operation) -> object:
    held = await cluster.controller.take()
    await held.report(held.member_ids[0], "provisioning", "failed")
    return await held.complete()


async def _undone_by_its_controller(cluster: Cluster, added: Operation) -> object:
    held = await cluster.controller.take()
    await take_exit(cluster.world, added, "cancel")
    for member_id in held.member_ids:
        await held.report(member_id, "removing", "removed")
    return await held.complete()


ENDINGS: dict[str, Ending] = {
    "cancelled": _cancelled,
    "forced": _forced,
    "expired": _expired,
    "given up": _given_up,
    "failed half-way": _failed_half_way,
    "stopped by its rule": _stopped_by_its_rule,
    "undone by its controller": _undone_by_its_controller,
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_an_add_of_twice_as_many_costs_twice_as_much_however_it_ends(
    world: World, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    cluster = await Cluster.running(world, hands=1, **PATIENT)
    machines = await cluster.machines(SIZES[-1])
    counter = Counter.over(world, monkeypatch)
    costs = []
    for size in (SIZES[0], *SIZES):  # the first leaves members behind in all the states they are counted by
        before = counter.cost
        added = await cluster.add(*machines[:size], stop_after_failures=1)
        await ENDINGS[ending](cluster, added)
        costs.append(counter.cost - before)
        await _clear_away(cluster)
    _, small, middle, large = costs
    assert large - middle == (middle - small) + (middle - small)


@dataclass(frozen=True)
class Cost:
    statements: int = 0
    rows: int = 0
    """Read, that is."""

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.statements + other.statements, self.rows + other.rows)

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(self.statements - other.statements, self.rows - other.rows)


class Counter:
    """What all writes together have cost."""

    def __init__(self) -> None:
        self.cost = Cost()

    @classmethod
    def over(cls, world: World, monkeypatch: pytest.MonkeyPatch) -> "Counter":
        counter, write = cls(), world.site.database.write

        async def counted(use_case: db.UseCase[Any], *, keep: bool = True) -> Any:
            return await write(lambda tx: use_case(_CountedTx(tx, counter)), keep=keep)

        monkeypatch.setattr(world.site.database, "write", counted)
        return counter


@dataclass
class _CountedTx:
    tx: db.Tx
    counter: Counter

    async def one(self, sql: str, *values: Any) -> db.Row | None:
        self.counter.cost += Cost(1, 1)
        return await self.tx.one(sql, *values)

    async def all(self, sql: str, *values: Any) -> Sequence[db.Row]:
        found = await self.tx.all(sql, *values)
        self.counter.cost += Cost(1, len(found))
        return found

    async def run(self, sql: str, *values: Any) -> int:
        self.counter.cost += Cost(1)
        return await self.tx.run(sql, *values)

    def wake(self, topic: str) -> None:
        self.tx.wake(topic)


async def _clear_away(cluster: Cluster) -> None:
    """As before the add: its members are gone, and the role's breaker has forgotten them."""
    gone = ("removed", "tombstoned")
    found = [one for one in (await cluster.members()).values() if one.status not in (*gone, "ready")]
    if found:
        await cluster.operate("remove", *(one.member_id for one in found), force=True, reason="over")
        held = await cluster.controller.take()
        for one in found:
            await held.report(one.member_id, "removing", "removed")
        await held.complete()
    await cluster.world.call(
        instances.BREAKER_RESET, {"reason": "over"}, instance_id=cluster.instance_id, component_key="hand"
    )
