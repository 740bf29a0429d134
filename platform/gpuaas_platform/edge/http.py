"""The web application, built from the endpoint table: match, authenticate, authorise, decode, run, answer, report.

A domain's handler gets a `Call`; what it returns is encoded, what it raises becomes a problem document. `authority`
says who may, `decoding` reads, `running` runs, `telemetry` tells the operators.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import structlog
from gpuaas_contract import errors, registry
from gpuaas_contract.endpoint import Endpoint

from gpuaas_platform.call import Call, Origin, Routes, Site, Source
from gpuaas_platform.edge import decode as decoding
from gpuaas_platform.edge import health, problem, streams, telemetry, uploads
from gpuaas_platform.edge import router as routing
from gpuaas_platform.edge import run as running
from gpuaas_platform.edge.authority import Authority
from gpuaas_platform.edge.exchange import Answer, Exchange, Message, Receive, Send
from gpuaas_platform.identity.admission import Admission
from gpuaas_platform.kit import clock, db, logs, tables

log = structlog.get_logger()

AnyEndpoint = Endpoint[Any, Any]
_NO_ROUTE = "none"


@dataclasses.dataclass(frozen=True, slots=True)
class _Route:
    endpoint: AnyEndpoint
    mutates: bool
    run: running.Run
    read_query: Callable[[bytes], tuple[Any, bool]]
    observe: Callable[[int, float], None]


def application(
    site: Site, domains: Sequence[Routes], endpoints: Sequence[AnyEndpoint] = registry.ENDPOINTS
) -> "Application":
    return Application(site, domains, endpoints)


class Application:
    """One ASGI application. `close` ends what it opened beside the site."""

    def __init__(self, site: Site, domains: Sequence[Routes], endpoints: Sequence[AnyEndpoint]) -> None:
        self._site = site
        self.metrics = telemetry.Metrics(site)
        site.database.on_group = self.metrics.group_committed
        self._spans = telemetry.open_spans(site)
        self._authority = Authority(site, self.metrics)
        self._probes = {path.encode(): probe for path, probe in health.probes(site, self.metrics).items()}
        self._quiet = frozenset(self._probes)
        """Probes come every second from everywhere; only their failures are worth a line."""
        self._guards = streams.Guards(site.settings.stream_recheck_s)
        self._routes: routing.Tree[_Route] = routing.Tree()
        for endpoint in endpoints:
            self._routes.add(endpoint.method, endpoint.path, self._route(endpoint, endpoints, domains))
        self._observe_no_route = self.metrics.request_observer(_NO_ROUTE, _NO_ROUTE)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        opened = await self._exchange(Exchange(scope, receive, self._site.clock()), send)
        if opened is None:
            return
        guard, source = opened
        try:
            await streams.pump(source, receive, send)
        finally:
            self._guards.leave(guard, source)
            source.close()

    async def _exchange(self, exchange: Exchange, send: Send) -> tuple[streams.Guard, Source] | None:
        """What belongs to the request ends here. Of a stream, of which there can be thousands, little goes on."""
        self.metrics.in_flight += 1
        observe = self._observe_no_route
        try:
            observe, answer = await self._answer(exchange)
            if answer.source is not None and exchange.method == "HEAD":
                answer.source.close()
                answer = msgspec.structs.replace(answer, source=None)
            if answer.source is None and not exchange.send_whole(answer):
                await exchange.send(send, answer)
        finally:
            self.metrics.in_flight -= 1
        self._report(exchange, answer, observe)
        if answer.source is None:
            return None
        return await self._open(exchange, answer, answer.source, send)

    def close(self) -> None:
        if self._spans is not None:
            self._spans.close()

    def _route(self, endpoint: AnyEndpoint, endpoints: Sequence[AnyEndpoint], domains: Sequence[Routes]) -> _Route:
        return _Route(
            endpoint,
            endpoint.mutates,
            running.runner(endpoint, endpoints, domains, self.metrics),
            decoding.query_reader(endpoint),
            self.metrics.request_observer(endpoint.name, endpoint.method),
        )

    async def _answer(self, exchange: Exchange) -> tuple[Callable[[int, float], None], Answer]:
        observe = self._observe_no_route
        try:
            probe = self._probes.get(exchange.path)
            if probe is not None:
                exchange.route = exchange.path.decode()
                return observe, await self._probe(probe, exchange)
            match = self._routes.match(exchange.method, exchange.path)
            observe, exchange.route = match.target.observe, match.target.endpoint.name
            return observe, await self._serve(match.target, match.params, exchange)
        except errors.ApiError as error:
            return observe, problem.answer(error, exchange.correlation_id)
        except tables.PageTokenInvalid:
            refused = errors.ValidationFailed("`page_token` is not one of this list.", details={"field": "page_token"})
            return observe, problem.answer(refused, exchange.correlation_id)
        except db.Unavailable as error:
            log.error("the store does not answer", correlation_id=exchange.correlation_id, why=str(error))
            return observe, problem.answer(errors.Unavailable("The store does not answer."), exchange.correlation_id)
        except Exception:
            log.exception("unexpected failure", correlation_id=exchange.correlation_id, route=exchange.route)
            return observe, problem.answer(errors.ApiError(), exchange.correlation_id)

    async def _probe(self, probe: health.Probe, exchange: Exchange) -> Answer:
        if exchange.method not in ("GET", "HEAD"):
            raise errors.MethodNotAllowed(details={"allow": ["GET", "HEAD"]})
        return await probe()

    async def _serve(self, route: _Route, params: Mapping[str, str], exchange: Exchange) -> Answer:
        endpoint = route.endpoint
        admitted = await self._authority.authenticate(endpoint, exchange, params)
        params = _with_ids(params, admitted)
        caller, project = admitted.caller, admitted.project
        origin = Origin(caller, exchange.correlation_id, exchange.now, exchange.peer, endpoint.name)
        exchange.caller = caller
        exchange.org_id = admitted.org_id
        exchange.project_id = project.project_id if project else ""
        verdict = self._authority.decide(endpoint, exchange, params, admitted)
        if verdict != "allowed":
            await self._authority.refuse(endpoint, origin, admitted, verdict)
        logs.CONTEXT.set(exchange.log_fields)
        query, dry_run = route.read_query(exchange.query_string)
        asked = running.NOTHING_ASKED
        if route.mutates:
            asked = await self._asked(endpoint, exchange, dry_run=dry_run)
        call = Call(
            self._site,
            origin,
            params,
            query,
            exchange.peer,
            project,
            exchange.is_gone,
            exchange.header,
            dry_run=dry_run,
        )
        answer = await route.run(call, asked)
        if not route.mutates and time.perf_counter() - exchange.started_s > self._site.settings.stream_recheck_s:
            # It was waited for. Whoever lost the right to see it meanwhile does not.
            await self._admit_again(exchange)
        return answer

    async def _asked(self, endpoint: AnyEndpoint, exchange: Exchange, *, dry_run: bool) -> running.Asked:
        path = exchange.path.decode("latin-1")
        if endpoint.takes_bytes:
            return running.Asked(b"", path, dry_run, uploads.chunks(exchange, self._site.settings.artifact_bytes_max))
        return running.Asked(await exchange.body(), path, dry_run)

    async def _open(
        self, exchange: Exchange, answer: Answer, source: Source, send: Send
    ) -> tuple[streams.Guard, Source]:
        """From here the stream belongs to a guard, which asks again and again whether this caller may see it."""
        try:
            await send(exchange.response_start(answer))
            if answer.media_type == streams.MEDIA_TYPE:
                await send(streams.RETRY)
        except BaseException:
            source.close()
            raise

        async def check() -> None:
            await self._admit_again(exchange)

        logs.CONTEXT.set(functools.partial(dict, correlation_id=exchange.correlation_id))
        return self._guards.join((exchange.header(b"authorization"), exchange.path), check, source), source

    async def _admit_again(self, exchange: Exchange) -> None:
        match = self._routes.match(exchange.method, exchange.path)
        endpoint, exchange.now = match.target.endpoint, self._site.clock()
        if endpoint.audience == "public":
            return
        admitted = await self._authority.identify(endpoint, exchange, match.params)
        origin = Origin(admitted.caller, exchange.correlation_id, exchange.now, exchange.peer, endpoint.name)
        verdict = self._authority.decide(endpoint, exchange, _with_ids(match.params, admitted), admitted)
        if verdict != "allowed":
            await self._authority.refuse(endpoint, origin, admitted, verdict)

    def _report(self, exchange: Exchange, answer: Answer, observe: Callable[[int, float], None]) -> None:
        duration_s = time.perf_counter() - exchange.started_s
        observe(answer.status, duration_s)
        caller = exchange.caller
        line = telemetry.RequestLine(
            clock.utc_now(),
            exchange.route or _NO_ROUTE,
            exchange.method,
            answer.status,
            answer.code,
            exchange.correlation_id,
            exchange.trace.trace_id,
            exchange.org_id,
            exchange.project_id,
            f"{caller.actor_type}:{caller.actor_id}",
            round(duration_s * 1000, 2),
        )
        if not (exchange.path in self._quiet and answer.status == 200):
            logs.info(line)
        if self._spans is not None:
            self._spans.export(line, exchange.trace)


def _with_ids(params: Mapping[str, str], admitted: Admission) -> Mapping[str, str]:
    """The parameters of the path with ids where it names the project or the organisation by name."""
    if "project_id" in params:
        project = admitted.project
        if project is None or params["project_id"] == project.project_id:
            return params
        return {**params, "project_id": project.project_id}
    return {**params, "org_id": admitted.org_id} if "org_id" in params and admitted.org_id else params
