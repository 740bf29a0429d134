"""The client against a real server on loopback, over a wire that may lose answers."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from gpuaas_contract import policy
from gpuaas_contract.catalog import ENTITLEMENT_SET, SetEntitlement
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.errors import ApiError, Conflict, PreconditionFailed, TokenExpired
from gpuaas_contract.identity import ME, ORG_CREATE, ORG_LIST, CreateOrg, Org
from gpuaas_contract.runtime import ClaimOperation, CompleteOperation
from gpuaas_sdk.auth import BearerToken, NoAuth, ServiceAccount
from gpuaas_sdk.client import Client, retries
from gpuaas_sdk.client.client import DEADLINE_S
from gpuaas_sdk.outcomes import OutcomeUnknown, Unreachable, UnreadableAnswer
from gpuaas_sdk.testing import FakePlatform, free_port, serving
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

ORG = {"org_id": "org_1", "name": "acme", "created_at": "2026-01-01T00:00:00Z"}
Lossy = Callable[[str], AbstractAsyncContextManager[tuple[str, Any]]]


class Server:
    """Answers every path with what the test queued, then with the last of it; remembers the requests."""

    def __init__(self, *replies: Response) -> None:
        self._replies = list(replies)
        self.requests: list[Request] = []
        methods = ["GET", "POST", "PUT"]
        self.app = Starlette(routes=[Route("/{path:path}", self._reply, methods=methods)])

    def header(self, name: str) -> list[str]:
        return [request.headers.get(name, "") for request in self.requests]

    async def _reply(self, request: Request) -> Response:
        await request.body()
        self.requests.append(request)
        return self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]


@asynccontextmanager
async def talking_to(server: Server) -> AsyncIterator[Client]:
    async with serving(server.app) as address, Client(address, BearerToken("tok")) as client:
        yield client


def org() -> Response:
    return JSONResponse(ORG, 201)


def problem(code: str, status: int, *, retryable: bool = False, retry_after: str = "") -> Response:
    document = {
        "type": "urn:x",
        "title": "t",
        "status": status,
        "detail": "d",
        "code": code,
        "message": f"because of {code}",
        "correlation_id": "cor_7",
        "details": {"field": "name"},
        "retryable": retryable,
        "fix": "gpuaas look",
    }
    headers = {"Retry-After": retry_after} if retry_after else {}
    return JSONResponse(document, status, headers, media_type="application/problem+json")


async def test_a_dry_run_of_an_upload_sends_the_content_and_asks_for_no_change() -> None:
    async def content() -> AsyncIterator[bytes]:
        yield b"the "
        yield b"content"

    endpoint = Endpoint("thing.put", "PUT", "/things/{thing_id}", "Upload", bytes, Org)
    server = Server(org())
    async with talking_to(server) as client:
        await client.upload(endpoint, content(), dry_run=True, thing_id="t1")
        await client.upload(endpoint, content(), thing_id="t1")
    assert [request.url.query for request in server.requests] == ["dry_run=true", ""]
    assert [await request.body() for request in server.requests] == [b"the content", b"the content"]


async def test_a_lost_answer_is_asked_for_again_with_the_same_key(lossy: Lossy) -> None:
    server = Server(org())
    async with serving(server.app) as address, lossy(address) as (wired, wire):
        wire.answers_to_lose = 1
        async with Client(wired, BearerToken("tok")) as client:
            answer = await client.call(ORG_CREATE, CreateOrg(name="acme", first_admin="ada"))
    assert answer.org_id == "org_1"
    keys = server.header("X-Idempotency-Key")
    assert len(keys) == 2
    assert len(set(keys)) == 1
    assert keys[0]


@pytest.fixture
def one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause before a second attempt exceeds the deadline."""
    monkeypatch.setattr(retries, "back_off_s", lambda attempt: 2 * DEADLINE_S)


