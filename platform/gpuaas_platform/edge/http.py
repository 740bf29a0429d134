"""The web application, built from the endpoint table: match, authenticate, authorise, decode, run, respond, report.

A domain's handler gets a `Call`. Its return value is encoded; an error that it raises becomes a problem document.
`authorise` decides who may call, `decode` reads the request, `run` runs the handler, `telemetry` logs and counts it.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec
import structlog
from gpuaas_contract import errors, registry
from gpuaas_contract.correlations import RefusedRequest
from gpuaas_contract.endpoint import AnyEndpoint
from gpuaas_contract.paths import OrgPath, Path, ProjectPath
from gpuaas_contract.wire import Query

from gpuaas_platform.call import Call, Caller, Handler, Origin, Routes, Site, Source
from gpuaas_platform.edge import audit, decode, health, idempotency, router, run, streams, telemetry
from gpuaas_platform.edge.authorise import Authoriser
from gpuaas_platform.edge.exchange import Exchange, Message, Receive, Send
from gpuaas_platform.edge.response import Response, problem
from gpuaas_platform.identity.admission import Admission
from gpuaas_platform.kit import clock, db, logs, peers, recent_refusals, tables

log = structlog.get_logger()

_NO_ROUTE = "none"


@dataclasses.dataclass(frozen=True, slots=True)
class _Route:
    endpoint: AnyEndpoint
    mutates: bool
    waits: bool
    """The handler may wait before it returns, so the caller's permission is checked again before the response."""
    run: run.Run
    read_query: Callable[[bytes], tuple[Query, bool]]
    observe: Callable[[int, float], None]


def application(
    site: Site, domains: Sequence[Routes], endpoints: Sequence[AnyEndpoint] = registry.ENDPOINTS
) -> "Application":
    return Application(site, domains, endpoints)


