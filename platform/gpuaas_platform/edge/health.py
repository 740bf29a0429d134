"""Probes for load balancers and operators: /livez, /readyz, /version, /metrics. No rate limits. Only /metrics needs a
token, unless the request comes from the same machine; `http` checks it."""

import importlib.metadata
from collections.abc import Awaitable, Callable

import gpuaas_contract
import msgspec
from gpuaas_contract import errors
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.wire import NoBody

from gpuaas_platform.call import Site
from gpuaas_platform.edge import telemetry
from gpuaas_platform.edge.response import Response
from gpuaas_platform.kit import clock, health

_TEXT = b"text/plain; charset=utf-8"
_VERSION = {
    "name": "gpuaas-platform",
    "version": importlib.metadata.version("gpuaas-platform"),
    "contract_version": gpuaas_contract.VERSION,
}
METRICS = Endpoint("metrics", "GET", "/metrics", "", NoBody, NoBody, permission="record.platform_event.read")
_FIX = "Repair the parts that `details.failed` names; then the check succeeds without a restart."
Probe = Callable[[], Awaitable[Response]]


def probes(site: Site, metrics: telemetry.Metrics) -> dict[str, Probe]:
    """Return the probes by path."""

    async def alive() -> Response:
        return Response(200, b"ok\n", _TEXT)

    async def ready() -> Response:
        """Ready means that all checks of `site.health` pass. One of them commits a write to the store."""
        failed = await health.failed(site.health)
        if failed:
            names = ", ".join(f"{name} ({reason})" for name, reason in failed.items())
            details = {"check": next(iter(failed)), "failed": failed}
            fix = clock.FIX if "clock" in failed else _FIX
            raise errors.Unavailable(f"A check failed: {names}.", details=details, fix=fix)
        return Response(200, b"ok\n", _TEXT)

    async def version() -> Response:
        store = "postgresql" if site.settings.database_url else "sqlite"
        return Response(200, msgspec.json.encode({**_VERSION, "store": store}))

    async def numbers() -> Response:
        return Response(200, metrics.text(), telemetry.CONTENT_TYPE.encode())

    return {"/livez": alive, "/readyz": ready, "/version": version, METRICS.path: numbers}
