"""What a large operation costs, counted in statements, rows and bytes.

An operation grows with its members, not with their square; a report costs the same however many members there are."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from gpuaas_contract import instances, operations, runtime
from gpuaas_contract.lifecycles import StepState
from gpuaas_contract.operations import Operation
from gpuaas_platform.call import system_origin
from gpuaas_platform.catalog import service as catalog
from gpuaas_platform.instances import store as instances_store
from gpuaas_platform.kit import db, ids
from gpuaas_platform.operations import accept, reconcile, store
from platform_world import World
from scripted_controller import DEADLINE_S, Cluster, Held, take_exit, with_hands

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
    assert large.statements - middle.statements == 2 * (middle.statements - small.statements)
    assert large.rows - middle.rows == 2 * (middle.rows - small.rows)


Report = Callable[[Held], Awaitable[object]]


async def _heartbeat(held: Held) -> object:
    return await held.heartbeat()


async def _heartbeat_after_a_while(held: Held) -> object:
    """Presence of the controller is due as well."""
    held.world.clock.forward(10)
    return await held.heartbeat()


async def _heartbeat_with_log(held: Held) -> object:
    now = held.world.clock().isoformat()
    lines = [{"number": number, "logged_at": now, "level": "info", "event": "counted"} for number in range(1, 11)]
    return await held.send(runtime.HEARTBEAT, {"log": lines})


async def _heartbeat_with_more_log(held: Held) -> object:
    """The log is longer by now."""
    line = {"number": 11, "logged_at": held.world.clock().isoformat(), "level": "info", "event": "counted"}
    return await held.send(runtime.HEARTBEAT, {"log": [line]})


async def _new_step(held: Held) -> object:
    return await held.step("measure", "running", held.member_ids[0])


async def _known_step(held: Held) -> object:
    return await held.step(STEP, "succeeded", held.member_ids[-1])


async def _finished_step(held: Held) -> object:
    return await held.step(STEP, "succeeded", held.member_ids[0])


async def _member(held: Held) -> object:
    return await held.report(held.member_ids[1], "joining")


async def _member_at_its_goal(held: Held) -> object:
    return await held.report(held.member_ids[2], "ready")


async def _member_failed(held: Held) -> object:
    return await held.report(held.member_ids[0], "failed", status_reason="it broke")


REPORTS: dict[str, Report] = {
    "heartbeat": _heartbeat,
    "heartbeat after a while": _heartbeat_after_a_while,
    "heartbeat with lines of the log": _heartbeat_with_log,
    "heartbeat with more lines": _heartbeat_with_more_log,
    "new step": _new_step,
    "known step": _known_step,
    "finished step": _finished_step,
    "member": _member,
    "member at its goal": _member_at_its_goal,
    "member that failed": _member_failed,
}
STEP = "install"


async def test_a_report_writes_as_much_at_1024_members_as_at_3(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = await Cluster.running(world, hands=1, **PATIENT)
    counter = Counter.over(world, monkeypatch)
    await _report_costs(cluster, counter, 3)  # leaves members behind in all the states they are counted by
    costs = [await _report_costs(cluster, counter, size) for size in (3, 64, 1024)]
    for name in REPORTS:
        small, middle, large = (cost[name] for cost in costs)
        assert (middle.statements, large.statements) == (small.statements, small.statements), name
        assert (middle.rows, large.rows) == (small.rows, small.rows), name
        assert max(middle.bytes_written, large.bytes_written) <= 1.1 * small.bytes_written, name


async def _report_costs(cluster: Cluster, counter: "Counter", size: int) -> dict[str, "Cost"]:
    """Of each kind of report on an add of so many members, after a step and a status of each was reported, to an
    instance that was deployed on as many machines."""
    await _request_machines(cluster, size)
    held = await _large_add(cluster, size)
    await held.report(held.member_ids[1], "provisioning")
    await held.report(held.member_ids[2], "provisioning", "joining")
    costs = {}
    for name, report in REPORTS.items():
        before = counter.cost
        await report(held)
        costs[name] = counter.cost - before
    await take_exit(cluster.world, held.operation, "force_complete")
    await _close_breaker(cluster)
    return costs


async def _request_machines(cluster: Cluster, size: int) -> None:
    """As after a deploy on so many allocations: the request names each of them twice."""
    allocation_ids = [ids.new("alloc") for _ in range(size)]
    inputs, placement = {"hand_allocation_ids": allocation_ids}, {"hand": allocation_ids}

    async def change(tx: db.Tx) -> None:
        before = await cluster.instance()
        after = msgspec.structs.replace(before, inputs=inputs, placement=placement)
        await instances_store.INSTANCES.change(tx, before, after)

    await cluster.world.site.database.write(change)


async def _large_add(cluster: Cluster, size: int) -> Held:
    """As after a request and a claim; so many machines are not made for it."""
    world, instance = cluster.world, await cluster.instance()
    template = next(iter((await cluster.members()).values()))
    added = [
        msgspec.structs.replace(
            template, member_id=ids.new("mem"), component_key="hand", status="requested", was_ready=False
        )
        for _ in range(size)
    ]

    async def insert(tx: db.Tx) -> None:
        origin = system_origin(world.clock())
        call: Any = SimpleNamespace(origin=origin, caller=origin.caller, now=origin.now)
        for member in added:
            await instances_store.MEMBERS.insert(tx, member)
        manifest = await catalog.manifest_of(tx, instance.app_slug, instance.app_version)
        draft = accept.OperationDraft("add", added, component_key="hand")
        await accept.accept(tx, call, instance, manifest, draft)

    await world.site.database.write(insert)
    held = await cluster.controller.take()

    async def begin(tx: db.Tx) -> None:
        head = await store.get(tx, held.operation_id)
        assert head is not None
        for number, member in enumerate(added, 1):
            state: StepState = "succeeded" if number == 1 else "running"
            step = operations.Step(name=STEP, state=state, started_at=world.clock(), member_id=member.member_id)
            head = msgspec.structs.replace(head, steps_total=number)
            await store.add_step(tx, head, step)
        await store.save(tx, head)

    await world.site.database.write(begin)
    return held


@dataclass(frozen=True)
class Cost:
    statements: int = 0
    rows: int = 0
    """Read, that is."""
    bytes_written: int = 0
    """Of the values in statements that write."""

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.statements + other.statements,
            self.rows + other.rows,
            self.bytes_written + other.bytes_written,
        )

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(
            self.statements - other.statements,
            self.rows - other.rows,
            self.bytes_written - other.bytes_written,
        )


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
        rows = await self.tx.all(sql, *values)
        self.counter.cost += Cost(1, len(rows))
        return rows

    async def run(self, sql: str, *values: Any) -> int:
        self.counter.cost += Cost(1, bytes_written=sum(_size(value) for value in values))
        return await self.tx.run(sql, *values)

    def wake(self, topic: str) -> None:
        self.tx.wake(topic)


def _size(value: str | int) -> int:
    return len(value.encode()) if isinstance(value, str) else 8


async def _clear_away(cluster: Cluster) -> None:
    """As before the add: its members are gone, and the role's breaker has forgotten them."""
    gone = ("removed", "tombstoned")
    leftover = [member for member in (await cluster.members()).values() if member.status not in (*gone, "ready")]
    if leftover:
        await cluster.operate("remove", *(member.member_id for member in leftover), force=True, reason="over")
        held = await cluster.controller.take()
        for member in leftover:
            await held.report(member.member_id, "removing", "removed")
        await held.complete()
    await _close_breaker(cluster)


async def _close_breaker(cluster: Cluster) -> None:
    await cluster.world.call(
        instances.BREAKER_RESET, {"reason": "over"}, instance_id=cluster.instance_id, component_key="hand"
    )
