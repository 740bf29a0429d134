"""Identify the caller of a request and decide whether they may make it, in the same way for every route.

A resource that the caller may not see gets the response "not found". Rate limits apply first: each caller has a bucket
that refills at a fixed rate. Buckets are kept in this process only: each platform process allows the full rate.
"""

import time
from collections.abc import Callable
from typing import NoReturn

from gpuaas_contract import errors
from gpuaas_contract.endpoint import AnyEndpoint
from gpuaas_contract.paths import AppPath, OrgPath, Path, ProjectPath

from gpuaas_platform.call import Origin, Site
from gpuaas_platform.edge import audit
from gpuaas_platform.edge.exchange import ANONYMOUS, Exchange
from gpuaas_platform.edge.telemetry import Metrics
from gpuaas_platform.identity.admission import Admission, Admissions
from gpuaas_platform.identity.rules import Verdict
from gpuaas_platform.kit import peers

CALLERS_MAX = 20_000
_ANONYMOUS = Admission(ANONYMOUS)


class Limiter:
    """Limits the request rate per caller. A bucket is the time when it is full again; a full bucket needs no entry."""

    def __init__(self, per_s: float, burst: int, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._interval_s = 1.0 / per_s if per_s > 0 else 0.0
        self._span_s = self._interval_s * max(1, burst)
        self._monotonic_s = monotonic_s
        self._full_at: dict[str, float] = {}

    def take(self, caller: str) -> float:
        """Count a request. Return 0 if it is allowed, else the seconds until the next one is allowed."""
        if not self._interval_s:
            return 0.0
        now = self._monotonic_s()
        full_at = self._full_at.get(caller, now)
        full_at = (full_at if full_at > now else now) + self._interval_s
        wait_s = full_at - now - self._span_s
        if wait_s > 1e-9:
            return wait_s
        self._full_at[caller] = full_at
        if len(self._full_at) > CALLERS_MAX:
            self._forget(now)
        return 0.0

    def callers(self) -> int:
        """Return how many buckets are stored."""
        return len(self._full_at)

    def _forget(self, now: float) -> None:
        """Drop the full buckets and, if that is not enough, the fullest ones, so that memory is bounded."""
        kept = {caller: full_at for caller, full_at in self._full_at.items() if full_at > now}
        if len(kept) > CALLERS_MAX // 2:
            emptiest = sorted(kept.items(), key=lambda bucket: bucket[1], reverse=True)
            kept = dict(emptiest[: CALLERS_MAX // 2])
        self._full_at = kept


class Authoriser:
    def __init__(self, site: Site, metrics: Metrics) -> None:
        settings = site.settings
        self._site, self._metrics = site, metrics
        self._admissions = Admissions(site.database)
        self._callers = Limiter(settings.rate_limit_per_s, settings.rate_limit_burst)
        self._nodes = Limiter(settings.node_rate_limit_per_s, settings.node_rate_limit_burst)
        self._peers = Limiter(settings.rate_limit_per_s, settings.rate_limit_burst)

    async def authenticate(self, endpoint: AnyEndpoint, exchange: Exchange, path: Path) -> Admission:
        """Identify the caller and count the request for the rate limit: by identity if the token is valid, else by
        address."""
        if endpoint.audience == "public":
            self._limit(self._peers, peers.network_of(exchange.peer))
            return _ANONYMOUS
        try:
            admission = await self.identify(endpoint, exchange, path)
        except errors.ApiError:
            self._limit(self._peers, peers.network_of(exchange.peer))
            raise
        caller = admission.caller
        self._limit(self._nodes if caller.actor_type == "node" else self._callers, caller.actor_id)
        return admission

    async def identify(self, endpoint: AnyEndpoint, exchange: Exchange, path: Path) -> Admission:
        """Return the token's owner and their permissions at the target, without counting the request."""
        scheme, _, token = exchange.header(b"authorization").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise errors.TokenMissing
        project_id = path.project_id if isinstance(path, ProjectPath) else ""
        org_id = path.org_id if isinstance(path, OrgPath) else ""
        app_slug = path.app_slug if isinstance(path, AppPath) else ""
        if endpoint.audience == "node":
            admission = await self._admissions.find_node(token, exchange.now)
        else:
            admission = await self._admissions.find(
                token, exchange.now, project_id=project_id, org_id=org_id, app_slug=app_slug
            )
        if (admission.caller.actor_type == "node") != (endpoint.audience == "node"):
            raise errors.TokenInvalid("This token is for another kind of caller.")
        return admission

    def decide(self, endpoint: AnyEndpoint, exchange: Exchange, path: Path, admission: Admission) -> Verdict:
        if not endpoint.permission:
            return "allowed"
        verdict = admission.decide(endpoint.permission)
        named = exchange.header(b"x-project-id")
        # For a hidden project, the header is not compared: the answer would show whether it names that project.
        if verdict != "hidden" and named and isinstance(path, ProjectPath):
            name = admission.project.name if admission.project else ""
            if named not in (path.project_id, name):
                text = "X-Project-ID names another project than the path."
                raise errors.InvalidRequest(text, details={"field": "X-Project-ID"})
        return verdict

    async def refuse(self, endpoint: AnyEndpoint, origin: Origin, admission: Admission, verdict: Verdict) -> NoReturn:
        self._metrics.denials.inc()
        await audit.denial(self._site, endpoint, origin, admission.project, admission.org_id)
        if verdict == "denied":
            details = {"permission": endpoint.permission}
            raise errors.PermissionDenied(f"This needs {endpoint.permission}.", details=details)
        raise errors.NotFound

    def _limit(self, limiter: Limiter, caller: str) -> None:
        wait_s = limiter.take(caller)
        if wait_s:
            self._metrics.rate_limited.inc()
            raise errors.RateLimited(details={"retry_after_s": round(wait_s, 3)})
