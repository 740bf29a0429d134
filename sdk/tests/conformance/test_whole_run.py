"""All checks on the app of the scaffold, as it is. Restart and rollback have the handler of the upgrade."""

from collections.abc import Callable

from gpuaas_sdk import conformance
from gpuaas_sdk.conformance import Subject

KINDS = ("add", "drain", "resume", "replace", "stop", "start", "upgrade", "remove", "decommission")


async def test_an_app_without_faults_passes_every_check(planted: Callable[..., Subject]) -> None:
    card = await conformance.run(planted(), kinds=KINDS)
    assert [verdict for verdict in card.verdicts if verdict.result != "passed"] == []
    assert tuple(verdict.check for verdict in card.verdicts) == conformance.ALL
