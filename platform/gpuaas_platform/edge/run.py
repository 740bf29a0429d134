"""Run a domain's handler for one call: read, stream, flow, or write in one transaction with its audit row and the
answer kept for replays. `http` chooses the way once per route, at start."""

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.documents import OPENAPI_GET
from gpuaas_contract.endpoint import Endpoint

from gpuaas_platform.call import Call, Flow, Read, Routes, Stream
from gpuaas_platform.edge import audit as auditing
from gpuaas_platform.edge import decode as decoding
from gpuaas_platform.edge import document, etag, idempotency, streams, telemetry
from gpuaas_platform.edge.exchange import Answer
from gpuaas_platform.identity import orgs
from gpuaas_platform.kit import db

AnyEndpoint = Endpoint[Any, Any]
Result = TypeVar("Result")


class Asked(NamedTuple):
    """What a mutation says beside its call."""

    raw: bytes
    path: str
    dry_run: bool
    chunks: AsyncIterator[bytes] | None = None
    """A raw body, still to be read; `raw` is empty then."""


NOTHING_ASKED = Asked(b"", "", dry_run=False)
Run = Callable[[Call, Asked], Awaitable[Answer]]


def runner(
    endpoint: AnyEndpoint, endpoints: Sequence[AnyEndpoint], domains: Sequence[Routes], metrics: telemetry.Metrics
) -> Run:
    """The one way to run this endpoint. Without a handler, or with two, the server does not start."""
    found: list[Run] = [document.run] if endpoint.name == OPENAPI_GET.name else []
    for domain in domains:
        if endpoint.name in domain.reads:
            found.append(_read(endpoint, domain.reads[endpoint.name]))
        if endpoint.name in domain.flows:
            found.append(_flow(endpoint, domain.flows[endpoint.name]))
        if endpoint.name in domain.streams:
            found.append(_stream(endpoint, domain.streams[endpoint.name]))
        if endpoint.name in domain.writes:
            guard = _reader_of(endpoint.path, endpoints, domains) if endpoint.guarded else None
            run = _write(endpoint, domain, guard, metrics)
            settle = domain.settlements.get(endpoint.name)
            found.append(_settled(endpoint, run, settle) if settle else run)
    if len(found) != 1:
        raise LookupError(f"{endpoint.name} has {len(found)} handlers; it must have one")
    return found[0]


def _read(endpoint: AnyEndpoint, handler: Read) -> Run:
    answer_of = _answer_of(endpoint)

    async def run(call: Call, _: Asked) -> Answer:
        return answer_of(await handler(call, call.site.database.reader), call)

    return run


def _flow(endpoint: AnyEndpoint, handler: Flow) -> Run:
    """A flow opens transactions of its own; in a dry run none of them is kept."""
    read_body, answer_of = decoding.body_reader(endpoint), _answer_of(endpoint)

    async def run(call: Call, asked: Asked) -> Answer:
        body = read_body(asked.raw)
        if asked.dry_run:
            site = dataclasses.replace(call.site, database=_NothingKept(call.site.database))
            call = msgspec.structs.replace(call, site=site)
        return answer_of(await handler(call, body), call)

    return run


def _stream(endpoint: AnyEndpoint, handler: Stream) -> Run:
    media_type = streams.MEDIA_TYPE if endpoint.streams else streams.media_type(endpoint.media_type)

    async def run(call: Call, _: Asked) -> Answer:
        source = await handler(streams.resumed(call) if endpoint.streams else call)
        return Answer(200, b"", media_type, streams.HEADERS, source=source)

    return run


