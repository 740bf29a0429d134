"""The app passes the conformance kit: it is killed at every step of every operation, cancelled at every step, and its
machines fail. A few checks here; all of them with GPUAAS_CAMPAIGNS=whole."""

import os

from gpuaas_app_etcd.controller import app
from gpuaas_app_etcd_conformance import COMMAND, EtcdDriver
from gpuaas_sdk import conformance
from gpuaas_sdk.conformance import Subject

IS_WHOLE = os.environ.get("GPUAAS_CAMPAIGNS") == "whole"
CHECKS = () if IS_WHOLE else ("operations", "residue", "version-reporting")
KINDS = () if IS_WHOLE else ("deploy", "replace", "remove", "decommission")


async def test_the_app_passes_the_conformance_kit() -> None:
    subject = Subject(app.manifest, COMMAND, EtcdDriver())
    card = await conformance.run(subject, only=CHECKS, kinds=KINDS)
    assert [f"{verdict.check}: {verdict.reason}" for verdict in card.verdicts if verdict.result == "failed"] == []
    assert sum(verdict.result == "passed" for verdict in card.verdicts) >= 3
