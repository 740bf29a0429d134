"""Slurm passes checks of the conformance kit, as a process, on simulated machines with the fake Slurm of its tests."""

import pytest
from gpuaas_app_slurm.controller import app
from gpuaas_sdk import conformance
from gpuaas_sdk.conformance import Subject
from slurm_driver import QUICK_COMMAND, SlurmDriver

SUBJECT = Subject.of(app.manifest, QUICK_COMMAND, SlurmDriver())
OPERATIONS = ("add", "drain", "resume", "repair", "replace", "stop", "start", "restart", "remove", "decommission")
"""Without the actions: some need a person with a login, whom the kit does not have."""
CHECKS = ("operations", "residue", "version-reporting", "drain-honesty")


async def test_a_controller_as_a_process_deploys_the_app_and_leaves_nothing() -> None:
    card = await conformance.run(SUBJECT, only=("operations", "residue"), kinds=("decommission",))
    assert (card.failures, card.count("passed")) == ([], 2)


@pytest.mark.long
async def test_every_operation_on_members_succeeds_and_drains_wait_for_jobs() -> None:
    card = await conformance.run(SUBJECT, only=CHECKS, kinds=OPERATIONS)
    assert (card.failures, card.count("passed")) == ([], len(CHECKS))
