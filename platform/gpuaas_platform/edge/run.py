"""Run the handler of an endpoint for one call: a read, stream, flow or write. A write runs in one transaction with its
audit row and the answer stored for replays. `http` makes one runner per route at start. This module has one handler of
its own: the OpenAPI document, whose bytes and ETag are made once, at the first request."""

import asyncio
import collections
import dataclasses
import functools
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, cast

import msgspec
from gpuaas_contract import errors, openapi
from gpuaas_contract.documents import OPENAPI_GET
from gpuaas_contract.endpoint import AnyEndpoint
from gpuaas_contract.paths import ProjectPath

from gpuaas_platform.call import Call, Handler, Routes, Source, Step
from gpuaas_platform.edge import audit, decode, etag, idempotency, streams, telemetry
from gpuaas_platform.edge.response import Response
from gpuaas_platform.identity import orgs
from gpuaas_platform.kit import db


class Asked(NamedTuple):
    """The body and path of a mutation, as they arrived. The decoded parameters are in its `Call`."""

    raw: bytes
    path: str
    chunks: AsyncIterator[bytes] | None = None
    """For an upload: the raw body, which is not read yet. `raw` is empty."""


NOTHING_ASKED = Asked(b"", "")
Run = Callable[[Call, Asked], Awaitable[Response]]


class Document(msgspec.Struct, frozen=True):
    """An answer that is already encoded as JSON. Its revision is a digest of its content."""

    content: bytes
    revision: str


@functools.cache
def _openapi() -> Document:
    content = msgspec.json.encode(openapi.document(), order="deterministic")
    return Document(content, hashlib.sha256(content).hexdigest()[:16])


async def _read_openapi(_: db.Reader, __: Call) -> Document:
    # Building the document takes a noticeable part of a second, so a thread does it while other requests are served.
    return await asyncio.to_thread(_openapi)


def handlers(endpoints: Sequence[AnyEndpoint], domains: Sequence[Routes]) -> dict[str, Handler]:
    """Return the handlers by endpoint name. Raise at start if an endpoint has no handler or more than one."""
    bound = [
        Handler(OPENAPI_GET, "read", _read_openapi),
        *(handler for domain in domains for handler in domain.handlers),
    ]
    counts = collections.Counter(handler.endpoint.name for handler in bound)
    for endpoint in endpoints:
        if counts[endpoint.name] != 1:
            raise LookupError(f"{endpoint.name} has {counts[endpoint.name]} handlers; it must have one")
    by_name = {handler.endpoint.name: handler for handler in bound}
    return {endpoint.name: by_name[endpoint.name] for endpoint in endpoints}


def runner(
    handler: Handler, known: Mapping[str, Handler], metrics: telemetry.Metrics, in_flight: idempotency.InFlight
) -> Run:
    """Return the function that serves an endpoint. A guarded write needs the read of the same path, from `known`."""
    if handler.kind != "write":
        return {"read": _read, "flow": _flow, "stream": _stream}[handler.kind](handler)
    guard = _reader_of(handler.endpoint.path, known) if handler.endpoint.guarded else None
    write = _write(handler, guard, metrics, in_flight)
    return _settled(handler.endpoint, write, handler.settle) if handler.settle else write


def _read(handler: Handler) -> Run:
    use_case, respond = handler.run, _responder(handler.endpoint)

    async def run(call: Call, _: Asked) -> Response:
        return respond(await use_case(call.site.database.reader, call), call)

    return run


def _flow(handler: Handler) -> Run:
    """Return the runner of a flow. A flow opens its own transactions; in a dry run, each is rolled back."""
    use_case = handler.run
    read_body, respond = decode.body_reader(handler.endpoint), _responder(handler.endpoint)

    async def run(call: Call, asked: Asked) -> Response:
        if call.dry_run:
            site = dataclasses.replace(call.site, database=_NothingKept(call.site.database))
            call = msgspec.structs.replace(call, site=site)
        running = use_case(call, read_body(asked.raw))
        del asked  # thousands of long polls wait here; the body is not needed any more
        return respond(await running, call)

    return run


def _stream(handler: Handler) -> Run:
    endpoint, use_case = handler.endpoint, cast("Callable[[Call], Awaitable[Source]]", handler.run)
    charset = "; charset=utf-8" if endpoint.media_type.startswith("text/") else ""
    media_type = streams.MEDIA_TYPE if endpoint.streams else f"{endpoint.media_type}{charset}".encode()

    async def run(call: Call, _: Asked) -> Response:
        source = await use_case(streams.resumed(call) if endpoint.streams else call)
        return Response(200, b"", media_type, streams.HEADERS, source=source)

    return run


