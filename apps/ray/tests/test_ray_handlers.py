"""The handlers of the app on simulated machines."""

from typing import Any

import pytest
from gpuaas_app_ray import checks, controller
from gpuaas_app_ray.checks import View
from gpuaas_app_ray.workload import ray
from gpuaas_app_ray_conformance import RayDriver
from gpuaas_contract.operations import Operation
from gpuaas_sdk.checks import Check
from gpuaas_sdk.conformance.controllers import with_artifacts
from gpuaas_sdk.conformance.direct import DirectMachines
from gpuaas_sdk.conformance.installs import ACCOUNTS
from gpuaas_sdk.controller import Instance, Member
from gpuaas_sdk.failures import Temporary
from gpuaas_sdk.installs import wheels
from gpuaas_sdk.machine import Machine, Ran
from gpuaas_sdk.testing import FakeMachines, FakePlatform

NAMES = ("n1", "n2", "n3")


class Cluster(DirectMachines):
    """A fake platform, and simulated machines with Ray on a head and workers."""

    def __init__(self) -> None:
        self.driver = RayDriver()
        super().__init__(self.driver)
        manifest = with_artifacts(controller.app.manifest, self.driver)
        self.platform = FakePlatform("ray", secret_purposes=manifest.secret_purposes)
        self.platform.add_version(manifest)

    def instance(self, *names: str) -> Instance:
        roles = {"head": [names[0]], "worker": list(names[1:])}
        instance = self.platform.add_instance(roles, topology="cluster", inputs={"object_store_mib": 100})
        for name, content in self.driver.artifacts.items():
            self.platform.add_artifact(instance, name, content)
        return instance

    async def perform(self, instance: Instance, kind: Any, name: str = "", role: str = "worker", **options: Any) -> Any:
        """Request an operation and return it when it has ended."""
        present = self.platform.instance(instance.instance_id)
        targets = [self.member(present, name)] if name else None
        operation = self.platform.request(present, kind, targets, component_key=role if name else "", **options)
        return await self.platform.ended(operation.operation_id, timeout_s=60)

    async def preview(self, instance: Instance, kind: Any, name: str = "") -> Any:
        present = self.platform.instance(instance.instance_id)
        asked = self.platform.ask_preview(present, kind, [self.member(present, name)] if name else None)
        return (await self.platform.ended(asked.operation_id)).preview

    def member(self, instance: Instance, name: str) -> Member:
        return next(member for member in self.platform.members(instance) if member.node_name == name)

    def with_wheels(self) -> set[str]:
        """The machines on which the platform has placed the wheels and not removed them."""
        return {placed.node_name for placed in self.platform.placements if placed.state == "placed"}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


async def test_after_a_decommission_no_machine_has_a_file_a_user_or_the_wheels(cluster: Cluster) -> None:
    async with cluster.working(controller.app, cluster.platform):
        instance = cluster.instance(*NAMES)
        assert (await cluster.perform(instance, "deploy")).status == "succeeded"
        assert cluster.with_wheels() == set(NAMES)
        assert all(ACCOUNTS + ray.USER in cluster.machine(name).files for name in NAMES)
        assert (await cluster.perform(instance, "decommission")).status == "succeeded"
    assert [cluster.machine(name).files for name in NAMES] == [{}, {}, {}]
    assert [placed.state for placed in cluster.platform.placements] == ["removed"] * 3
    assert {placed.name for placed in cluster.platform.placements} == {wheels.artifact("ray")}


async def test_a_replaced_machine_keeps_no_wheels(cluster: Cluster) -> None:
    async with cluster.working(controller.app, cluster.platform):
        instance = cluster.instance(*NAMES)
        await cluster.perform(instance, "deploy")
        replaced = await cluster.perform(instance, "replace", "n2", replacements=["n4"])
    assert (replaced.status, cluster.with_wheels(), cluster.machine("n2").files) == (
        "succeeded",
        {"n1", "n3", "n4"},
        {},
    )
    assert cluster.driver.serves(cluster.machine("n4"))


async def test_a_stop_is_refused_while_a_job_runs_and_forced_if_people_want_it(cluster: Cluster) -> None:
    async with cluster.working(controller.app, cluster.platform):
        instance = cluster.instance(*NAMES)
        await cluster.perform(instance, "deploy")
        cluster.driver.begin_work(cluster.machine("n1"))
        refused = await cluster.perform(instance, "stop")
        assert (refused.status, refused.error.code) == ("failed", "refused")
        assert all(cluster.driver.serves(cluster.machine(name)) for name in NAMES)
        forced = await cluster.perform(instance, "stop", force=True, reason="maintenance")
    assert (forced.status, [cluster.machine(name).units for name in NAMES]) == ("succeeded", [{}, {}, {}])


