"""Build the web application from the endpoint table: authenticate, authorise, decode, run, answer.

A domain's handler gets a `Call`; what it returns is encoded, what it raises becomes a problem document. A route whose
endpoint has no handler, or a handler without an endpoint, stops the server from starting.
"""

import dataclasses
import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import structlog
from gpuaas_contract import errors, registry
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.identity import Project
from gpuaas_contract.wire import NoBody
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpuaas_platform.call import Call, Caller, Origin, Routes, Site
from gpuaas_platform.edge import idempotency, problem
from gpuaas_platform.identity import rules as identity_rules
from gpuaas_platform.identity import service as identity
from gpuaas_platform.identity import store as identity_store
from gpuaas_platform.kit import db, ids
from gpuaas_platform.record import service as record

log = structlog.get_logger()

AnyEndpoint = Endpoint[Any, Any]
Run = Callable[[Call, bytes], Awaitable[bytes]]

_BODY_MAX_BYTES = 1_048_576
_ANONYMOUS = Caller("anonymous", "")


def application(site: Site, domains: Sequence[Routes]) -> Starlette:
    health = Route("/livez", lambda _: Response("ok\n"), methods=["GET"])
    ready = Route("/readyz", _readiness(site), methods=["GET"])
    routes = [_route(site, endpoint, domains) for endpoint in registry.ENDPOINTS]
    return Starlette(
        routes=[health, ready, *routes], exception_handlers={HTTPException: _http_exception, Exception: _unexpected}
    )


def _route(site: Site, endpoint: AnyEndpoint, domains: Sequence[Routes]) -> Route:
    run = _runner(endpoint, domains)

    async def serve(request: Request) -> Response:
        started = time.perf_counter()
        call = _call(site, endpoint, request)
        try:
            response = await _answer(site, endpoint, run, request, call)
        except errors.ApiError as error:
            response = problem.response(error, call.origin.correlation_id)
        response.headers["X-Correlation-ID"] = call.origin.correlation_id
        log.info(
            "request",
            route=endpoint.name,
            status=response.status_code,
            correlation_id=call.origin.correlation_id,
            project_id=call.params.get("project_id", ""),
            ms=round((time.perf_counter() - started) * 1000, 2),
        )
        return response

    return Route(endpoint.path, serve, methods=[endpoint.method])


def _runner(endpoint: AnyEndpoint, domains: Sequence[Routes]) -> Run:
    found: list[Run] = []
    for domain in domains:
        if endpoint.name in domain.reads:
            found.append(_run_read(domain.reads[endpoint.name]))
        if endpoint.name in domain.writes:
            found.append(_run_write(endpoint, domain.writes[endpoint.name]))
        if endpoint.name in domain.flows:
            found.append(_run_flow(endpoint, domain.flows[endpoint.name]))
    if len(found) != 1:
        raise LookupError(f"{endpoint.name} has {len(found)} handlers; it must have one")
    return found[0]


async def _answer(site: Site, endpoint: AnyEndpoint, run: Run, request: Request, call: Call) -> Response:
    caller = await _authenticate(site, endpoint, request, call)
    call = dataclasses.replace(call, origin=dataclasses.replace(call.origin, caller=caller))
    call = await _authorise(site, endpoint, request, call)
    call = dataclasses.replace(call, query=_query(endpoint, request))
    body = await _body(request)
    structlog.contextvars.bind_contextvars(correlation_id=call.origin.correlation_id)
    content = await run(call, body)
    return Response(content, status_code=endpoint.status, media_type="application/json")


def _call(site: Site, endpoint: AnyEndpoint, request: Request) -> Call:
    given = request.headers.get("X-Correlation-ID", "")
    sound = 0 < len(given) <= 128 and given.isascii() and given.isprintable()
    origin = Origin(_ANONYMOUS, given if sound else ids.new("cor"), site.clock())
    options = _Options(
        dry_run=endpoint.mutates and request.query_params.get("dry_run") == "true",
        key=request.headers.get("X-Idempotency-Key") or request.headers.get("Idempotency-Key") or "",
        path=request.url.path,
    )
    peer = request.client.host if request.client else ""
    return _EdgeCall(site, origin, request.path_params, None, peer, None, request.is_disconnected, options)


async def _authenticate(site: Site, endpoint: AnyEndpoint, request: Request, call: Call) -> Caller:
    if endpoint.audience == "public":
        return _ANONYMOUS
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise errors.TokenMissing
    caller = await identity.authenticate(site.database.reader, token, call.now)
    if (caller.actor_type == "node") != (endpoint.audience == "node"):
        raise errors.TokenInvalid("This token is for another kind of caller.")
    return caller


async def _authorise(site: Site, endpoint: AnyEndpoint, request: Request, call: Call) -> Call:
    """What a caller may not see answers exactly as what does not exist."""
    if not endpoint.permission:
        return call
    scopes, project = ["platform"], None
    reader = site.database.reader
    if "project_id" in call.params:
        project = await identity_store.PROJECTS.get(reader, call.params["project_id"])
        scopes += [project.org_id, project.project_id] if project else []
        _check_project_header(request, call)
    elif "org_id" in call.params:
        scopes.append(call.params["org_id"])
    verdict = identity_rules.decide(call.caller.bindings, endpoint.permission, scopes)
    exists = await _scope_exists(reader, call, project)
    if verdict == "allowed" and exists:
        return dataclasses.replace(call, project=project)
    await site.database.write(lambda tx: _audit_denial(tx, endpoint, call, project))
    if verdict == "denied" and exists:
        raise errors.PermissionDenied(f"This needs {endpoint.permission}.", details={"permission": endpoint.permission})
    raise errors.NotFound


