"""Who calls, and may they? The same questions for every route; what a caller may not see answers as if absent."""

from collections.abc import Mapping
from typing import Any, NoReturn

from gpuaas_contract import errors
from gpuaas_contract.endpoint import Endpoint

from gpuaas_platform.call import Origin, Site
from gpuaas_platform.edge import audit as auditing
from gpuaas_platform.edge.exchange import ANONYMOUS, Exchange
from gpuaas_platform.edge.limits import Limiter
from gpuaas_platform.edge.telemetry import Metrics
from gpuaas_platform.identity import rules as identity_rules
from gpuaas_platform.identity.admission import Admission, Admissions

AnyEndpoint = Endpoint[Any, Any]
_NOBODY = Admission(ANONYMOUS)


class Authority:
    def __init__(self, site: Site, metrics: Metrics) -> None:
        settings = site.settings
        self._site, self._metrics = site, metrics
        self._admissions = Admissions(site.database)
        self._callers = Limiter(settings.rate_limit_per_s, settings.rate_limit_burst)
        self._nodes = Limiter(settings.node_rate_limit_per_s, settings.node_rate_limit_burst)
        self._peers = Limiter(settings.rate_limit_per_s, settings.rate_limit_burst)

    async def authenticate(self, endpoint: AnyEndpoint, exchange: Exchange, params: Mapping[str, str]) -> Admission:
        """Callers we know are limited by who they are, everybody else by the address they come from."""
        if endpoint.audience == "public":
            self._limit(self._peers, exchange.peer)
            return _NOBODY
        try:
            found = await self.identify(endpoint, exchange, params)
        except errors.ApiError:
            self._limit(self._peers, exchange.peer)
            raise
        self._limit(self._nodes if found.caller.actor_type == "node" else self._callers, found.caller.actor_id)
        return found

    async def identify(self, endpoint: AnyEndpoint, exchange: Exchange, params: Mapping[str, str]) -> Admission:
        """Who the token is for, without counting the request."""
        scheme, _, token = exchange.header(b"authorization").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise errors.TokenMissing
        found = await self._admissions.find(
            token, exchange.now, project_id=params.get("project_id", ""), org_id=params.get("org_id", "")
        )
        if (found.caller.actor_type == "node") != (endpoint.audience == "node"):
            raise errors.TokenInvalid("This token is for another kind of caller.")
        return found

    def decide(
        self, endpoint: AnyEndpoint, exchange: Exchange, params: Mapping[str, str], found: Admission
    ) -> identity_rules.Verdict:
        if not endpoint.permission:
            return "allowed"
        if "project_id" in params:
            _check_project_header(exchange, params["project_id"], found.project.name if found.project else "")
        return found.decide(endpoint.permission)

    async def refuse(
        self, endpoint: AnyEndpoint, origin: Origin, found: Admission, verdict: identity_rules.Verdict
    ) -> NoReturn:
        self._metrics.denials.inc()
        await self._site.database.write(lambda tx: auditing.denial(tx, endpoint, origin, found.project, found.org_id))
        if verdict == "denied":
            details = {"permission": endpoint.permission}
            raise errors.PermissionDenied(f"This needs {endpoint.permission}.", details=details)
        raise errors.NotFound

    def _limit(self, limiter: Limiter, caller: str) -> None:
        wait_s = limiter.take(caller)
        if wait_s:
            self._metrics.rate_limited.inc()
            raise errors.RateLimited(details={"retry_after_s": round(wait_s, 3)})


def _check_project_header(exchange: Exchange, project_id: str, name: str) -> None:
    named = exchange.header(b"x-project-id")
    if named and named not in (project_id, name):
        raise errors.InvalidRequest(
            "X-Project-ID names another project than the path.", details={"field": "X-Project-ID"}
        )
