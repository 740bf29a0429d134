"""The app itself replaces a worker whose machine is lost, if people allow it: one machine, after a time, by a spare."""

import contextlib
import dataclasses
import datetime
from collections.abc import AsyncIterator
from typing import Any

import pytest
from gpuaas_app_slurm import lost_machines
from gpuaas_app_slurm.lost_machines import Silence
from gpuaas_app_slurm.plan import Verdict
from gpuaas_app_slurm_conformance.fresh_machines import QUICK, NewCluster, new_cluster
from gpuaas_sdk.testing.platform import rows
from test_slurm_health import line, node, until

MEMBERS = {"controller": ["gpu-1"], "worker": ["gpu-2", "gpu-3"]}
SILENT = Verdict("m2", "failed", detail={"findings": ["MachineSilent"]})
SOUND = Verdict("m2", "ready", detail={"findings": []})


class Clock:
    """The clock of the app, which a test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return self.now_s

    async def forward(self, minutes: int) -> None:
        """Let time pass, half a minute between two looks of the app. The first look is at the present time."""
        await self._look()
        for _ in range(minutes * 2):
            self.now_s += 30
            await self._look()

    async def _look(self) -> None:
        before = self.looks
        await until(lambda: self.looks > before)


def test_silence_lasts_from_look_to_look_and_ends_with_an_answer() -> None:
    first = lost_machines.silence(Silence(), [SILENT], {"m2"}, 1000)
    second = lost_machines.silence(first, [SILENT], {"m2"}, 1050)
    assert second == Silence(1050, {"m2": 1000})
    assert lost_machines.silence(second, [], {"m2"}, 1055).since == {"m2": 1000}
    assert lost_machines.silence(second, [SOUND], {"m2"}, 1055).since == {}


def test_silence_begins_again_after_a_time_without_looks() -> None:
    first = lost_machines.silence(Silence(), [SILENT], {"m2"}, 1000)
    assert lost_machines.silence(first, [SILENT], {"m2"}, 1061).since == {"m2": 1061}


def test_the_silence_of_a_member_that_was_removed_does_not_hide_that_of_another() -> None:
    other = Verdict("m3", "failed", detail={"findings": ["MachineSilent"]})
    first = lost_machines.silence(Silence(), [SILENT], {"m2", "m3"}, 1000)
    assert lost_machines.silence(first, [other], {"m3"}, 1030).since == {"m3": 1030}


@pytest.mark.parametrize(
    ("since", "unclear", "after_minutes", "is_replaced"),
    [
        ({"m2": 1000}, [], 15, True),
        ({"m2": 1001}, [], 15, False),
        ({"m2": 1000}, [], None, False),
        ({"m2": 1000, "m3": 1899}, [], 15, False),
        ({"m2": 1000}, ["m3"], 15, False),
        ({"m1": 1000}, [], 15, False),
    ],
)
def test_only_one_silent_worker_is_replaced_after_the_time_that_people_allow(
    since: dict[str, float], unclear: list[str], after_minutes: int | None, is_replaced: bool
) -> None:
    members = [_Member("m1", "controller"), _Member("m2"), _Member("m3")]
    chosen = lost_machines.to_replace(members, Silence(1900, since), unclear, after_minutes)
    assert (chosen is not None and chosen.member_id == "m2") is is_replaced


async def test_a_lost_worker_is_replaced_by_a_spare_and_the_operation_has_the_reason() -> None:
    clock = Clock()
    async with _deployed(clock, replace_lost_after_minutes=15) as cluster:
        cluster.platform.add_spare("gpu-6", gpus=8)
        cluster.platform.add_spare("gpu-5")
        _cut(cluster, "gpu-2")
        await until(lambda: cluster.statuses()["gpu-2"] == "failed")
        await clock.forward(14)
        assert _replaces(cluster) == []
        await clock.forward(1)
        await until(lambda: bool(_replaces(cluster)))
        [replace] = _replaces(cluster)
        assert replace.reason.startswith("MachineLost: gpu-2 has not answered for 15 minutes")
        ended = await cluster.platform.ended(replace.operation_id)
        assert ended.status == "succeeded", ended.error
        assert cluster.member_of(cluster.instance, "gpu-5").allocation_id == rows.allocation_id("gpu-5")


async def test_without_the_input_no_machine_is_replaced() -> None:
    clock = Clock()
    async with _deployed(clock) as cluster:
        cluster.platform.add_spare("gpu-5")
        _cut(cluster, "gpu-2")
        await until(lambda: cluster.statuses()["gpu-2"] == "failed")
        await clock.forward(20)
        assert _replaces(cluster) == []


async def test_two_silent_workers_are_left_to_people() -> None:
    clock = Clock()
    async with _deployed(clock, replace_lost_after_minutes=15) as cluster:
        cluster.platform.add_spare("gpu-5")
        _cut(cluster, "gpu-2", "gpu-3")
        await until(lambda: {cluster.statuses()[name] for name in ("gpu-2", "gpu-3")} == {"failed"})
        await clock.forward(20)
        assert _replaces(cluster) == []


async def test_a_machine_that_answers_again_before_its_replace_begins_stays() -> None:
    async with _deployed(Clock()) as cluster:
        member, reason = cluster.member_of(cluster.instance, "gpu-2"), lost_machines.reason("gpu-2", 15)
        ended = await cluster.perform("replace", [member], replacements=["gpu-5"], force=True, reason=reason)
        assert (ended.error.failure_class, "answers again" in ended.error.message) == ("refused", True)
        assert (cluster.statuses()["gpu-2"], cluster.host("gpu-5").installed) == ("ready", set())


@dataclasses.dataclass(frozen=True)
class _Member:
    member_id: str
    component_key: str = "worker"
    node_name: str = "gpu"
    address: str = ""
    status: str = "failed"
    updated_at: datetime.datetime = datetime.datetime(2026, 11, 17, tzinfo=datetime.UTC)
    adapter_detail: dict[str, Any] = dataclasses.field(default_factory=lambda: {"node_name": "gpu"})


@contextlib.asynccontextmanager
async def _deployed(clock: Clock, **inputs: Any) -> AsyncIterator[NewCluster]:
    """Run the app, with the clock of the test, for a deployed cluster."""
    settings = dataclasses.replace(QUICK, health_every_s=0.05, watch_silent_s=3600, clock=clock)
    async with new_cluster(MEMBERS, settings=settings, **inputs) as cluster:
        ended = await cluster.perform("deploy")
        assert ended.status == "succeeded", ended.error
        yield cluster


def _cut(cluster: NewCluster, *names: str) -> None:
    """Cut the power of machines. Slurm has noticed it, and the watch prints it."""
    for name in names:
        cluster.host(name).reachable = False
        cluster.platform.lose(name)
        cluster.slurm.nodes[name] = ["DOWN", "NOT_RESPONDING"]
    shown = [
        node(name, flags=["DOWN", "NOT_RESPONDING"], slurmd_port="silent") if name in names else node(name)
        for name in ("gpu-2", "gpu-3")
    ]
    cluster.host("gpu-1").printed.append(line(*shown))


def _replaces(cluster: NewCluster) -> list[Any]:
    return [operation for operation in cluster.platform.records.operations.values() if operation.kind == "replace"]