@pytest.mark.usefixtures("one_attempt")
async def test_a_change_without_any_answer_is_an_unknown_outcome_with_its_key(lossy: Lossy) -> None:
    async with serving(Server(org()).app) as address, lossy(address) as (wired, wire):
        wire.answers_to_lose = 1000
        async with Client(wired, BearerToken("tok")) as client:
            with pytest.raises(OutcomeUnknown) as raised:
                await client.call(ORG_CREATE, CreateOrg(name="acme", first_admin="ada"), idempotency_key="k1")
    assert raised.value.idempotency_key == "k1"


@pytest.mark.usefixtures("one_attempt")
async def test_a_read_without_any_answer_is_unreachable(lossy: Lossy) -> None:
    async with serving(Server(org()).app) as address, lossy(address) as (wired, wire):
        wire.answers_to_lose = 1000
        async with Client(wired, BearerToken("tok")) as client:
            with pytest.raises(Unreachable):
                await client.call(ME)


async def test_a_server_without_tls_is_reported_and_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "back_off_s", lambda attempt: 2 * DEADLINE_S)
    async with (
        serving(Server(org()).app) as address,
        Client(address.replace("http:", "https:"), BearerToken("tok")) as client,
    ):
        with pytest.raises(Unreachable, match="does not use TLS") as raised:
            await client.call(ME)
    assert address in raised.value.fix


@pytest.mark.usefixtures("one_attempt")
async def test_a_change_that_never_left_is_unreachable_not_unknown() -> None:
    async with Client(f"http://127.0.0.1:{free_port()}", BearerToken("tok")) as client:
        with pytest.raises(Unreachable):
            await client.call(ORG_CREATE, CreateOrg(name="acme", first_admin="ada"))


async def test_a_change_whose_first_attempt_left_stays_unknown_when_later_attempts_cannot_connect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retries, "back_off_s", lambda attempt: 0.0 if attempt == 0 else 2 * DEADLINE_S)
    async with goes_down_after_one_request() as address, Client(address, BearerToken("tok")) as client:
        with pytest.raises(OutcomeUnknown, match="connection attempts failed") as raised:
            await client.call(ORG_CREATE, CreateOrg(name="acme", first_admin="ada"), idempotency_key="k1")
    assert raised.value.idempotency_key == "k1"


@asynccontextmanager
async def goes_down_after_one_request() -> AsyncIterator[str]:
    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        listener.close()
        writer.close()

    port = free_port()
    listener = await asyncio.start_server(receive, "127.0.0.1", port)
    yield f"http://127.0.0.1:{port}"
    listener.close()


