"""The app passes the conformance kit. The whole card is long: `make test-etcd`."""

import pytest
from gpuaas_app_etcd.controller import app
from gpuaas_app_etcd_conformance import COMMAND, EtcdDriver
from gpuaas_sdk import conformance
from gpuaas_sdk.conformance import ScoreCard, Subject
from gpuaas_sdk.conformance.command import with_artifacts

DRIVER = EtcdDriver()
SUBJECT = Subject(with_artifacts(app.manifest, DRIVER), COMMAND, DRIVER)


def failures(card: ScoreCard) -> list[str]:
    return [f"{verdict.check}: {verdict.reason}" for verdict in card.verdicts if verdict.result == "failed"]


async def test_a_controller_as_a_process_deploys_the_app_and_leaves_nothing() -> None:
    card = await conformance.run(SUBJECT, only=("operations", "residue", "version-reporting"), kinds=("decommission",))
    assert (failures(card), card.count("passed")) == ([], 3)


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_the_app_passes_every_check() -> None:
    card = await conformance.run(SUBJECT)
    assert (failures(card), card.count("passed") + card.count("not applicable")) == ([], len(conformance.ALL))
