"""The lease of one operation: how long it lasts without another answer."""

import pytest
from gpuaas_contract.errors import LeaseLost
from gpuaas_contract.runtime import STEP_REPORT, ClaimOperation, ReportStep
from gpuaas_sdk.controller.lease import Lease
from gpuaas_sdk.testing import FakePlatform, serving
from starlette.types import Receive, Scope, Send


async def test_a_lease_lasts_from_when_the_heartbeat_was_sent_not_from_its_late_answer() -> None:
    platform, now = FakePlatform("demo"), 100.0
    record = platform.request(platform.add_instance({}), "deploy")
    claim = platform.runtime.claim(ClaimOperation(app_slug="demo", holder="h", claim_id="c", lease_s=15))

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal now
        if scope["path"].endswith("/lease"):
            now += 10
        await platform.app(scope, receive, send)

    async with serving(slow) as address, platform.client(address) as client:
        lease = Lease(client, record, epoch=claim.epoch, lease_s=15, clock=lambda: now)
        now += 3
        await lease.renew()
    assert lease.left_s() == 5


async def test_a_lost_lease_sends_no_further_report() -> None:
    platform = FakePlatform("demo")
    record = platform.request(platform.add_instance({}), "deploy")
    claim = platform.runtime.claim(ClaimOperation(app_slug="demo", holder="h", claim_id="c"))
    async with platform.serve() as client:
        lease = Lease(client, record, epoch=claim.epoch, lease_s=15)
        lease.lose("no heartbeat was answered")
        with pytest.raises(LeaseLost, match="no heartbeat was answered"):
            await lease.report(STEP_REPORT, ReportStep(epoch=claim.epoch, name="install", state="running"))
    assert platform.operation(record.operation_id).steps == []