def _write(handler: Handler, guard: Step | None, metrics: telemetry.Metrics, in_flight: idempotency.InFlight) -> Run:
    endpoint, by_key = handler.endpoint, handler.endpoint.repeat == "key"
    read_body = decode.body_reader(endpoint)
    # Unaudited writes are reports of controllers about an operation. A project with an operation cannot be deleted.
    checks_project = endpoint.audited and issubclass(endpoint.params, ProjectPath)

    async def run(call: Call, asked: Asked) -> Response:
        body = asked.chunks if endpoint.takes_bytes else read_body(asked.raw)
        if not by_key:
            return await run_once(call, body, None)
        key = call.header(b"x-idempotency-key") or call.header(b"idempotency-key")
        if not key:
            raise errors.IdempotencyKeyMissing
        decode.check_header("X-Idempotency-Key", key)
        digest = call.site.keys.request_digest(b"%b\n%b" % (asked.path.encode(), asked.raw))
        repeat = idempotency.Repeat(call.caller.actor_id, asked.path, key, digest)
        in_flight.start(repeat)
        try:
            return await run_once(call, body, repeat)
        finally:
            in_flight.end(repeat)

    async def kept_answer(reader: db.Reader, repeat: idempotency.Repeat | None) -> bytes | None:
        answer = await idempotency.replay(reader, repeat) if repeat is not None else None
        if answer is not None:
            metrics.replays.inc()
        return answer

    async def run_once(call: Call, body: object, repeat: idempotency.Repeat | None) -> Response:
        if handler.authorise is not None:
            body = await handler.authorise(call, body)
        if handler.prepare is not None:
            replay = await kept_answer(call.site.database.reader, repeat)
            if replay is not None:
                return Response(endpoint.status, replay)
            body = await handler.prepare(call, body)
            # `prepare` can take minutes. In that time the caller may have lost the permission for this change.
            await call.admit_again()

        async def use_case(tx: db.Tx) -> bytes:
            replay = await kept_answer(tx, repeat)
            if replay is not None:
                return replay
            if checks_project:
                await orgs.check_exists(tx, call.in_project().project_id)
            if guard is not None:
                await _check_guard(guard, call, tx)
            answer = await handler.run(tx, call, body)
            content = msgspec.json.encode(answer)
            if endpoint.audited:
                await audit.change(tx, endpoint, call, answer)
            if repeat is not None:
                await idempotency.remember(tx, call.now, repeat, b"" if endpoint.secret_answer else content)
            return content

        return Response(endpoint.status, await call.site.database.write(use_case, keep=not call.dry_run))

    return run


def _settled(endpoint: AnyEndpoint, write: Run, settle: Step) -> Run:
    """Return a runner that calls `settle` after the write. Replays reuse the write's answer and call `settle` again."""
    decoder = msgspec.json.Decoder(endpoint.response)

    async def run(call: Call, asked: Asked) -> Response:
        written = await write(call, asked)
        settled = await settle(call, decoder.decode(written.content))
        return msgspec.structs.replace(written, content=msgspec.json.encode(settled))

    return run


async def _check_guard(guard: Step, call: Call, tx: db.Tx) -> None:
    """Compare If-Match and If-None-Match with the ETag that GET would return now, in the transaction of the change."""
    try:
        present: str | None = etag.of(await guard(tx, call))
    except errors.NotFound:
        present = None
    etag.check(call.header(b"if-match"), call.header(b"if-none-match"), present)


def _reader_of(path: str, known: Mapping[str, Handler]) -> Step:
    reads = [handler.run for handler in known.values() if handler.endpoint.path == path and handler.endpoint.tagged]
    if len(reads) != 1:
        raise LookupError(f"{path} has a guarded change and {len(reads)} reads with a revision to compare with")
    return reads[0]


def _responder(endpoint: AnyEndpoint) -> Callable[[object, Call], Response]:
    status = endpoint.status

    def plain(answer: object, _: Call) -> Response:
        return Response(status, msgspec.json.encode(answer))

    def with_tag(answer: object, call: Call) -> Response:
        tag = etag.of(answer)
        headers = ((b"etag", tag.encode()),)
        if etag.is_known(call.header(b"if-none-match"), tag):
            return Response(304, b"", headers=headers)
        content = answer.content if isinstance(answer, Document) else msgspec.json.encode(answer)
        return Response(status, content, headers=headers)

    return with_tag if endpoint.tagged else plain


class _NothingKept:
    """The store for a dry run: it runs each write, rolls it back and returns its result."""

    def __init__(self, database: db.Database) -> None:
        self._database, self.version, self.is_remote = database, database.version, database.is_remote
        self.reader, self.on_group = database.reader, database.on_group

    async def write(self, use_case: db.UseCase[db.Result], *, keep: bool = True) -> db.Result:
        return await self._database.write(use_case, keep=False)

    async def close(self) -> None:
        raise RuntimeError("a dry run does not close the store")
