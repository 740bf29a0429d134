"""The preview of an operation shows the refusal that its request would get; the checks are the same."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from gpuaas_app_slurm.workload import config
from gpuaas_app_slurm_conformance.fake_slurm import FakeJob
from gpuaas_app_slurm_conformance.fresh_machines import NewCluster, new_cluster
from test_slurm_upgrade import add_version

MEMBERS = {"controller": ["gpu-1"], "worker": ["gpu-2", "gpu-3"], "login": ["gpu-4"]}
Prepare = Callable[[NewCluster], object]


@pytest.fixture
async def cluster() -> AsyncIterator[NewCluster]:
    async with new_cluster(MEMBERS) as deployed:
        ended = await deployed.perform("deploy")
        assert ended.status == "succeeded", ended.error
        yield deployed


def runs(cluster: NewCluster) -> None:
    cluster.slurm.jobs = [FakeJob(7, node="gpu-2")]


def waits_for_gpu_2(cluster: NewCluster) -> None:
    cluster.slurm.jobs = [FakeJob(8, node="", required="gpu-2")]


def waits_with_a_command(cluster: NewCluster) -> None:
    cluster.slurm.jobs = [FakeJob(9, node="gpu-2", is_batch=False)]


def waits_on_the_login_machine(cluster: NewCluster) -> None:
    cluster.slurm.jobs = [FakeJob(9, node="gpu-2", is_batch=False, submit_host="gpu-4")]


def is_silent(cluster: NewCluster) -> None:
    cluster.host("gpu-2").reachable = False


def is_edited(cluster: NewCluster) -> None:
    cluster.host("gpu-1").files[config.SLURM_CONF] += b"# by hand\n"


@pytest.mark.parametrize(
    ("kind", "targets", "prepare", "reason"),
    [
        ("drain", ("gpu-2",), lambda cluster: cluster.slurm.nodes.pop("gpu-2"), "Slurm has no node gpu-2"),
        ("remove", ("gpu-2",), is_silent, "machine gpu-2 (gpu-2) does not answer"),
        ("remove", ("gpu-2",), waits_for_gpu_2, "1 queued job names node gpu-2"),
        ("replace", ("gpu-2",), waits_for_gpu_2, "1 queued job names node gpu-2"),
        ("replace", ("gpu-1",), waits_with_a_command, "commands of people wait for 1 jobs"),
        ("replace", ("gpu-1",), is_edited, "files on gpu-1 were changed after the app wrote them"),
        ("remove", ("gpu-4",), waits_on_the_login_machine, "commands on gpu-4 wait for 1 job: 9 (ada)"),
        ("replace", ("gpu-4",), waits_on_the_login_machine, "commands on gpu-4 wait for 1 job: 9 (ada)"),
        ("stop", (), runs, "1 job running: 7 (ada)"),
        ("restart", (), is_silent, "machine gpu-2 (gpu-2) does not answer"),
        ("decommission", (), runs, "7 (ada, RUNNING)"),
        ("decommission", (), is_silent, "machine gpu-2 (gpu-2) does not answer"),
        ("reconfigure", (), is_edited, "files on gpu-1 were changed after the app wrote them"),
        ("upgrade", (), is_edited, "files on gpu-1 were changed after the app wrote them"),
        ("rollback", (), lambda cluster: None, "has no backup from before the upgrade"),
    ],
)
async def test_a_preview_shows_the_refusal_of_the_request(
    cluster: NewCluster, kind: Any, targets: tuple[str, ...], prepare: Prepare, reason: str
) -> None:
    prepare(cluster)
    assert reason in await _announced(cluster, kind, targets)
    ended = await _requested(cluster, kind, targets)
    assert (ended.error.failure_class, reason in ended.error.message) == ("refused", True), ended.error


@pytest.mark.parametrize(
    ("kind", "targets"), [("drain", ("gpu-2",)), ("remove", ("gpu-2",)), ("stop", ()), ("upgrade", ()), ("restart", ())]
)
async def test_a_preview_of_what_would_be_accepted_shows_no_refusal(
    cluster: NewCluster, kind: Any, targets: tuple[str, ...]
) -> None:
    assert await _announced(cluster, kind, targets) == ""


@pytest.mark.parametrize(("kind", "prepare"), [("stop", runs), ("decommission", runs), ("remove", waits_for_gpu_2)])
async def test_a_preview_with_force_shows_no_refusal_that_force_lifts(
    cluster: NewCluster, kind: Any, prepare: Prepare
) -> None:
    prepare(cluster)
    assert await _announced(cluster, kind, ("gpu-2",) if kind == "remove" else (), force=True) == ""


async def _announced(cluster: NewCluster, kind: Any, targets: tuple[str, ...], *, force: bool = False) -> str:
    members = [cluster.member_of(cluster.instance, name) for name in targets] or None
    role = members[0].component_key if members else ""
    inputs = {"default_time": "00:30:00"} if kind == "reconfigure" else None
    asked = cluster.platform.ask_preview(
        cluster.instance, kind, members, component_key=role, inputs=inputs, force=force
    )
    preview = (await cluster.platform.ended(asked.operation_id)).preview
    assert preview is not None
    return preview.refusal


async def _requested(cluster: NewCluster, kind: Any, targets: tuple[str, ...]) -> Any:
    members = [cluster.member_of(cluster.instance, name) for name in targets] or None
    if kind == "reconfigure":
        asked = cluster.platform.reconfigure(cluster.instance, {"default_time": "00:30:00"})
        return await cluster.platform.ended(asked.operation_id)
    if kind in ("upgrade", "rollback"):
        version = add_version(cluster, "26.05.5")
        asked = cluster.platform.request(cluster.instance, kind, to_version=version)
        return await cluster.platform.ended(asked.operation_id)
    more = {"replacements": ["gpu-5"]} if kind == "replace" else {}
    return await cluster.perform(kind, members, **more)
