"""Call any endpoint of the contract, typed. Used by the controller kit, the CLI and the console; `auth` supplies the
header, `retries` decides what each attempt's end means."""

import asyncio
import re
import ssl
import time
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, NamedTuple, Self
from urllib.parse import quote, urlsplit

import httpx
import msgspec
from gpuaas_contract.endpoint import Answer, Endpoint, RequestBody
from gpuaas_contract.errors import ApiError, PreconditionFailed
from gpuaas_contract.events import EVENT_LIST, Event, Events
from gpuaas_contract.lifecycles import ENDED_OPERATION
from gpuaas_contract.operations import OPERATION_GET, Operation
from gpuaas_contract.wire import Item, NoBody, Page

from gpuaas_sdk import retries, watch
from gpuaas_sdk.auth import Auth
from gpuaas_sdk.outcomes import NoAnswer, OutcomeUnknown, Unreachable, UnreadableAnswer

DEADLINE_S = 60.0
"""A call gives up this long after it started, plus the time it asked the server to wait."""
ATTEMPT_S = 20.0
"""One attempt waits this long for bytes; a lost connection is noticed well before the deadline."""
WATCH_WAIT_S = 25.0
WATCH_DEADLINE_S = 300.0
"""A watcher lives through a restart or an upgrade of the server."""


class Tagged(NamedTuple, Generic[Answer]):
    """An answer and the tag of what was read; the tag goes into `if_match` of a guarded change."""

    answer: Answer
    etag: str


