"""The onboarding gate distinguishes addresses of members from sources of content."""

from collections.abc import Callable

import pytest
from gpuaas_sdk.conformance import Reference, Subject, run

OWN, FOREIGN = ("kv", "join", "--peer=https://n1:2380"), ("curl", "https://downloads.example/kv.tar")


@pytest.mark.parametrize(("argv", "result"), [(OWN, "passed"), (FOREIGN, "failed")])
async def test_an_address_of_a_member_is_no_source_of_content(
    planted: Callable[..., Subject], argv: tuple[str, ...], result: str
) -> None:
    reference = Reference(empty={"n1": {}}, arguments={argv})
    card = await run(planted(), only=["artifact-sources"], reference=reference)
    assert [verdict.result for verdict in card.verdicts] == [result]