class Application:
    """The ASGI application. The site is closed by `server`."""

    def __init__(self, site: Site, domains: Sequence[Routes], endpoints: Sequence[AnyEndpoint]) -> None:
        self._site = site
        self.metrics = telemetry.Metrics(site)
        site.database.on_group = self.metrics.group_committed
        self._authoriser = Authoriser(site, self.metrics)
        trusted = site.settings.trusted_proxies
        self._proxies = peers.Proxies(trusted) if trusted else None
        self._in_flight = idempotency.InFlight()
        self._probes = {path.encode(): probe for path, probe in health.probes(site, self.metrics).items()}
        self._quiet = frozenset(self._probes)
        """Probe paths. Load balancers call them every second, so only failures are logged."""
        self._guards = streams.Guards(site.settings.stream_recheck_s, site.settings.streams_per_caller_max)
        self._routes: router.Tree[_Route] = router.Tree()
        handlers = run.handlers(endpoints, domains)
        for handler in handlers.values():
            endpoint = handler.endpoint
            self._routes.add(endpoint.method, endpoint.path, self._route(handler, handlers), endpoint.params)
        self._observe_no_route = self.metrics.request_observer(_NO_ROUTE, _NO_ROUTE)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, self._site.clock(), self._admit_again)
        if self._proxies is not None:
            header = self._site.settings.forwarded_header
            exchange.peer = self._proxies.peer(exchange.peer, header, exchange.header_lines(header.encode()))
        del scope  # a long poll waits in the next line; it uses the exchange
        stream = await self._exchange(exchange, send)
        if stream is None:
            return
        guard, source = stream
        try:
            await streams.pump(source, receive, send)
        finally:
            self._guards.leave(guard, source)
            source.close()

    async def _exchange(self, exchange: Exchange, send: Send) -> tuple[streams.Guard, Source] | None:
        """Serve one request. For a stream, return only its guard and source: thousands of streams can be open."""
        self.metrics.in_flight += 1
        observe = self._observe_no_route
        try:
            observe, response = await self._respond(exchange)
            if response.source is not None and exchange.method == "HEAD":
                response.source.close()
                response = msgspec.structs.replace(response, source=None)
            if response.source is None and not exchange.send_whole(response):
                await exchange.send(send, response)
        finally:
            self.metrics.in_flight -= 1
        self._report(exchange, response, observe)
        if response.source is None:
            return None
        return await self._open(exchange, response, response.source, send)

    def _route(self, handler: Handler, known: Mapping[str, Handler]) -> _Route:
        endpoint, waits = handler.endpoint, handler.kind != "write" or handler.settle is not None
        observe = self.metrics.request_observer(endpoint.name, endpoint.method)
        runner = run.runner(handler, known, self.metrics, self._in_flight)
        return _Route(endpoint, endpoint.mutates, waits, runner, decode.query_reader(endpoint), observe)

    async def _respond(self, exchange: Exchange) -> tuple[Callable[[int, float], None], Response]:
        observe = self._observe_no_route
        try:
            exchange.refuse_repeated_headers()
            probe = self._probes.get(exchange.path)
            if probe is not None:
                exchange.route = exchange.path.decode()
                if exchange.method not in ("GET", "HEAD"):
                    raise errors.MethodNotAllowed(details={"allow": ["GET", "HEAD"]})
                if exchange.route == health.METRICS.path:
                    await self._check_reads_metrics(exchange)
                return observe, await probe()
            match = self._routes.match(exchange.method, exchange.path)
            observe, exchange.route = match.target.observe, match.target.endpoint.name
            return observe, await self._serve(match.target, match.path, exchange)
        except errors.ApiError as error:
            self._remember(exchange, error)
            return observe, problem(error, exchange.correlation_id)
        except tables.PageTokenInvalid:
            refused = errors.ValidationFailed("`page_token` is not from this list.", details={"field": "page_token"})
            return observe, problem(refused, exchange.correlation_id)
        except db.Unavailable as error:
            log.error("store.unavailable", correlation_id=exchange.correlation_id, error=str(error))
            return observe, problem(_unavailable(error), exchange.correlation_id)
        except Exception:
            log.exception("request.failed", correlation_id=exchange.correlation_id, route=exchange.route)
            return observe, problem(errors.ApiError(), exchange.correlation_id)

    async def _check_reads_metrics(self, exchange: Exchange) -> None:
        """Raise if the caller may not read the metrics, which reveal how much the platform is used and what fails."""
        if self._site.settings.metrics_open or exchange.is_local():
            return
        admission = await self._authoriser.authenticate(health.METRICS, exchange, Path())
        exchange.caller = admission.caller
        await self._authorise(health.METRICS, exchange, Path(), admission)

    async def _serve(self, route: _Route, path: Path, exchange: Exchange) -> Response:
        endpoint = route.endpoint
        admission = await self._authoriser.authenticate(endpoint, exchange, path)
        path = _with_ids(path, admission)
        project = admission.project
        exchange.caller, exchange.org_id = admission.caller, admission.org_id
        exchange.project_id = project.project_id if project else ""
        origin = await self._authorise(endpoint, exchange, path, admission)
        logs.CONTEXT.set(exchange.log_fields)
        query, dry_run = route.read_query(exchange.query_string)
        is_gone, admit_again, header = exchange.is_gone, exchange.admit_again, exchange.header
        call = Call(self._site, origin, path, query, project, is_gone, admit_again, header, dry_run)
        running = route.run(call, await self._asked(endpoint, exchange) if route.mutates else run.NOTHING_ASKED)
        try:
            response = await running
        except errors.PolicyDenied as error:
            await audit.policy_denial(endpoint, call, error.details)
            raise
        if route.waits and time.perf_counter() - exchange.admitted_s > self._site.settings.stream_recheck_s:
            # The handler waited. In that time the caller may have lost the permission to see the answer.
            await exchange.admit_again()
        if response.source is not None:
            self._refuse_too_many(exchange, response.source)
        return response

    def _refuse_too_many(self, exchange: Exchange, source: Source) -> None:
        try:
            self._guards.refuse_too_many(exchange.caller.actor_id)
        except errors.TooManyStreams:
            source.close()
            raise

    def _remember(self, exchange: Exchange, error: errors.ApiError) -> None:
        if exchange.project_id and not exchange.is_stranger:
            caller, kept = exchange.caller, recent_refusals.MESSAGE_MAX
            request = RefusedRequest(
                occurred_at=exchange.now,
                route=exchange.route,
                actor_type=caller.actor_type,
                actor_id=caller.actor_id,
                actor_name=caller.name,
                status=error.status,
                code=error.code,
                message=error.message[:kept],
                fix=error.fix[:kept],
                trace_id=exchange.trace.trace_id,
            )
            self._site.refused.add(exchange.project_id, exchange.correlation_id, request)

    async def _asked(self, endpoint: AnyEndpoint, exchange: Exchange) -> run.Asked:
        path = exchange.path.decode("latin-1")
        if endpoint.takes_bytes:
            return run.Asked(b"", path, exchange.chunks(self._site.settings.artifact_bytes_max))
        return run.Asked(await exchange.body(), path)

    async def _open(
        self, exchange: Exchange, response: Response, source: Source, send: Send
    ) -> tuple[streams.Guard, Source]:
        """Send the start of a streamed response. While it is sent, a guard checks regularly whether the caller may
        still read it."""
        key = (exchange.header(b"authorization"), exchange.path, exchange.project_id)
        # Joined before the first wait, so that streams that start at the same time are counted too.
        guard = self._guards.join(exchange.caller.actor_id, key, exchange.admit_again, source)
        try:
            await send(exchange.response_start(response))
            if response.media_type == streams.MEDIA_TYPE:
                await send(streams.RETRY)
        except BaseException:
            self._guards.leave(guard, source)
            source.close()
            raise
        logs.CONTEXT.set(functools.partial(dict, correlation_id=exchange.correlation_id))
        return guard, source

    async def _admit_again(self, exchange: Exchange) -> Caller:
        match = self._routes.match(exchange.method, exchange.path)
        endpoint, exchange.now = match.target.endpoint, self._site.clock()
        exchange.admitted_s = time.perf_counter()
        if endpoint.audience == "public":
            return exchange.caller
        admission = await self._authoriser.identify(endpoint, exchange, match.path)
        if admission.target_exists and not _is_same_target(exchange, admission):
            exchange.is_stranger = True
            raise errors.NotFound
        return (await self._authorise(endpoint, exchange, _with_ids(match.path, admission), admission)).caller

    async def _authorise(self, endpoint: AnyEndpoint, exchange: Exchange, path: Path, admission: Admission) -> Origin:
        """Return the origin of the request. If the caller may not make it, write an audit row and raise."""
        trace, now = exchange.trace.header, exchange.now
        origin = Origin(admission.caller, exchange.correlation_id, now, exchange.peer, endpoint.name, trace)
        verdict = self._authoriser.decide(endpoint, exchange, path, admission)
        exchange.is_stranger = verdict == "hidden"
        if verdict != "allowed":
            await self._authoriser.refuse(endpoint, origin, admission, verdict)
        return origin

    def _report(self, exchange: Exchange, response: Response, observe: Callable[[int, float], None]) -> None:
        duration_s = time.perf_counter() - exchange.started_s
        observe(response.status, duration_s)
        line = telemetry.RequestLine(
            clock.utc_now(),
            exchange.route or _NO_ROUTE,
            exchange.method,
            response.status,
            response.code,
            exchange.correlation_id,
            exchange.trace.trace_id,
            exchange.org_id,
            exchange.project_id,
            exchange.actor(),
            int(duration_s * 100_000) / 100,  # faster than `round`
        )
        if not (exchange.path in self._quiet and response.status == 200):
            logs.info(line)
        if self._site.spans is not None:
            self._site.spans.export(telemetry.span_of(line, exchange.trace))


