"""Identify the caller of a request and decide whether they may make it, in the same way for every route.

What a caller may not see is answered as if it did not exist."""

from typing import NoReturn

from gpuaas_contract import errors
from gpuaas_contract.endpoint import AnyEndpoint
from gpuaas_contract.paths import OrgPath, Path, ProjectPath

from gpuaas_platform.call import Origin, Site
from gpuaas_platform.edge import audit
from gpuaas_platform.edge.exchange import ANONYMOUS, Exchange
from gpuaas_platform.edge.limits import Limiter
from gpuaas_platform.edge.telemetry import Metrics
from gpuaas_platform.identity.admission import Admission, Admissions
from gpuaas_platform.identity.rules import Verdict

_ANONYMOUS = Admission(ANONYMOUS)


class Authoriser:
    def __init__(self, site: Site, metrics: Metrics) -> None:
        settings = site.settings
        self._site, self._metrics = site, metrics
        self._admissions = Admissions(site.database)
        self._callers = Limiter(settings.rate_limit_per_s, settings.rate_limit_burst)
        self._nodes = Limiter(settings.node_rate_limit_per_s, settings.node_rate_limit_burst)
        self._peers = Limiter(settings.rate_limit_per_s, settings.rate_limit_burst)

    async def authenticate(self, endpoint: AnyEndpoint, exchange: Exchange, path: Path) -> Admission:
        """Known callers are rate-limited by identity, unknown ones by address."""
        if endpoint.audience == "public":
            self._limit(self._peers, exchange.peer)
            return _ANONYMOUS
        try:
            admission = await self.identify(endpoint, exchange, path)
        except errors.ApiError:
            self._limit(self._peers, exchange.peer)
            raise
        caller = admission.caller
        self._limit(self._nodes if caller.actor_type == "node" else self._callers, caller.actor_id)
        return admission

    async def identify(self, endpoint: AnyEndpoint, exchange: Exchange, path: Path) -> Admission:
        """Return the owner of the token, without counting the request."""
        scheme, _, token = exchange.header(b"authorization").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise errors.TokenMissing
        project_id = path.project_id if isinstance(path, ProjectPath) else ""
        org_id = path.org_id if isinstance(path, OrgPath) else ""
        admission = await self._admissions.find(token, exchange.now, project_id=project_id, org_id=org_id)
        if (admission.caller.actor_type == "node") != (endpoint.audience == "node"):
            raise errors.TokenInvalid("This token is for another kind of caller.")
        return admission

    def decide(self, endpoint: AnyEndpoint, exchange: Exchange, path: Path, admission: Admission) -> Verdict:
        if not endpoint.permission:
            return "allowed"
        named = exchange.header(b"x-project-id")
        if named and isinstance(path, ProjectPath):
            name = admission.project.name if admission.project else ""
            if named not in (path.project_id, name):
                text = "X-Project-ID names another project than the path."
                raise errors.InvalidRequest(text, details={"field": "X-Project-ID"})
        return admission.decide(endpoint.permission)

    async def refuse(self, endpoint: AnyEndpoint, origin: Origin, admission: Admission, verdict: Verdict) -> NoReturn:
        self._metrics.denials.inc()
        await self._site.database.write(
            lambda tx: audit.denial(tx, endpoint, origin, admission.project, admission.org_id)
        )
        if verdict == "denied":
            details = {"permission": endpoint.permission}
            raise errors.PermissionDenied(f"This needs {endpoint.permission}.", details=details)
        raise errors.NotFound

    def _limit(self, limiter: Limiter, caller: str) -> None:
        wait_s = limiter.take(caller)
        if wait_s:
            self._metrics.rate_limited.inc()
            raise errors.RateLimited(details={"retry_after_s": round(wait_s, 3)})