class Client:
    """One connection pool to one server. Close it with `async with` or `aclose()`."""

    def __init__(self, server: str, auth: Auth, *, ca_file: Path | None = None) -> None:
        if urlsplit(server).scheme not in ("http", "https") or not urlsplit(server).hostname:
            raise ValueError(f"{server!r} is not a server address; it looks like https://cloud.example:8443")
        self.server = server.rstrip("/")
        self._auth = auth
        verify = ssl.create_default_context(cafile=str(ca_file)) if ca_file else True
        self._http = httpx.AsyncClient(base_url=self.server, verify=verify, trust_env=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    async def call(
        self,
        endpoint: Endpoint[RequestBody, Answer],
        body: RequestBody | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        dry_run: bool = False,
        idempotency_key: str | None = None,
        correlation: str = "",
        if_match: str = "",
        timeout_s: float = DEADLINE_S,
        **path_params: str,
    ) -> Answer:
        """Send until there is an answer. Every repetition carries the same idempotency key, so a change happens once.

        `correlation` is the id it goes on record under; without one the platform makes it.
        `if_match` is the tag `read` gave; the change happens only if nothing else has changed since.
        Raises the `ApiError` subclass of the answer's code, or a `NoAnswer` when `timeout_s` passed without one."""
        request = _Request(
            endpoint=endpoint,
            path=_path(endpoint, path_params),
            query=_query(endpoint, query or {}, dry_run=dry_run),
            content=_content(endpoint, body),
            idempotency_key=(idempotency_key or uuid.uuid4().hex) if endpoint.mutates else "",
            correlation_id=correlation,
            if_match=if_match,
            wait_s=float((query or {}).get("wait_s", getattr(body, "wait_s", 0.0))),
        )
        return (await self._until_answered(request, timeout_s)).answer

    async def read(self, endpoint: Endpoint[NoBody, Answer], **path_params: str) -> Tagged[Answer]:
        """One resource with its tag, to be changed under the condition that it is still so."""
        request = _Request(
            endpoint=endpoint,
            path=_path(endpoint, path_params),
            query={},
            content=None,
            idempotency_key="",
            correlation_id="",
            if_match="",
            wait_s=0.0,
        )
        return await self._until_answered(request, DEADLINE_S)

    async def pages(
        self,
        endpoint: Endpoint[NoBody, Page[Item]],
        *,
        query: Mapping[str, Any] | None = None,
        **path_params: str,
    ) -> AsyncIterator[Item]:
        """Every item of a list, page after page."""
        path: dict[str, Any] = dict(path_params)
        token: str | None = ""
        while token is not None:
            asked = {**(query or {}), "page_token": token} if token else query
            page = await self.call(endpoint, query=asked, **path)
            for item in page.items:
                yield item
            token = page.next_page_token or None

    async def watch_operation(self, project_id: str, operation_id: str) -> AsyncIterator[Operation]:
        """The operation now and after every change, until it ended."""
        revision = -1
        while True:
            operation = await self.call(
                OPERATION_GET,
                query={"wait_s": WATCH_WAIT_S, "revision": revision} if revision >= 0 else None,
                timeout_s=WATCH_DEADLINE_S,
                project_id=project_id,
                operation_id=operation_id,
            )
            if operation.revision != revision:
                revision = operation.revision
                yield operation
            if operation.status in ENDED_OPERATION:
                return

    def events(
        self, project_id: str, *, after: int = 0, app_instance_id: str = "", correlation_id: str = ""
    ) -> AsyncIterator[Event]:
        """Events of a project behind the cursor `after`, in order, each once, without an end.

        0 starts with the oldest that is kept. Raises `CursorExpired` when events behind `after` are no longer kept;
        `details["oldest"]` is the first cursor that still is."""
        filters = {"app_instance_id": app_instance_id, "correlation_id": correlation_id}
        return self.follow(EVENT_LIST, filters, after=after, project_id=project_id)

    def follow(
        self, record: Endpoint[NoBody, Events], filters: Mapping[str, str], *, after: int = 0, **path_params: Any
    ) -> AsyncIterator[Event]:
        """The same of any record: `ORG_EVENT_LIST` of an organisation, `PLATFORM_EVENT_LIST` of the platform."""

        async def ask(cursor: int) -> Events:
            query = {"after": cursor, "wait_s": WATCH_WAIT_S, **filters}
            return await self.call(record, query=query, timeout_s=WATCH_DEADLINE_S, **path_params)

        return watch.follow(ask, after)

    async def upload(
        self, endpoint: Endpoint[bytes, Answer], content: AsyncIterable[bytes], **path_params: str
    ) -> Answer:
        """Send a file as it is read. Asked once: it is kept whole or not at all, so sending it again is safe."""
        header = await self._authorization(endpoint, time.monotonic() + ATTEMPT_S)
        headers = {"Authorization": header, "Content-Type": "application/octet-stream"}
        patience = httpx.Timeout(ATTEMPT_S, read=DEADLINE_S)
        try:
            response = await self._http.request(
                endpoint.method, _path(endpoint, path_params), content=content, headers=headers, timeout=patience
            )
        except httpx.TransportError as error:
            raise self._broke_off(endpoint, error) from error
        if not response.is_success:
            raise retries.error_of(response)
        return self._read(endpoint, response).answer

    async def download(
        self, endpoint: Endpoint[NoBody, str], *, query: Mapping[str, Any] | None = None, **path_params: str
    ) -> AsyncIterator[bytes]:
        """The bytes of an answer that is a file, as they come. Asked once: who wants the rest asks for all again."""
        header = await self._authorization(endpoint, time.monotonic() + ATTEMPT_S)
        path, asked = _path(endpoint, path_params), _query(endpoint, query or {}, dry_run=False)
        headers = {"Authorization": header} if header else {}
        try:
            async with self._http.stream("GET", path, params=asked, headers=headers, timeout=ATTEMPT_S) as response:
                if not response.is_success:
                    await response.aread()
                    raise retries.error_of(response)
                async for chunk in response.aiter_bytes():
                    yield chunk
        except httpx.TransportError as error:
            raise self._broke_off(endpoint, error) from error

    def _broke_off(self, endpoint: Endpoint[Any, Any], error: httpx.TransportError) -> Unreachable:
        why = str(error) or type(error).__name__
        return Unreachable(
            f"{self.server} broke off {endpoint.name}: {why}", fix="Ask again from the start; nothing was changed."
        )

    async def _until_answered(self, request: "_Request[RequestBody, Answer]", timeout_s: float) -> Tagged[Answer]:
        deadline = time.monotonic() + timeout_s + request.wait_s
        may_have_reached, token_renewed, attempt = False, False, 0
        while True:
            try:
                header = await self._authorization(request.endpoint, deadline)
            except NoAnswer as error:
                if not may_have_reached:
                    raise
                last = retries.Again(error.message, may_have_reached=True)
                raise self._gave_up(request, last, timeout_s, may_have_reached=True) from error
            end = await self._attempt(request, header, deadline)
            if isinstance(end, ApiError):
                if may_have_reached and isinstance(end, PreconditionFailed):
                    raise self._changed_by_whom(request) from end
                if token_renewed or not (retries.is_stale_token(end) and self._auth.invalidate(header)):
                    raise end
                token_renewed = True
                continue
            if not isinstance(end, retries.Again):
                return self._read(request.endpoint, end)
            may_have_reached |= end.may_have_reached
            pause_s = max(end.after_s or 0.0, retries.back_off_s(attempt))
            if time.monotonic() + pause_s >= deadline:
                raise self._gave_up(request, end, timeout_s, may_have_reached=may_have_reached)
            await asyncio.sleep(pause_s)
            attempt += 1

    async def _authorization(self, endpoint: Endpoint[Any, Any], deadline: float) -> str:
        if endpoint.audience == "public":
            return ""
        try:
            async with asyncio.timeout(max(0.1, deadline - time.monotonic())):
                return await self._auth.header(self)
        except TimeoutError as error:
            raise Unreachable(
                f"No token from {self.server} in time for {endpoint.name}",
                fix="Check that the server runs and that its address is right.",
            ) from error

    async def _attempt(
        self, request: "_Request[RequestBody, Answer]", header: str, deadline: float
    ) -> httpx.Response | retries.Again | ApiError:
        left_s, leaving = max(0.1, deadline - time.monotonic()), _Leaving()
        try:
            async with asyncio.timeout(min(left_s, ATTEMPT_S + request.wait_s)):
                response = await self._http.request(
                    request.endpoint.method,
                    request.path,
                    params=request.query,
                    content=request.content,
                    headers=request.headers(header),
                    timeout=httpx.Timeout(None, connect=5.0),
                    extensions={"trace": leaving},
                )
        except (httpx.TransportError, TimeoutError) as error:
            if retries.is_distrust(error):
                raise Unreachable(
                    f"The certificate of {self.server} is not trusted: {error}",
                    fix="Name the platform's own authority with --ca-file FILE.",
                ) from error
            return retries.of_exception(error, has_left=leaving.has_begun)
        return retries.of_response(response) or response

    def _read(self, endpoint: Endpoint[RequestBody, Answer], response: httpx.Response) -> Tagged[Answer]:
        try:
            answer = msgspec.json.decode(response.content, type=endpoint.response)
            return Tagged(answer, response.headers.get("ETag", ""))
        except msgspec.DecodeError as error:
            raise UnreadableAnswer(
                f"{self.server} answered {endpoint.name} in another form than the contract's: {error}",
                fix="Check that the address is a GPUaaS server and that the SDK is not older than it.",
            ) from error

    def _changed_by_whom(self, request: "_Request[RequestBody, Answer]") -> OutcomeUnknown:
        """The answer to the first attempt was lost: what the second found changed may be its own work."""
        return OutcomeUnknown(
            f"{request.endpoint.name}: it has changed since it was read, by somebody else or by this very call.",
            idempotency_key=request.idempotency_key,
            fix="Read it again: it is either as you wanted it, or as somebody else did.",
        )

    def _gave_up(
        self,
        request: "_Request[RequestBody, Answer]",
        last: retries.Again,
        timeout_s: float,
        *,
        may_have_reached: bool,
    ) -> OutcomeUnknown | Unreachable:
        what = f"No answer from {self.server} to {request.endpoint.name} within {timeout_s:g} s: {last.why}"
        if request.endpoint.mutates and may_have_reached:
            key = request.idempotency_key
            return OutcomeUnknown(what, idempotency_key=key, fix=f"Ask again with the same idempotency key: {key}")
        return Unreachable(what, fix="Check that the server runs and that its address is right.")


@dataclass(frozen=True)
class _Request(Generic[RequestBody, Answer]):
    """One call, ready to be sent any number of times."""

    endpoint: Endpoint[RequestBody, Answer]
    path: str
    query: dict[str, str]
    content: bytes | None
    idempotency_key: str
    correlation_id: str
    if_match: str
    wait_s: float

    def headers(self, authorization: str) -> dict[str, str]:
        found = {
            "Authorization": authorization,
            "X-Idempotency-Key": self.idempotency_key,
            "X-Correlation-ID": self.correlation_id,
            "If-Match": self.if_match,
            "Content-Type": "application/json" if self.content is not None else "",
        }
        return {name: value for name, value in found.items() if value}


class _Leaving:
    """Whether bytes of a request can be on their way. The error alone does not tell: time is up at any stage."""

    has_begun = False

    async def __call__(self, stage: str, _: Mapping[str, Any]) -> None:
        """httpx says every stage of a request."""
        self.has_begun |= stage.endswith(".send_request_headers.started")


def _path(endpoint: Endpoint[Any, Any], given: Mapping[str, str]) -> str:
    wanted = set(re.findall(r"{(\w+)}", endpoint.path))
    _check_names(endpoint, "path parameters", missing=wanted - given.keys(), unknown=given.keys() - wanted)
    empty = sorted(name for name, value in given.items() if not value)
    if empty:
        raise TypeError(f"{endpoint.name}: empty path parameters: {', '.join(empty)}")
    return endpoint.path.format_map({name: quote(value, safe="") for name, value in given.items()})


def _query(endpoint: Endpoint[Any, Any], given: Mapping[str, Any], *, dry_run: bool) -> dict[str, str]:
    known = {field.name for field in msgspec.structs.fields(endpoint.query)}
    _check_names(endpoint, "query parameters", missing=set(), unknown=given.keys() - known)
    if dry_run and not endpoint.mutates:
        raise TypeError(f"{endpoint.name} changes nothing, so it has no dry run")
    found = {**given, **({"dry_run": True} if dry_run else {})}
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in found.items()}


def _check_names(endpoint: Endpoint[Any, Any], what: str, *, missing: set[str], unknown: set[str]) -> None:
    if missing:
        raise TypeError(f"{endpoint.name}: missing {what}: {', '.join(sorted(missing))}")
    if unknown:
        raise TypeError(f"{endpoint.name}: unknown {what}: {', '.join(sorted(unknown))}")


def _content(endpoint: Endpoint[Any, Any], body: object | None) -> bytes | None:
    if body is None and endpoint.request is NoBody:
        return None
    if not isinstance(body, endpoint.request):
        raise TypeError(f"{endpoint.name}: the body must be a {endpoint.request.__name__}, not {type(body).__name__}")
    return msgspec.json.encode(body)