def _write(endpoint: AnyEndpoint, domain: Routes, guard: Read | None, metrics: telemetry.Metrics) -> Run:
    handler = domain.writes[endpoint.name]
    authorise, prepare = domain.authorisations.get(endpoint.name), domain.preparations.get(endpoint.name)
    read_body, by_key = decoding.body_reader(endpoint), endpoint.repeat == "key"
    # Reports of controllers, which are not audited, are about an operation, and a project with one is not deleted.
    checks_project = endpoint.audited and "{project_id}" in endpoint.path

    async def run(call: Call, asked: Asked) -> Answer:
        key = _idempotency_key(call) if by_key else ""
        body = asked.chunks if endpoint.takes_bytes else read_body(asked.raw)
        digest = call.site.keys.request_digest(b"%b\n%b" % (asked.path.encode(), asked.raw)) if by_key else ""

        async def kept_answer(reader: db.Reader) -> bytes | None:
            found = await idempotency.replay(reader, call.caller, asked.path, key, digest) if by_key else None
            if found is not None:
                metrics.replays.inc()
            return found

        if authorise is not None:
            body = await authorise(call, body)
        if prepare is not None:
            replay = await kept_answer(call.site.database.reader)
            if replay is not None:
                return Answer(endpoint.status, replay)
            body = await prepare(call, body)

        async def use_case(tx: db.Tx) -> bytes:
            replay = await kept_answer(tx)
            if replay is not None:
                return replay
            if checks_project:
                await orgs.check_exists(tx, call.in_project().project_id)
            if guard is not None:
                await _check_guard(guard, call, tx)
            found = await handler(call, tx, body)
            content = msgspec.json.encode(found)
            if endpoint.audited:
                await auditing.change(tx, endpoint, call, found)
            if by_key:
                kept = b"" if endpoint.secret_answer else content
                await idempotency.remember(tx, call, asked.path, key, digest, kept)
            return content

        return Answer(endpoint.status, await call.site.database.write(use_case, keep=not asked.dry_run))

    return run


def _settled(endpoint: AnyEndpoint, run: Run, settle: Flow) -> Run:
    """What is kept for replays is the answer of the write; whatever comes after it is found anew each time."""
    decoder = msgspec.json.Decoder(endpoint.response)

    async def run_and_settle(call: Call, asked: Asked) -> Answer:
        written = await run(call, asked)
        settled = await settle(call, decoder.decode(written.content))
        return msgspec.structs.replace(written, content=msgspec.json.encode(settled))

    return run_and_settle


def _idempotency_key(call: Call) -> str:
    key = call.header(b"x-idempotency-key") or call.header(b"idempotency-key")
    if not key:
        raise errors.IdempotencyKeyMissing
    return decoding.header_word("X-Idempotency-Key", key)


async def _check_guard(guard: Read, call: Call, tx: db.Tx) -> None:
    """Compare with what GET on this path would answer now, inside the transaction that changes it."""
    if_match, if_none_match = call.header(b"if-match"), call.header(b"if-none-match")
    try:
        present: str | None = etag.of(await guard(call, tx))
    except errors.NotFound:
        present = None
    etag.check(if_match, if_none_match, present)


def _reader_of(path: str, endpoints: Sequence[AnyEndpoint], domains: Sequence[Routes]) -> Read:
    names = [found.name for found in endpoints if found.path == path and found.tagged]
    found = [domain.reads[name] for domain in domains for name in names if name in domain.reads]
    if len(found) != 1:
        raise LookupError(f"{path} has a guarded change and no read with a revision to compare it with")
    return found[0]


def _answer_of(endpoint: AnyEndpoint) -> Callable[[Any, Call], Answer]:
    status, encode = endpoint.status, msgspec.json.encode

    def plain(found: Any, _: Call) -> Answer:
        return Answer(status, encode(found))

    def with_tag(found: Any, call: Call) -> Answer:
        tag = etag.of(found)
        headers = ((b"etag", tag.encode()),)
        if etag.is_known(call.header(b"if-none-match"), tag):
            return Answer(304, b"", headers=headers)
        return Answer(status, encode(found), headers=headers)

    return with_tag if endpoint.tagged else plain


class _NothingKept:
    """The store of a dry run: every write is rolled back after it answered."""

    def __init__(self, database: db.Database) -> None:
        self._database = database
        self.reader = database.reader
        self.on_group = database.on_group
        self.version = database.version

    async def write(self, use_case: db.UseCase[Result], *, keep: bool = True) -> Result:
        return await self._database.write(use_case, keep=False)

    async def close(self) -> None:
        raise RuntimeError("a dry run does not close the store")
