"""The app passes the conformance kit, as a process, on simulated machines with the fake Slurm of its tests. The whole
card is long: `make test-slurm ARGS="-k conformance"`."""

import pytest
from gpuaas_app_slurm.controller import app
from gpuaas_sdk import conformance
from gpuaas_sdk.conformance import Subject
from slurm_driver import COMMAND, QUICK_COMMAND, SlurmDriver


async def test_a_controller_as_a_process_deploys_the_app_and_leaves_nothing() -> None:
    subject = Subject.of(app.manifest, COMMAND, SlurmDriver())
    checks = ("operations", "residue", "version-reporting")
    card = await conformance.run(subject, only=checks, kinds=("decommission",))
    assert (card.failures, card.count("passed")) == ([], len(checks))


@pytest.mark.long
@pytest.mark.timeout(3 * 3600)
async def test_the_app_passes_every_check() -> None:
    """Waits of the app are shorter than in `gpuaas-slurm`. Nothing of the card is not applicable."""
    card = await conformance.run(Subject.of(app.manifest, QUICK_COMMAND, SlurmDriver()))
    assert (card.failures, card.count("passed")) == ([], len(conformance.ALL))
