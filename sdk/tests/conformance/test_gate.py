"""The onboarding gate distinguishes addresses of members from sources of content, and reads of other operations from
calls about them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpuaas_contract.errors import ApiError, AppUnknown, NotFound, PermissionDenied
from gpuaas_contract.operations import OPERATION_GET
from gpuaas_contract.runtime import STEP_REPORT
from gpuaas_sdk.conformance import Reference, Subject, run
from gpuaas_sdk.conformance.plan import Move
from gpuaas_sdk.testing import FakePlatform
from gpuaas_sdk.testing.platform.edge import Received

OWN, FOREIGN = ("kv", "join", "--peer=https://n1:2380"), ("curl", "https://downloads.example/kv.tar")


@pytest.mark.parametrize(("argv", "result"), [(OWN, "passed"), (FOREIGN, "failed")])
async def test_an_address_of_a_member_is_no_source_of_content(
    planted: Callable[..., Subject], argv: tuple[str, ...], result: str
) -> None:
    reference = Reference(empty={"n1": {}}, arguments={argv})
    card = await run(planted(), only=["artifact-sources"], reference=reference)
    assert [verdict.result for verdict in card.verdicts] == [result]


@pytest.mark.parametrize(
    ("refusal", "failed"), [(PermissionDenied, "permissions"), (NotFound, "boundaries"), (AppUnknown, "boundaries")]
)
async def test_a_call_that_the_platform_refuses_fails_the_check_about_its_reason(
    planted: Callable[..., Subject], refusal: type[ApiError], failed: str
) -> None:
    reference = Reference(empty={}, refusals=[("apps.instance.get", refusal.code)])
    card = await run(planted(), only=["permissions", "boundaries"], reference=reference)
    assert {verdict.check for verdict in card.verdicts if verdict.result == "failed"} == {failed}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("1. `gpuaas triage COR` shows all. Then: `gpuaas op retry OPERATION`", "passed"),
        ("Type `gpuaas op retry OPERATION`. See also `gpuaas triage COR`", "failed"),
        ("Ask the team.", "failed"),
    ],
)
async def test_a_runbook_begins_with_the_correlation_id(
    planted: Callable[..., Subject], tmp_path: Path, text: str, result: str
) -> None:
    subject, page = planted(), tmp_path / "runbook.md"
    page.write_text(text)
    subject.driver.runbook = page
    card = await run(subject, only=["runbook"])
    assert [verdict.result for verdict in card.verdicts] == [result]


@pytest.mark.parametrize(("endpoint", "result"), [(OPERATION_GET, "passed"), (STEP_REPORT, "failed")])
async def test_only_a_read_of_another_operation_has_the_correlation_id_of_its_reader(
    planted: Callable[..., Subject], endpoint: Any, result: str
) -> None:
    platform = FakePlatform("hello")
    operation = platform.request(platform.add_instance({}), "deploy")
    received = Received(endpoint.name, None, {"operation_id": operation.operation_id}, "cor_of_another")
    reference = Reference(empty={}, operations={Move("deploy"): operation}, received=[received])
    card = await run(planted(), only=["correlation"], reference=reference)
    assert [verdict.result for verdict in card.verdicts] == [result]