async def test_the_preview_of_a_stop_announces_that_it_would_be_refused_while_a_job_runs(cluster: Cluster) -> None:
    async with cluster.working(controller.app, cluster.platform):
        instance = cluster.instance(*NAMES)
        await cluster.perform(instance, "deploy")
        unused = await cluster.preview(instance, "stop")
        cluster.driver.begin_work(cluster.machine("n1"))
        busy = await cluster.preview(instance, "stop")
        drain = await cluster.preview(instance, "drain", "n2")
    assert (unused.refusal, drain.refusal) == ("", "")
    assert "1 pieces of work would end" in busy.refusal


async def test_the_token_is_in_no_command_line_and_a_later_worker_gets_the_same_one(cluster: Cluster) -> None:
    async with cluster.working(controller.app, cluster.platform):
        instance = cluster.instance(*NAMES)
        await cluster.perform(instance, "deploy")
        cluster.platform.secrets.secrets.clear()
        await cluster.perform(instance, "replace", "n3", replacements=["n4"])
    tokens = {cluster.machine(name).files[ray.TOKEN].decode() for name in ("n1", "n2", "n4")}
    assert len(tokens) == 1
    assert [argv for argv in cluster.argv for word in argv for token in tokens if token in word] == []


async def test_a_head_that_lost_its_token_gets_the_one_that_its_workers_have(cluster: Cluster) -> None:
    async with cluster.working(controller.app, cluster.platform):
        instance = cluster.instance(*NAMES)
        await cluster.perform(instance, "deploy")
        before = cluster.machine("n2").files[ray.TOKEN]
        cluster.platform.secrets.secrets.clear()
        del cluster.machine("n1").files[ray.TOKEN]
        cluster.silent.add("n2")
        repaired = await cluster.perform(instance, "repair", "n1", role="head")
    assert (repaired.status, cluster.machine("n1").files[ray.TOKEN]) == ("succeeded", before)


async def test_after_a_crash_workers_that_were_started_again_are_not_waited_for_as_if_they_drained(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster.working(controller.app, cluster.platform):
        instance = cluster.instance(*NAMES)
        await cluster.perform(instance, "deploy")
        monkeypatch.setattr(checks, "serves", lambda view, machine: Check(machine == "n1", "starts"))
        operation = cluster.platform.request(cluster.platform.instance(instance.instance_id), "restart")
        await cluster.platform.until(operation.operation_id, lambda now: _starts(now) == 3)
    monkeypatch.undo()
    cluster.platform.expire_lease(operation.operation_id)
    async with cluster.working(controller.app, cluster.platform):
        ended = await cluster.platform.ended(operation.operation_id, timeout_s=20)
    assert ended.status == "succeeded"
    assert {member.status for member in cluster.platform.members(instance)} == {"ready"}


def _starts(operation: Operation) -> int:
    return sum(step.name == "start" and step.state == "succeeded" for step in operation.steps)


async def test_a_preview_of_what_ends_the_head_shows_what_people_lose_and_that_of_a_drain_does_not(
    cluster: Cluster,
) -> None:
    async with cluster.working(controller.app, cluster.platform):
        instance = cluster.instance(*NAMES)
        await cluster.perform(instance, "deploy")
        stop = await cluster.preview(instance, "stop")
        drain = await cluster.preview(instance, "drain", "n2")
    assert (stop.notes, drain.notes) == ([controller.Ray.ends], [])


@pytest.mark.parametrize(("systemctl", "program"), [(0, 1), (1, 1), (3, 0)])
async def test_a_machine_whose_program_does_not_answer_is_not_idle_if_ray_may_run(systemctl: int, program: int) -> None:
    with pytest.raises(Temporary, match="cannot look at Ray on n2: no such file"):
        await ray.look(_silent_machine(systemctl, program), "worker", "n2")


async def test_a_machine_without_the_program_is_idle_if_ray_does_not_run() -> None:
    assert await ray.look(_silent_machine(3, 1), "worker", "n2") == View()


def _silent_machine(systemctl: int, program: int) -> Machine:
    """Return a machine on which the program fails, `systemctl` ends with this status and the test of the file too."""
    statuses = {"systemctl": systemctl, "test": program}
    machines = FakeMachines(lambda argv: Ran(statuses.get(argv[0], 2), "", "no such file"))
    return Machine(machines.host("n2"))
