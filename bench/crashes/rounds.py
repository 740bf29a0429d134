"""Rounds through the operations of an app. In each, all clusters do the same operation and are at different points of
it when the controller or the platform is killed."""

import asyncio
import contextlib
import datetime
import random
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuaas_contract.operations import OPERATION_GET, Operation
from gpuaas_sdk.conformance import plan
from gpuaas_sdk.conformance.plan import Move
from gpuaas_sdk.conformance.stage import describe

from bench.crashes import judge
from bench.crashes.cloud import Cloud
from bench.crashes.clusters import Cluster
from bench.crashes.ends import Ends
from bench.crashes.judge import Ended, Row, Undisturbed
from bench.crashes.requests import request

MEASURE_SPREAD_S = 1.0
"""Within this time the undisturbed operations begin the first time."""
PATIENCE_S = 600.0
"""How long an operation may take before it counts as one that does not end. Much longer than the allowed time, so that
one that is only late is shown as such."""


@dataclass(frozen=True)
class Interrupted:
    """An operation and when the kill came."""

    cluster: Cluster
    operation: Operation
    killed_at: datetime.datetime


class Rounds:
    """The tour of an app on a cloud, repeated on the same machines."""

    def __init__(self, cloud: Cloud, clusters: Sequence[Cluster], kinds: Collection[str], seed: int) -> None:
        self.cloud, self.clusters = cloud, list(clusters)
        subject = cloud.subject
        self.moves = _needed(plan.tour(subject.manifest, subject.driver), kinds)
        self.rows = {move: Row(subject.manifest.slug, move) for move in self.moves if not kinds or move.kind in kinds}
        self._undisturbed: dict[Move, Undisturbed] = {}
        self._lengths_s: dict[Move, float] = {}
        self._ends = Ends()
        self._random = random.Random(seed)

    async def measure(self) -> None:
        """Do every operation undisturbed: its length, its effects and its result are what others are compared with.

        The second time, the operations begin as far from each other as the interrupted ones will: fewer at the same
        moment are faster, and a kill that comes after the end of an operation does not count."""
        await self._measure(dict.fromkeys(self.moves, MEASURE_SPREAD_S))
        await self._measure(dict(self._lengths_s))

    async def _measure(self, spreads_s: Mapping[Move, float]) -> None:
        for move in self.moves:
            done = await self._all(move, self._instants(spreads_s[move]))
            for entry in done:
                if entry.operation.status != "succeeded":
                    raise SystemExit(f"bench: without any kill, {move} {describe(entry.operation)}")
            self._undisturbed[move] = judge.undisturbed(
                [entry.cluster.effects() for entry in done], [entry.cluster.states() for entry in done]
            )
            self._lengths_s[move] = statistics.median(judge.length_s(entry.operation) for entry in done)

    async def run(self, instants: int, show: Callable[[str], None], *, fail_fast: bool = False) -> None:
        """Interrupt every chosen operation at this many instants. One that had ended before the kill does not count."""
        rows = self.rows.values()
        while self.clusters and any(row.hits < instants for row in rows):
            if fail_fast and any(row.wrong for row in rows):
                return
            for move in self.moves:
                if not self.clusters:
                    return
                if move in self.rows and self.rows[move].hits < instants:
                    await self._interrupt(move, show)
                else:
                    await self._pass(move)
            show(", ".join(f"{move} {row.hits}" for move, row in self.rows.items()))

    async def _pass(self, move: Move) -> None:
        """Do the operation undisturbed, on the way to others."""
        for entry in await self._all(move, [0.0] * len(self.clusters)):
            entry.cluster.effects()

    def _instants(self, within_s: float) -> list[float]:
        return [self._random.uniform(0, within_s) for _ in self.clusters]

    async def _interrupt(self, move: Move, show: Callable[[str], None]) -> None:
        undisturbed, row = self._undisturbed[move], self.rows[move]
        into_s = self._instants(self._lengths_s[move])
        done: list[Ended] = []
        for entry in await self._all(move, into_s, row.next_victim()):
            cluster, operation = entry.cluster, entry.operation
            ends = self._ends.statuses(operation.operation_id)
            ended = Ended(cluster.number, operation, ends, entry.killed_at, cluster.effects(), cluster.states())
            done.append(ended)
            if not row.add(ended, undisturbed):
                show(f"{move}: {row.wrong[-1]}")
                self.clusters.remove(cluster)  # what follows would be compared with something else
        self._lengths_s[move] = judge.next_length_s(self._lengths_s[move], done)

    async def _all(self, move: Move, into_s: Sequence[float], victim: str = "") -> list[Interrupted]:
        """Do the operation on all clusters, and kill the victim when each is as far as this into it."""
        async with asyncio.TaskGroup() as group:
            watching = [
                group.create_task(self.cloud.watch_controller()),
                group.create_task(self._ends.follow(self.cloud.client, self.cloud.project_id)),
            ]
            killing = group.create_task(self._kill(victim, max(into_s)))
            working = [
                group.create_task(self._do(cluster, move, max(into_s) - into))
                for cluster, into in zip(self.clusters, into_s, strict=True)
            ]
            await asyncio.wait([killing, *working])
            for task in watching:
                task.cancel()
        await self._ends.catch_up(self.cloud.client, self.cloud.project_id)
        return [
            Interrupted(cluster, task.result(), killing.result())
            for cluster, task in zip(self.clusters, working, strict=True)
        ]

    async def _kill(self, victim: str, after_s: float) -> datetime.datetime:
        await asyncio.sleep(after_s)
        killed_at = datetime.datetime.now(datetime.UTC)
        if victim:
            await self.cloud.kill(victim)
        return killed_at

    async def _do(self, cluster: Cluster, move: Move, after_s: float) -> Operation:
        """Request the operation and return it as it is at its end, or when the patience is over."""
        await asyncio.sleep(after_s)
        operation_id = (await request(self.cloud, cluster, move)).operation_id
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                await self._ends.wait(operation_id)
        where: dict[str, Any] = {"project_id": self.cloud.project_id, "operation_id": operation_id}
        return await self.cloud.client.call(OPERATION_GET, **where)


def _needed(tour: list[Move], kinds: Collection[str]) -> list[Move]:
    """Return the moves up to the last of these kinds, and the decommission that empties the machines again."""
    if not kinds:
        return tour
    last = max((position for position, move in enumerate(tour) if move.kind in kinds), default=-1)
    if last < 0:
        listed = ", ".join(Counter(move.kind for move in tour))
        raise SystemExit(f"bench: the app has no operation of this kind; choose from: {listed}")
    return tour if last == len(tour) - 1 else [*tour[: last + 1], tour[-1]]