async def _scope_exists(reader: db.Reader, call: Call, project: Project | None) -> bool:
    if "project_id" in call.params:
        return project is not None
    if "org_id" in call.params:
        return await identity_store.ORGS.get(reader, call.params["org_id"]) is not None
    return True


def _check_project_header(request: Request, call: Call) -> None:
    named = request.headers.get("X-Project-ID")
    if named is not None and named != call.params["project_id"]:
        raise errors.InvalidRequest("X-Project-ID names another project than the path.")


async def _audit_denial(tx: db.Tx, endpoint: AnyEndpoint, call: Call, project: Project | None) -> None:
    await record.audit(
        tx,
        call.origin,
        "authz.deny",
        endpoint.name,
        result="failure",
        org_id=project.org_id if project else "",
        project_id=project.project_id if project else "",
        details={"permission": endpoint.permission},
    )


def _query(endpoint: AnyEndpoint, request: Request) -> Any:
    values = {name: value for name, value in request.query_params.items() if name != "dry_run" or not endpoint.mutates}
    try:
        return msgspec.convert(values, endpoint.query, strict=False)
    except msgspec.ValidationError as error:
        raise errors.ValidationFailed(f"In the query: {error}") from error


async def _body(request: Request) -> bytes:
    if int(request.headers.get("Content-Length") or 0) > _BODY_MAX_BYTES:
        raise errors.BodyTooLarge
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _BODY_MAX_BYTES:
            raise errors.BodyTooLarge
    return bytes(body)


def _run_read(handler: Callable[[Call, db.Reader], Awaitable[Any]]) -> Run:
    async def run(call: Call, _: bytes) -> bytes:
        return msgspec.json.encode(await handler(call, call.site.database.reader))

    return run


def _run_flow(endpoint: AnyEndpoint, handler: Callable[[Call, Any], Awaitable[Any]]) -> Run:
    decode = _decoder(endpoint)

    async def run(call: Call, raw: bytes) -> bytes:
        return msgspec.json.encode(await handler(call, decode(raw)))

    return run


def _run_write(endpoint: AnyEndpoint, handler: Callable[[Call, db.Tx, Any], Awaitable[Any]]) -> Run:
    """One transaction: replay or change, audit row, and the answer kept for replays."""
    decode = _decoder(endpoint)

    async def run(call: Call, raw: bytes) -> bytes:
        assert isinstance(call, _EdgeCall)
        options = call.options
        if endpoint.repeat == "key" and not options.key:
            raise errors.IdempotencyKeyMissing
        body = decode(raw)
        digest = hashlib.sha256(options.path.encode() + b"\n" + raw).hexdigest()

        async def use_case(tx: db.Tx) -> bytes:
            if endpoint.repeat == "key":
                replay = await idempotency.replay(tx, call.caller, options.path, options.key, digest)
                if replay is not None:
                    return replay
            content = msgspec.json.encode(await handler(call, tx, body))
            if endpoint.audited:
                await _audit(tx, endpoint, call)
            if endpoint.repeat == "key":
                kept = b"" if endpoint.secret_answer else content
                await idempotency.remember(tx, call, options.path, options.key, digest, kept)
            return content

        return await call.site.database.write(use_case, keep=not options.dry_run)

    return run


async def _audit(tx: db.Tx, endpoint: AnyEndpoint, call: Call) -> None:
    project = call.project
    target = "/".join(value for name, value in call.params.items() if name != "project_id") or endpoint.path
    await record.audit(
        tx,
        call.origin,
        endpoint.name,
        target,
        org_id=project.org_id if project else call.params.get("org_id", ""),
        project_id=project.project_id if project else "",
    )


def _decoder(endpoint: AnyEndpoint) -> Callable[[bytes], Any]:
    if endpoint.request is NoBody:
        return lambda raw: NoBody()
    decoder = msgspec.json.Decoder(endpoint.request)

    def decode(raw: bytes) -> Any:
        try:
            return decoder.decode(raw)
        except msgspec.ValidationError as error:
            raise errors.ValidationFailed(str(error)) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise errors.InvalidRequest(f"The body is not JSON: {error}") from error

    return decode


@dataclasses.dataclass(frozen=True)
class _Options:
    dry_run: bool
    key: str
    path: str


@dataclasses.dataclass(frozen=True)
class _EdgeCall(Call):
    options: _Options = _Options(False, "", "")


def _readiness(site: Site) -> Callable[[Request], Awaitable[Response]]:
    async def ready(_: Request) -> Response:
        await site.database.reader.one("SELECT number FROM migrations LIMIT 1")
        return Response("ok\n")

    return ready


async def _http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = {404: errors.NotFound, 405: errors.MethodNotAllowed}.get(error.status_code, errors.InvalidRequest)
    return problem.response(kind(), ids.new("cor"), dict(error.headers or {}))


async def _unexpected(request: Request, error: Exception) -> Response:
    correlation_id = request.headers.get("X-Correlation-ID", "") or ids.new("cor")
    log.error("unexpected failure", correlation_id=correlation_id, path=request.url.path, exc_info=error)
    return problem.response(errors.ApiError(), correlation_id)
