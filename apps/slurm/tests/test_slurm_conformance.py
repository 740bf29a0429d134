"""The app passes checks of the conformance kit, as a process, on simulated machines with the fake Slurm of these tests."""

from gpuaas_app_slurm.controller import app
from gpuaas_sdk import conformance
from gpuaas_sdk.conformance import Subject
from slurm_driver import COMMAND, SlurmDriver

SUBJECT = Subject.of(app.manifest, COMMAND, SlurmDriver())


async def test_a_controller_as_a_process_deploys_the_app_and_leaves_nothing() -> None:
    card = await conformance.run(SUBJECT, only=("operations", "residue"), kinds=("decommission",))
    assert (card.failures, card.count("passed")) == ([], 2)
