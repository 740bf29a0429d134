"""Controllers that compete for one operation. At any time at most one of them may have the lease."""

import asyncio
import contextlib
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator

import httpx
import msgspec
from gpuaas_contract import catalog, instances, operations, runtime

from bench.badday.load import Load
from bench.badday.parts import APP, Cloud

CONTROLLERS = 4
LEASE_S = 5
RENEWALS = 10
"""Then a controller lets the lease end, so that another one gets it."""
_SLUG = APP["slug"]


class Leases:
    def __init__(self, cloud: Cloud, operation_id: str, tokens: list[str]) -> None:
        self._cloud, self._operation_id, self._tokens = cloud, operation_id, tokens
        self._claims: dict[int, set[str]] = defaultdict(set)
        """The claims that got each epoch."""
        self._renewed_late = 0
        """Renewals that succeeded although another controller had a newer epoch."""

    @classmethod
    async def on(cls, cloud: Cloud) -> "Leases":
        version = {"app_slug": _SLUG, "version": APP["version"]}
        await cloud.call(catalog.VERSION_PUBLISH, catalog.PublishVersion(), **version)
        await cloud.call(catalog.ENTITLEMENT_SET, {"enabled": True}, app_slug=_SLUG)
        inputs = {"allocation": await cloud.allocation()}
        body = {"name": "app", **version, "topology": "solo", "inputs": inputs}
        deployed = await cloud.call(instances.INSTANCE_CREATE, body)
        tokens = [await cloud.service_account(f"controller-{number}", _SLUG) for number in range(CONTROLLERS)]
        return cls(cloud, deployed.operation.operation_id, tokens)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        controllers = [asyncio.create_task(self._compete(token)) for token in self._tokens]
        try:
            yield
        finally:
            for controller in controllers:
                controller.cancel()

    async def count(self, load: Load) -> None:
        """Add what was doubled or ended too early to the result."""
        load.result.doubled += sum(len(claims) - 1 for claims in self._claims.values()) + self._renewed_late
        operation = await self._cloud.call(operations.OPERATION_GET, operation_id=self._operation_id)
        if operation.status != "running":
            load.result.early += 1
            load.result.wrong.append(f"the operation is {operation.status}")
        if not self._claims:
            load.result.wrong.append("no controller got the lease")

    async def _compete(self, token: str) -> None:
        while True:
            with contextlib.suppress(httpx.TransportError):
                await self._claim(token)
            await asyncio.sleep(LEASE_S / 50)

    async def _claim(self, token: str) -> None:
        claim_id = uuid.uuid4().hex
        body = {"app_slug": _SLUG, "holder": "badday", "claim_id": claim_id, "lease_s": LEASE_S}
        answer = await self._cloud.send(runtime.CLAIM, body, token=token)
        if answer.status_code != runtime.CLAIM.status:
            return
        claim = msgspec.json.decode(answer.content, type=runtime.Claim)
        if claim.operation is None:
            return
        self._claims[claim.epoch].add(claim_id)
        for _ in range(RENEWALS):
            await asyncio.sleep(LEASE_S / 5)
            await self._renew(token, claim.epoch)

    async def _renew(self, token: str, epoch: int) -> None:
        newest = max(self._claims)
        body = {"epoch": epoch, "lease_s": LEASE_S}
        answer = await self._cloud.send(runtime.HEARTBEAT, body, token=token, operation_id=self._operation_id)
        self._renewed_late += answer.status_code == runtime.HEARTBEAT.status and epoch < newest
