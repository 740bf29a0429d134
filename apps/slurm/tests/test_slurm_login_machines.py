"""A login machine leaves only when no command of a person there waits for a job, or by force."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from gpuaas_app_slurm_conformance.fake_slurm import FakeJob
from gpuaas_app_slurm_conformance.fresh_machines import NewCluster, new_cluster

MEMBERS = {"controller": ["gpu-1"], "worker": ["gpu-2", "gpu-3"], "login": ["gpu-4"]}
KINDS = pytest.mark.parametrize("kind", ["remove", "replace"])


@pytest.fixture
async def cluster() -> AsyncIterator[NewCluster]:
    async with new_cluster(MEMBERS) as deployed:
        ended = await deployed.perform("deploy")
        assert ended.status == "succeeded", ended.error
        yield deployed


@KINDS
async def test_a_login_machine_on_which_srun_waits_does_not_leave_without_force(cluster: NewCluster, kind: Any) -> None:
    cluster.slurm.jobs = [_interactive(9), _interactive(10, node="", user="bob")]
    ended = await _leave(cluster, kind)
    assert ended.error.failure_class == "refused"
    assert "commands on gpu-4 wait for 2 jobs: 9 (ada), 10 (bob)" in ended.error.message
    assert f"{kind} the member with force" in ended.error.fix
    assert (cluster.statuses()["gpu-4"], len(cluster.slurm.jobs)) == ("ready", 2)
    assert "drain gpu-4" not in cluster.slurm.changes


@KINDS
async def test_batch_jobs_and_commands_on_other_machines_do_not_keep_a_login_machine(
    cluster: NewCluster, kind: Any
) -> None:
    cluster.slurm.jobs = [
        FakeJob(7, submit_host="gpu-4"),
        FakeJob(8, is_batch=False, submit_host="gpu-1"),
    ]
    ended = await _leave(cluster, kind)
    assert ended.status == "succeeded", ended.error
    assert [job.job_id for job in cluster.slurm.jobs] == [7, 8]


@KINDS
async def test_force_cancels_the_jobs_whose_commands_end_with_the_login_machine(cluster: NewCluster, kind: Any) -> None:
    cluster.slurm.jobs = [_interactive(9), FakeJob(7, submit_host="gpu-4")]
    ended = await _leave(cluster, kind, force=True)
    assert ended.status == "succeeded", ended.error
    assert [job.job_id for job in cluster.slurm.jobs] == [7]


async def test_a_command_that_starts_after_the_check_is_waited_for(cluster: NewCluster) -> None:
    cluster.slurm.on_drain = lambda: cluster.slurm.jobs.append(_interactive(9))
    operation_id = await cluster.started("remove", [cluster.member_of(cluster.instance, "gpu-4")])
    await cluster.platform.until(operation_id, lambda now: any("9 (ada)" in step.message for step in now.steps))
    cluster.slurm.jobs = []
    ended = await cluster.platform.ended(operation_id)
    assert ended.status == "succeeded", ended.error


@KINDS
async def test_a_preview_names_the_jobs_whose_commands_end_with_the_login_machine(
    cluster: NewCluster, kind: Any
) -> None:
    cluster.slurm.jobs = [_interactive(9), FakeJob(7, submit_host="gpu-4")]
    member = cluster.member_of(cluster.instance, "gpu-4")
    asked = cluster.platform.ask_preview(cluster.instance, kind, [member], component_key="login", force=True)
    preview = (await cluster.platform.ended(asked.operation_id)).preview
    assert preview is not None
    assert [(work.work_id, work.owner, work.member_ids) for work in preview.running_work] == [
        ("9", "ada", [member.member_id])
    ]
    assert any("9 (ada)" in note for note in preview.notes)


def _interactive(job_id: int, node: str = "gpu-2", user: str = "ada") -> FakeJob:
    return FakeJob(job_id, node=node, user=user, is_batch=False, submit_host="gpu-4")


async def _leave(cluster: NewCluster, kind: Any, *, force: bool = False) -> Any:
    more = {"replacements": ["gpu-5"]} if kind == "replace" else {}
    return await cluster.perform(kind, [cluster.member_of(cluster.instance, "gpu-4")], force=force, **more)
