"""Send a request and repeat it until the server answers. `request` builds it; `retries` decides after each attempt."""

import asyncio
import ssl
import time
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, NamedTuple, Self

import httpx
import msgspec
from gpuaas_contract.endpoint import Answer, Endpoint, RequestBody
from gpuaas_contract.errors import ApiError, PreconditionFailed
from gpuaas_contract.events import EVENT_LIST, Event, Events
from gpuaas_contract.lifecycles import ENDED_OPERATION
from gpuaas_contract.operations import OPERATION_GET, Operation
from gpuaas_contract.wire import Item, NoBody, Page

from gpuaas_sdk.auth import Auth
from gpuaas_sdk.client import events, request, retries
from gpuaas_sdk.client.pools import Pools
from gpuaas_sdk.client.request import Request
from gpuaas_sdk.outcomes import NoAnswer, OutcomeUnknown, Unreachable, UnreadableAnswer

DEADLINE_S = 60.0
"""Time limit of a call with all its attempts, not counting the time for which the server may hold a long poll."""
ATTEMPT_S = 20.0
"""Time limit of one attempt, so that a lost connection is detected well before the time limit of the call."""
WATCH_WAIT_S = 25.0
WATCH_DEADLINE_S = 300.0
"""Time limit of one call while watching: a restart or an upgrade of the server may take this long."""


class Tagged(NamedTuple, Generic[Answer]):
    """An answer with its entity tag. Pass the tag as `if_match` to change the resource only if it is unchanged.

    project, etag = await client.read(identity.PROJECT_GET, project_id=project_id)
    renamed = identity.RenameProject(name=f"{project.name}-2")
    await client.call(identity.PROJECT_RENAME, renamed, if_match=etag, project_id=project_id)"""

    answer: Answer
    etag: str


