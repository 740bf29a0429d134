"""Checks that lose and double what crosses the wire."""

from gpuaas_contract.runtime import ACCESS_PUBLISH, CLAIM, COMPLETE, FAIL, HEARTBEAT, MEMBER_REPORT, STEP_REPORT

from gpuaas_sdk.conformance.registry import check
from gpuaas_sdk.conformance.trial import Trial
from gpuaas_sdk.testing.platform.edge import Fate, Received

_REPORTS = {endpoint.name for endpoint in (STEP_REPORT, MEMBER_REPORT, ACCESS_PUBLISH, COMPLETE, FAIL, HEARTBEAT)}


@check("lost-replies", "The result is the same if the reply to a claim or a report is lost and the call is repeated.")
async def lost_replies(trial: Trial) -> None:
    async with trial.stage() as on:
        lost: set[tuple[str, str]] = set()

        async def lose_first(received: Received) -> Fate:
            """Lose the first reply of each kind in each kind of operation, and of the first claims."""
            about = _kind(on.platform.operation(received.path["operation_id"]).kind, received)
            if about in lost or received.name not in _REPORTS:
                return "serve"
            lost.add(about)
            return "lose"

        async def decide(received: Received) -> Fate:
            if received.name == CLAIM.name and ("", CLAIM.name) not in lost:
                lost.add(("", CLAIM.name))
                return "lose"
            return await lose_first(received) if "operation_id" in received.path else "serve"

        on.on_call = decide
        await trial.tour(on)


@check("doubled-calls", "The result is the same if every claim and report arrives twice.")
async def doubled_calls(trial: Trial) -> None:
    async with trial.stage() as on:

        async def double(received: Received) -> Fate:
            return "double" if received.name in {CLAIM.name, *_REPORTS} else "serve"

        on.on_call = double
        await trial.tour(on)


def _kind(kind: str, received: Received) -> tuple[str, str]:
    return kind, received.name