_REFUSED: Mapping[db.Reason, str] = {
    "disk_full": "The disk of the store is full.",
    "disk_failed": "The disk of the store fails.",
    "read_only": "The store is read-only.",
}


def _unavailable(error: db.Unavailable) -> errors.Unavailable:
    """Return the error for callers: the reason, but not the text of the engine, which is in the log."""
    if not error.reason:
        return errors.Unavailable("The store does not answer.")
    fix = "The operator of the platform repairs the disk or frees space; then send the request again."
    return errors.Unavailable(_REFUSED[error.reason], details={"reason": error.reason}, fix=fix)


def _is_same_target(exchange: Exchange, admission: Admission) -> bool:
    """Return whether the path still names the project or organisation that the request was admitted to. After a rename,
    a name can belong to another one."""
    project_id = admission.project.project_id if admission.project else ""
    return (project_id, admission.org_id) == (exchange.project_id, exchange.org_id)


def _with_ids(path: Path, admission: Admission) -> Path:
    """Return the path with the project's or organisation's name replaced by its id."""
    if isinstance(path, ProjectPath):
        project = admission.project
        if project is None or path.project_id == project.project_id:
            return path
        return msgspec.structs.replace(path, project_id=project.project_id)
    if isinstance(path, OrgPath) and admission.org_id not in ("", path.org_id):
        return msgspec.structs.replace(path, org_id=admission.org_id)
    return path