class Client:
    """Calls one server over connections that it keeps. Close them with `async with` or `aclose()`.

    async with Client("http://127.0.0.1:7070", ServiceAccount(key_id, client_secret)) as client:
        me = await client.call(identity.ME)"""

    def __init__(self, server: str, auth: Auth, *, ca_file: Path | None = None) -> None:
        if not request.is_address(server):
            raise ValueError(f"{server!r} is not a server address. Example of one: https://cloud.example:8443")
        self.server = server.rstrip("/")
        """The address of the server, without a slash at its end."""
        self._auth = auth
        trust = _trust(self.server, ca_file)
        self._connections = Pools(
            lambda limits: httpx.AsyncClient(base_url=self.server, verify=trust, trust_env=False, limits=limits)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._connections.aclose()

    async def call(
        self,
        /,
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
        """Call an endpoint and return its answer. All attempts have the same idempotency key, so a change happens once.

        `correlation` is the id under which the platform records the call; without it the platform makes one.
        `if_match` is the tag that `read` returned: the change is refused if the resource has changed since.
        Raises the `ApiError` subclass of the error's code, or a `NoAnswer` if no answer arrived within `timeout_s`."""
        call = Request(
            endpoint=endpoint,
            path=request.path(endpoint, path_params),
            query=request.query(endpoint, query or {}, dry_run=dry_run),
            content=request.content(endpoint, body),
            idempotency_key=(idempotency_key or uuid.uuid4().hex) if endpoint.mutates else "",
            correlation_id=correlation,
            if_match=if_match,
            wait_s=float((query or {}).get("wait_s", getattr(body, "wait_s", 0.0))),
        )
        return (await self._until_answered(call, timeout_s)).answer

    async def read(self, /, endpoint: Endpoint[NoBody, Answer], **path_params: str) -> Tagged[Answer]:
        """Return a resource with its tag, for a later change that must not overwrite the change of another caller."""
        call = Request(endpoint=endpoint, path=request.path(endpoint, path_params), query={})
        return await self._until_answered(call, DEADLINE_S)

    async def pages(
        self,
        /,
        endpoint: Endpoint[NoBody, Page[Item]],
        *,
        query: Mapping[str, Any] | None = None,
        **path_params: str,
    ) -> AsyncIterator[Item]:
        """Yield every item of a list, page by page."""
        path: dict[str, Any] = dict(path_params)
        token: str | None = ""
        while token is not None:
            page_query = {**(query or {}), "page_token": token} if token else query
            page = await self.call(endpoint, query=page_query, **path)
            for item in page.items:
                yield item
            token = page.next_page_token or None

    async def watch_operation(self, project_id: str, operation_id: str) -> AsyncIterator[Operation]:
        """Yield the operation now and after every change, until it has ended."""
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
        """Yield the events of a project after a cursor, each once and in order, and wait for new ones forever.

        Cursor 0 starts with the oldest stored event. Raises `CursorExpired` if events after the cursor were deleted;
        `details["oldest"]` is the first cursor that is still valid."""
        filters = {"app_instance_id": app_instance_id, "correlation_id": correlation_id}
        return self.follow(EVENT_LIST, filters, after=after, project_id=project_id)

    def follow(
        self, /, record: Endpoint[NoBody, Events], filters: Mapping[str, str], *, after: int = 0, **path_params: Any
    ) -> AsyncIterator[Event]:
        """Yield events as `events` does, from any list of events, for example `ORG_EVENT_LIST`."""

        async def ask(cursor: int) -> Events:
            query = {"after": cursor, "wait_s": WATCH_WAIT_S, **filters}
            return await self.call(record, query=query, timeout_s=WATCH_DEADLINE_S, **path_params)

        return events.follow(ask, after)

    async def upload(
        self,
        /,
        endpoint: Endpoint[bytes, Answer],
        content: AsyncIterable[bytes],
        *,
        dry_run: bool = False,
        **path_params: str,
    ) -> Answer:
        """Upload content in one attempt. The platform stores all of it or nothing, so the caller may repeat it.

        A dry run uploads all of it too, because the platform checks its size and digest."""
        header = await self._authorization(endpoint, time.monotonic() + ATTEMPT_S)
        headers = {"Authorization": header, "Content-Type": "application/octet-stream"}
        path, parameters = request.path(endpoint, path_params), request.query(endpoint, {}, dry_run=dry_run)
        timeout = httpx.Timeout(ATTEMPT_S, read=DEADLINE_S)
        try:
            async with self._connections.lend() as http:
                response = await http.request(
                    endpoint.method, path, params=parameters, content=content, headers=headers, timeout=timeout
                )
        except httpx.TransportError as error:
            raise self._connection_broke(endpoint, error) from error
        if not response.is_success:
            raise retries.error_of(response)
        return self._read(endpoint, response).answer

    async def download(
        self, /, endpoint: Endpoint[NoBody, str], *, query: Mapping[str, Any] | None = None, **path_params: str
    ) -> AsyncIterator[bytes]:
        """Download content in one attempt and yield its bytes. After an error the caller downloads all of it again."""
        header = await self._authorization(endpoint, time.monotonic() + ATTEMPT_S)
        path, parameters = request.path(endpoint, path_params), request.query(endpoint, query or {})
        headers = {"Authorization": header} if header else {}
        try:
            async with (
                self._connections.lend() as http,
                http.stream("GET", path, params=parameters, headers=headers, timeout=ATTEMPT_S) as response,
            ):
                if not response.is_success:
                    await response.aread()
                    raise retries.error_of(response)
                async for chunk in response.aiter_bytes():
                    yield chunk
        except httpx.TransportError as error:
            raise self._connection_broke(endpoint, error) from error

    def _connection_broke(self, endpoint: Endpoint[Any, Any], error: httpx.TransportError) -> Unreachable:
        why = str(error) or type(error).__name__
        return Unreachable(
            f"The connection to {self.server} broke during {endpoint.name}: {why}",
            fix="Repeat the whole transfer; nothing was changed.",
        )

    async def _until_answered(self, call: Request[RequestBody, Answer], timeout_s: float) -> Tagged[Answer]:
        deadline = time.monotonic() + timeout_s + call.wait_s
        may_have_reached, token_renewed, attempt = False, False, 0
        while True:
            try:
                header = await self._authorization(call.endpoint, deadline)
            except NoAnswer as error:
                if not may_have_reached:
                    raise
                last = retries.Retry(error.message, may_have_reached=True)
                raise self._gave_up(call, last, timeout_s, may_have_reached=True) from error
            outcome = await self._attempt(call, header, deadline)
            if isinstance(outcome, ApiError):
                if may_have_reached and isinstance(outcome, PreconditionFailed):
                    raise self._may_be_own_change(call) from outcome
                if token_renewed or not (retries.is_stale_token(outcome) and self._auth.invalidate(header)):
                    raise outcome
                token_renewed = True
                continue
            if not isinstance(outcome, retries.Retry):
                return self._read(call.endpoint, outcome)
            may_have_reached |= outcome.may_have_reached
            pause_s = max(outcome.after_s or 0.0, retries.back_off_s(attempt))
            if time.monotonic() + pause_s >= deadline:
                raise self._gave_up(call, outcome, timeout_s, may_have_reached=may_have_reached)
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
                f"{self.server} did not issue a token in time to call {endpoint.name}",
                fix="Check that the server runs and that its address is right.",
            ) from error

    async def _attempt(
        self, call: Request[RequestBody, Answer], header: str, deadline: float
    ) -> httpx.Response | retries.Retry | ApiError:
        left_s, sending = max(0.1, deadline - time.monotonic()), _Sending()
        try:
            async with asyncio.timeout(min(left_s, ATTEMPT_S + call.wait_s)), self._connections.lend() as http:
                response = await http.request(
                    call.endpoint.method,
                    call.path,
                    params=call.query,
                    content=call.content,
                    headers=call.headers(header),
                    timeout=httpx.Timeout(None, connect=5.0),
                    extensions={"trace": sending},
                )
        except (httpx.RequestError, TimeoutError) as error:  # an answer whose compression is broken, too
            if retries.is_untrusted_certificate(error):
                raise Unreachable(
                    f"The certificate of {self.server} is not trusted: {error}",
                    fix="Pass the certificate authority of the platform with --ca-file FILE.",
                ) from error
            if retries.is_without_tls(error):
                fix = f"Check the port; a server on this machine has http:{self.server.removeprefix('https:')}"
                raise Unreachable(f"{self.server} does not use TLS", fix=fix) from error
            return retries.of_exception(error, was_sent=sending.has_begun)
        return retries.of_response(response) or response

    def _read(self, endpoint: Endpoint[RequestBody, Answer], response: httpx.Response) -> Tagged[Answer]:
        try:
            answer = msgspec.json.decode(response.content, type=endpoint.response)
            return Tagged(answer, response.headers.get("ETag", ""))
        except retries.UNREADABLE as error:
            raise UnreadableAnswer(
                f"The response of {self.server} to {endpoint.name} does not match the API contract: {error}",
                fix="Check that the address is a GPUaaS server and that this SDK is not older than the server.",
            ) from error

    def _may_be_own_change(self, call: Request[RequestBody, Answer]) -> OutcomeUnknown:
        """Return the error of an `if_match` change that was refused, while an earlier attempt may have succeeded."""
        return OutcomeUnknown(
            f"{call.endpoint.name}: the resource changed after it was read, by another caller or by this call.",
            idempotency_key=call.idempotency_key,
            fix="Read the resource again and compare: it contains either your change or another one.",
        )

    def _gave_up(
        self,
        call: Request[RequestBody, Answer],
        last: retries.Retry,
        timeout_s: float,
        *,
        may_have_reached: bool,
    ) -> OutcomeUnknown | Unreachable:
        message = f"No answer from {self.server} to {call.endpoint.name} within {timeout_s:g} s: {last.why}"
        if call.endpoint.mutates and may_have_reached:
            key = call.idempotency_key
            return OutcomeUnknown(
                message, idempotency_key=key, fix=f"Repeat the call with the same idempotency key: {key}"
            )
        return Unreachable(message, fix="Check that the server runs and that its address is right.")


class _Sending:
    """Records whether httpx began to send a request. A timeout alone does not show it: it can occur at any stage."""

    has_begun = False

    async def __call__(self, stage: str, _: Mapping[str, Any]) -> None:
        """httpx calls this at each stage of a request."""
        self.has_begun |= stage.endswith(".send_request_headers.started")


def _trust(server: str, ca_file: Path | None) -> ssl.SSLContext:
    """Return the authorities that may sign the certificate of the server."""
    if ca_file:
        return ssl.create_default_context(cafile=str(ca_file))
    if server.startswith("http://"):
        # No TLS is used. To load the host's authorities would take longer than most commands; this context has none.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx.create_ssl_context(trust_env=False)