async def test_a_change_that_never_left_before_the_time_was_up_is_unreachable_not_unknown() -> None:
    """A server whose queue is full: the kernel does not answer new connections."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as deaf, socket.create_connection(deaf.getsockname()):
        async with Client(f"http://127.0.0.1:{deaf.getsockname()[1]}", BearerToken("tok")) as client:
            with pytest.raises(Unreachable):
                await client.call(ORG_CREATE, CreateOrg(name="acme", first_admin="ada"), timeout_s=0.5)


@pytest.mark.parametrize(
    "refusal",
    [
        problem("unavailable", 503, retryable=True),
        problem("request_in_flight", 409, retryable=True),
        problem("slow_down", 429, retry_after="0"),
        Response("bad gateway", 502),
        Response("gateway timeout", 504),
        Response("Internal Server Error", 500),
    ],
)
async def test_a_passing_refusal_is_tried_again(refusal: Response) -> None:
    server = Server(refusal, org())
    async with talking_to(server) as client:
        assert (await client.call(ORG_CREATE, CreateOrg(name="acme", first_admin="ada"))).name == "acme"
    assert len(set(server.header("X-Idempotency-Key"))) == 1


async def test_retry_after_beyond_the_deadline_ends_the_call_at_once() -> None:
    async with talking_to(Server(problem("slow_down", 429, retry_after="3600"))) as client:
        async with asyncio.timeout(30):
            with pytest.raises(Unreachable, match="slow_down"):
                await client.call(ORG_CREATE, CreateOrg(name="acme", first_admin="ada"))


async def test_a_failure_inside_the_platform_is_not_tried_again() -> None:
    server = Server(problem("internal", 500, retryable=True))
    async with talking_to(server) as client:
        with pytest.raises(ApiError, match="because of internal"):
            await client.call(ORG_CREATE, CreateOrg(name="acme", first_admin="ada"))
    assert len(server.requests) == 1


async def test_a_refusal_is_raised_as_its_own_class() -> None:
    server = Server(problem("conflict", 409))
    async with talking_to(server) as client:
        with pytest.raises(Conflict) as raised:
            await client.call(ORG_CREATE, CreateOrg(name="acme", first_admin="ada"))
    error = raised.value
    assert (error.message, error.details, error.fix) == ("because of conflict", {"field": "name"}, "gpuaas look")
    assert error.correlation_id == "cor_7"
    assert len(server.requests) == 1


async def test_a_code_newer_than_the_sdk_keeps_its_name() -> None:
    async with talking_to(Server(problem("out_of_moon_dust", 418))) as client:
        with pytest.raises(ApiError) as raised:
            await client.call(ME)
    assert (raised.value.code, raised.value.status) == ("out_of_moon_dust", 418)


async def test_an_error_without_a_problem_document_quotes_the_answer() -> None:
    async with talking_to(Server(Response("<h1>It works</h1>", 404))) as client:
        with pytest.raises(ApiError, match="It works"):
            await client.call(ME)


async def test_an_answer_in_another_form_is_unreadable() -> None:
    async with talking_to(Server(Response("<h1>It works</h1>"))) as client:
        with pytest.raises(UnreadableAnswer):
            await client.call(ME)


async def test_the_path_is_encoded_and_the_request_carries_every_argument() -> None:
    answer = {"project_id": "p", "app_slug": "a/b", "enabled": True, "changed_by": "x", "changed_at": ORG["created_at"]}
    server = Server(JSONResponse(answer))
    async with talking_to(server) as client:
        body = SetEntitlement(enabled=True)
        await client.call(ENTITLEMENT_SET, body, dry_run=True, correlation="cor_1", project_id="p", app_slug="a/b ?")
    request = server.requests[0]
    assert request.scope["raw_path"] == b"/api/v1/projects/p/entitlements/a%2Fb%20%3F"
    assert request.headers["Authorization"] == "Bearer tok"
    assert request.headers["X-Correlation-ID"] == "cor_1"
    assert request.query_params["dry_run"] == "true"
    assert json.loads(await request.body())["enabled"] is True


@pytest.mark.parametrize(
    "path",
    [{}, {"project_id": "p"}, {"project_id": "p", "app_slug": "a", "extra": "x"}, {"project_id": "", "app_slug": "a"}],
)
async def test_wrong_path_parameters_are_a_type_error(path: dict[str, Any]) -> None:
    async with Client("http://127.0.0.1:9", NoAuth()) as client:
        with pytest.raises(TypeError, match="path parameters"):
            await client.call(ENTITLEMENT_SET, SetEntitlement(enabled=True), **path)


async def test_a_missing_body_and_an_unknown_query_are_type_errors() -> None:
    async with Client("http://127.0.0.1:9", NoAuth()) as client:
        with pytest.raises(TypeError, match="CreateOrg"):
            await client.call(ORG_CREATE)
        with pytest.raises(TypeError, match="unknown query parameters: colour"):
            await client.call(ORG_LIST, query={"colour": "red"})


def test_a_server_without_a_scheme_is_refused() -> None:
    with pytest.raises(ValueError, match="not a server address"):
        Client("cloud.example", NoAuth())


LAYER = {"layer": "project", "scope": "p", "overlay": {}, "revision": 7, "changed_by": "", "changed_at": None}


def layer() -> Response:
    return JSONResponse(LAYER, headers={"ETag": '"7"'})


async def test_what_was_read_is_changed_under_its_tag() -> None:
    server = Server(layer(), JSONResponse({**LAYER, "revision": 8, "ineffective": []}))
    async with talking_to(server) as client:
        before = await client.read(policy.PROJECT_GET, project_id="p")
        changed = await client.call(policy.PROJECT_SET, before.answer.overlay, if_match=before.etag, project_id="p")
    assert (before.answer.revision, changed.revision) == (7, 8)
    assert server.header("If-Match") == ["", '"7"']


async def test_a_change_of_something_that_has_changed_is_refused() -> None:
    async with talking_to(Server(problem("precondition_failed", 412))) as client:
        with pytest.raises(PreconditionFailed):
            await client.call(policy.PROJECT_SET, policy.Overlay(), if_match='"7"', project_id="p")


async def test_after_a_lost_answer_a_changed_resource_is_an_unknown_outcome() -> None:
    server = Server(Response("bad gateway", 502), problem("precondition_failed", 412))
    async with talking_to(server) as client:
        with pytest.raises(OutcomeUnknown, match="by this call"):
            await client.call(policy.PROJECT_SET, policy.Overlay(), if_match='"7"', project_id="p")
    assert server.header("If-Match") == ['"7"', '"7"']


async def test_pages_walk_to_the_end() -> None:
    first = JSONResponse({"items": [ORG], "next_page_token": "two"})
    server = Server(first, JSONResponse({"items": [{**ORG, "name": "beta"}], "next_page_token": None}))
    async with talking_to(server) as client:
        names = [org.name async for org in client.pages(ORG_LIST, query={"page_size": 1})]
    assert names == ["acme", "beta"]
    assert [dict(request.query_params) for request in server.requests] == [
        {"page_size": "1"},
        {"page_size": "1", "page_token": "two"},
    ]


async def test_a_given_token_that_expired_is_not_tried_twice() -> None:
    server = Server(problem("token_expired", 401))
    async with talking_to(server) as client:
        with pytest.raises(TokenExpired):
            await client.call(ME)
    assert len(server.requests) == 1


async def test_a_refused_service_account_token_is_renewed_once() -> None:
    platform = FakePlatform("demo")
    async with platform.serve() as client:
        await client.call(ME)
        platform.revoke_tokens()
        await asyncio.gather(client.call(ME), client.call(ME))
    assert [name for name, _ in platform.calls].count("auth.service_account_token") == 2


async def test_a_service_account_token_is_renewed_before_it_expires() -> None:
    platform, now = FakePlatform("demo"), 0.0
    async with serving(platform.app) as address:
        auth = ServiceAccount(platform.key_id, platform.client_secret, clock=lambda: now)
        async with Client(address, auth) as client:
            await client.call(ME)
            now = 3600 * 0.79
            await client.call(ME)
            now = 3600 * 0.81
            await client.call(ME)
    assert [name for name, _ in platform.calls].count("auth.service_account_token") == 2


def test_secrets_do_not_show_in_a_repr() -> None:
    assert "hush" not in repr(BearerToken("hush"))
    assert "hush" not in repr(ServiceAccount("key", "hush"))


async def test_watching_an_operation_lives_through_a_restart_of_the_server() -> None:
    platform, seen, port = FakePlatform("demo"), asyncio.Queue[str](), free_port()
    operation_id = platform.request(platform.add_instance({}), "deploy").operation_id
    async with AsyncExitStack() as first_life:
        address = await first_life.enter_async_context(serving(platform.app, port=port))
        client = platform.client(address)
        watching = asyncio.create_task(_watch(client, platform.project_id, operation_id, seen))
        assert await seen.get() == "accepted"
    platform.runtime.claim(ClaimOperation(app_slug="demo", holder="h", claim_id="c"))
    platform.runtime.complete(operation_id, CompleteOperation(epoch=1))
    async with serving(platform.app, port=port), client:
        await watching
    assert seen.get_nowait() == "succeeded"


async def _watch(client: Client, project_id: str, operation_id: str, seen: asyncio.Queue[str]) -> None:
    async for operation in client.watch_operation(project_id, operation_id):
        seen.put_nowait(operation.status)
