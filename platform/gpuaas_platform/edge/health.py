"""Probes for load balancers and operators: /livez, /readyz, /version, /metrics. No credentials, no rate limits."""

import asyncio
import importlib.metadata
from collections.abc import Awaitable, Callable

import gpuaas_contract
import msgspec
from gpuaas_contract import errors

from gpuaas_platform.call import Site
from gpuaas_platform.edge import telemetry
from gpuaas_platform.edge.exchange import Response
from gpuaas_platform.kit import clock

STORE_ANSWERS_WITHIN_S = 1.0
_TEXT = b"text/plain; charset=utf-8"
_VERSION = {
    "name": "gpuaas-platform",
    "version": importlib.metadata.version("gpuaas-platform"),
    "contract_version": gpuaas_contract.VERSION,
}
Probe = Callable[[], Awaitable[Response]]


def probes(site: Site, metrics: telemetry.Metrics) -> dict[str, Probe]:
    """Return the probes by path."""

    async def alive() -> Response:
        return Response(200, b"ok\n", _TEXT)

    async def ready() -> Response:
        """Ready means that the store accepts writes: the check runs in the queue of writers and is rolled back."""
        _check_clock(site)
        try:
            async with asyncio.timeout(STORE_ANSWERS_WITHIN_S):
                await site.database.write(lambda tx: tx.one("SELECT number FROM migrations LIMIT 1"), keep=False)
        except TimeoutError as error:
            text = f"The store has not answered within {STORE_ANSWERS_WITHIN_S:g} s."
            raise errors.Unavailable(text, details={"check": "store"}) from error
        return Response(200, b"ok\n", _TEXT)

    async def version() -> Response:
        store = "postgresql" if site.settings.database_url else "sqlite"
        return Response(200, msgspec.json.encode({**_VERSION, "store": store}))

    async def numbers() -> Response:
        return Response(200, metrics.text(), telemetry.CONTENT_TYPE.encode())

    return {"/livez": alive, "/readyz": ready, "/version": version, "/metrics": numbers}


def _check_clock(site: Site) -> None:
    used = site.clock()
    if site.clock.jump_s:
        text = f"The clock of this machine jumped by {site.clock.jump_s:+.0f} s. The platform uses {used:%FT%TZ}."
        raise errors.Unavailable(text, details={"check": "clock", "jump_s": site.clock.jump_s}, fix=clock.FIX)
