"""The action `node.reboot`: Slurm restarts machines when their jobs have ended, and health does not blame them."""

from collections.abc import AsyncIterator

import pytest
from gpuaas_app_slurm import plan
from gpuaas_app_slurm.workload.observed import DirectLook
from gpuaas_app_slurm_conformance.fake_slurm import Cluster, FakeJob, deployed_cluster
from test_slurm_checks import WORKER, node
from test_slurm_checks import cluster as seen


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with deployed_cluster("gpu-2", "gpu-3") as deployed:
        yield deployed


async def test_a_reboot_keeps_new_jobs_off_and_leaves_running_ones(cluster: Cluster) -> None:
    cluster.slurm.jobs = [FakeJob(7, node="gpu-2")]
    ended = await cluster.act("node.reboot", nodes=["gpu-2", "gpu-3"])
    assert ended.status == "succeeded", ended.error
    assert [(row["node"], row["state"]) for row in ended.result["rows"]] == [
        ("gpu-2", "IDLE+DRAIN+REBOOT_REQUESTED"),
        ("gpu-3", "IDLE+DRAIN+REBOOT_REQUESTED"),
    ]
    assert [job.job_id for job in cluster.slurm.jobs] == [7]
    asked = [argv for argv in cluster.machines.host("gpu-1").ran if argv[:2] == ("scontrol", "reboot")]
    assert [(argv[2:4], argv[-1]) for argv in asked] == [
        (("ASAP", "nextstate=RESUME"), "gpu-2"),
        (("ASAP", "nextstate=RESUME"), "gpu-3"),
    ]
    assert cluster.slurm.reasons["gpu-2"].startswith(f"gpuaas:{ended.operation_id}: ")


async def test_a_reboot_does_not_lift_the_drain_of_a_drained_worker(cluster: Cluster) -> None:
    assert (await cluster.perform("drain", [cluster.member("gpu-2")])).status == "succeeded"
    reason = cluster.slurm.reasons["gpu-2"]
    ended = await cluster.act("node.reboot", nodes=["gpu-2"])
    assert ended.status == "succeeded", ended.error
    assert ("scontrol", "reboot", "gpu-2") in cluster.machines.host("gpu-1").ran
    assert cluster.slurm.reasons["gpu-2"] == reason


@pytest.mark.parametrize(
    ("names", "flags", "reason"),
    [
        (["gpu-9"], ["IDLE"], "no worker gpu-9"),
        (["gpu-3", "gpu-2"], ["DOWN"], "node gpu-2 is DOWN"),
        (["gpu-3", "gpu-2"], ["IDLE", "DRAIN", "REBOOT_REQUESTED"], "gpu-2 reboots already"),
    ],
)
async def test_a_node_that_cannot_reboot_refuses_the_action_before_the_first_change(
    cluster: Cluster, names: list[str], flags: list[str], reason: str
) -> None:
    cluster.slurm.nodes["gpu-2"] = flags
    ended = await cluster.act("node.reboot", nodes=names)
    assert (ended.error.failure_class, reason in ended.error.message) == ("refused", True), ended.error
    assert cluster.slurm.nodes["gpu-3"] == ["IDLE"]


async def test_the_machine_of_the_controller_is_not_rebooted(cluster: Cluster) -> None:
    cluster.add_worker("gpu-1")
    cluster.slurm.nodes["gpu-1"] = ["IDLE"]
    ended = await cluster.act("node.reboot", nodes=["gpu-1"])
    assert ended.error.failure_class == "refused"
    assert "slurmctld" in ended.error.message


async def test_a_worker_that_does_not_work_yet_is_not_rebooted(cluster: Cluster) -> None:
    cluster.add_worker("gpu-4")
    cluster.slurm.nodes["gpu-4"] = ["IDLE"]
    ended = await cluster.act("node.reboot", nodes=["gpu-4"])
    assert (ended.error.failure_class, "gpu-4 is requested" in ended.error.message) == ("refused", True), ended.error


AWAY = DirectLook(unreachable="no route to host")


@pytest.mark.parametrize(("flag", "direct"), [("REBOOT_REQUESTED", None), ("REBOOT_ISSUED", None)])
def test_health_shows_the_reboot_of_a_worker_and_not_the_faults_that_it_explains(
    flag: str, direct: DirectLook | None
) -> None:
    state = "DOWN" if flag == "REBOOT_ISSUED" else "IDLE"
    assert _judged([state, "DRAIN", flag], direct) == ("degraded", ["Rebooting"])


async def test_a_node_that_slurm_restarts_is_not_drained_removed_or_repaired(cluster: Cluster) -> None:
    before = ["MIXED", "DRAIN", "REBOOT_REQUESTED"]
    cluster.slurm.nodes["gpu-2"] = before
    for kind in ("drain", "remove", "repair"):
        ended = await cluster.perform(kind, [cluster.member("gpu-2")])
        assert ended.error.failure_class == "refused"
        assert "scontrol cancel_reboot gpu-2" in ended.error.fix
    assert (cluster.slurm.nodes["gpu-2"], cluster.member("gpu-2").status) == (before, "ready")


def test_health_still_reports_other_faults_while_a_reboot_waits_for_jobs() -> None:
    assert _judged(["DOWN", "DRAIN", "REBOOT_REQUESTED"], DirectLook()) == ("failed", ["NodeDown", "Rebooting"])


def test_health_reports_a_worker_that_did_not_come_back_from_its_reboot() -> None:
    assert _judged(["DOWN", "DRAIN"], AWAY) == ("failed", ["MachineSilent"])


def _judged(flags: list[str], direct: DirectLook | None) -> tuple[str, list[str]]:
    """Return the status of a worker after a look, and the codes of its faults."""
    port = "silent" if direct is AWAY else "open"
    now = seen(node(flags=frozenset(flags), reason="gpuaas:op_7: reboot", slurmd_port=port))
    decision = plan.decide("slurm", [WORKER], now, {WORKER.member_id: direct} if direct else {})
    [verdict] = decision.verdicts
    assert verdict.detail is not None
    return verdict.status, verdict.detail["findings"]
