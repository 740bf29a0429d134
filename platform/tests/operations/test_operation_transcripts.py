"""A step keeps the digest of what its controller did on machines."""

import pytest
from gpuaas_contract import errors, runtime
from platform_world import World
from scripted_controller import Cluster

TRANSCRIPT = {"commands": 3, "sha256": "ab" * 32}


async def test_the_transcript_of_a_step_stays_on_the_operations_record(world: World) -> None:
    held = await (await Cluster.requested(world)).controller.take()
    await held.step("install", "running")
    await held.send(runtime.STEP_REPORT, {"name": "install", "state": "succeeded", "transcript": TRANSCRIPT})
    (step,) = [step for step in (await world.operation(held.operation_id)).steps if step.name == "install"]
    assert step.transcript is not None
    assert (step.transcript.commands, step.transcript.sha256) == (3, "ab" * 32)


async def test_a_step_that_runs_again_has_no_transcript_until_it_ends(world: World) -> None:
    held = await (await Cluster.requested(world)).controller.take()
    await held.send(runtime.STEP_REPORT, {"name": "install", "state": "failed", "transcript": TRANSCRIPT})
    await held.step("install", "running")
    again = await world.operation(held.operation_id)
    assert [step.transcript for step in again.steps] == [None]


async def test_what_is_no_digest_is_refused(world: World) -> None:
    held = await (await Cluster.requested(world)).controller.take()
    report = {"name": "install", "state": "succeeded", "transcript": {"commands": 1, "sha256": "everything is fine"}}
    with pytest.raises(errors.ValidationFailed):
        await held.send(runtime.STEP_REPORT, report)
