"""The app passes the conformance kit. The whole card is long: `make test-etcd`."""

import pytest
from gpuaas_app_etcd.controller import app
from gpuaas_app_etcd_conformance import COMMAND, EtcdDriver
from gpuaas_sdk import conformance
from gpuaas_sdk.conformance import Subject

SUBJECT = Subject.of(app.manifest, COMMAND, EtcdDriver())


async def test_a_controller_as_a_process_deploys_the_app_and_leaves_nothing() -> None:
    card = await conformance.run(SUBJECT, only=("operations", "residue", "version-reporting"), kinds=("decommission",))
    assert (card.failures, card.count("passed")) == ([], 3)


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_the_app_passes_every_check() -> None:
    card = await conformance.run(SUBJECT)
    assert (card.failures, len(card.verdicts)) == ([], len(conformance.ALL))
