"""The HTTP side of the fake platform: authentication, request bodies, problem documents."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from gpuaas_contract.endpoint import Answer, Endpoint, RequestBody
from gpuaas_contract.errors import (
    ApiError,
    CredentialsInvalid,
    IdempotencyKeyMissing,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    Problem,
    SecretAlreadyDelivered,
    TokenInvalid,
    TokenMissing,
)
from gpuaas_contract.identity import ME, SERVICE_ACCOUNT_TOKEN, Me, ServiceAccountLogin, Token
from gpuaas_contract.wire import NoBody
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

Fate = Literal["serve", "drop", "lose", "double"]
"""What happens to a call: it is served; it is not executed; it is executed and its answer is lost; it is executed
twice. In the second and third case the caller gets status 502."""


class Received(msgspec.Struct, frozen=True):
    """A call that arrived, for `FakePlatform.on_call`."""

    name: str
    """Name of the endpoint."""
    body: Any
    path: dict[str, Any]
    """Path parameters."""
    correlation_id: str = ""


OnCall = Callable[[Received], Awaitable[Fate]]


async def _serve_call(_: Received) -> Fate:
    return "serve"


class Changes:
    """Wakes every waiting request when the state of the fake platform has changed."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """Wake every task that waits now."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def wait(self, timeout_s: float | None = None) -> None:
        """Wait for the next change, or until the timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()


@dataclass(frozen=True)
class Account:
    """The service account of the fake platform: the apps that it operates, and its permissions."""

    actor_id: str
    apps: frozenset[str]
    permissions: frozenset[str]


@dataclass(frozen=True)
class SignIn:
    """The key of the service account, and the tokens that were issued for it."""

    key_id: str = "key_test"
    client_secret: str = field(default_factory=lambda: secrets.token_hex(8))
    tokens: set[str] = field(default_factory=set)


class Edge:
    """The fake platform's API: one service account can use one project, and its calls are recorded for the test."""

    def __init__(self, project_id: str, account: Account, sign_in: SignIn) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.answers_to_lose: Counter[str] = Counter()
        self.tokens = sign_in.tokens
        self.on_call: OnCall = _serve_call
        self.refusals: list[tuple[str, str]] = []
        """Endpoint and error code of every refused call."""
        self._project_id = project_id
        self._account = account
        self._client_secret = sign_in.client_secret
        self._keys: set[str] = set()

    def routes(self) -> list[Route]:
        """Return the routes that sign the account in and return its identity."""
        return [self.route(SERVICE_ACCOUNT_TOKEN, self._sign_in), self.route(ME, self._me)]

    def route(
        self, endpoint: Endpoint[RequestBody, Answer], reply: Callable[[RequestBody, Request], Awaitable[Answer]]
    ) -> Route:
        """Return a route that serves an endpoint of the contract with the function `reply`."""

        async def serve(request: Request) -> Response:
            try:
                self._check_caller(endpoint, request)
                body = _body(endpoint, await request.body())
                self.calls.append((endpoint.name, body))
                fate = await self.on_call(_received(endpoint, body, request))
                if fate == "drop":
                    return Response("the test dropped the request", 502)
                if fate == "double":
                    await reply(body, request)
                answer = await reply(body, request)
            except ApiError as error:
                self.refusals.append((endpoint.name, error.code))
                return problem(error, request)
            except ClientDisconnect:  # the process of the client was killed
                return Response(status_code=400)
            if fate == "lose":
                return Response("the test discarded the response", 502)
            if self.answers_to_lose[endpoint.name]:
                self.answers_to_lose[endpoint.name] -= 1
                return Response("the test discarded the response", 502)
            return Response(msgspec.json.encode(answer), endpoint.status, media_type="application/json")

        return Route(endpoint.path, serve, methods=[endpoint.method])

    def _check_caller(self, endpoint: Endpoint[Any, Any], request: Request) -> None:
        if endpoint.mutates and endpoint.repeat == "key":
            self._check_key(endpoint, request.headers.get("X-Idempotency-Key", ""))
        if endpoint.audience == "public":
            return
        token = bearer(request)
        if not token:
            raise TokenMissing()
        if token not in self.tokens:
            raise TokenInvalid()
        if request.path_params.get("project_id", self._project_id) != self._project_id:
            raise NotFound()
        if endpoint.permission and endpoint.permission not in self._account.permissions:
            raise PermissionDenied(f"This needs {endpoint.permission}.", details={"permission": endpoint.permission})

    def _check_key(self, endpoint: Endpoint[Any, Any], key: str) -> None:
        """Refuse to repeat an endpoint that returns a secret. Any other repeated request is executed again."""
        if not key:
            raise IdempotencyKeyMissing()
        if endpoint.secret_answer and key in self._keys:
            raise SecretAlreadyDelivered()
        self._keys.add(key)

    async def _sign_in(self, body: ServiceAccountLogin, request: Request) -> Token:
        if (body.key_id, body.client_secret) != (self._account.actor_id, self._client_secret):
            raise CredentialsInvalid()
        token = secrets.token_hex(16)
        self.tokens.add(token)
        return Token(access_token=token, expires_in_s=3600)

    async def _me(self, body: NoBody, request: Request) -> Me:
        return Me(actor_type="service_account", actor_id=self._account.actor_id, name="test", bindings=[])


def bearer(request: Request) -> str:
    """Return the bearer token of the request; empty if it has none."""
    return request.headers.get("Authorization", "").removeprefix("Bearer ")


def problem(error: ApiError, request: Request) -> Response:
    """Return the error as a problem document."""
    document = Problem(
        type=f"urn:gpuaas:problem:{error.code}",
        title=error.title,
        status=error.status,
        detail=error.message,
        code=error.code,
        message=error.message,
        correlation_id=request.headers.get("X-Correlation-ID", ""),
        details=error.details,
        retryable=error.retryable,
        fix=error.fix,
    )
    return Response(msgspec.json.encode(document), error.status, media_type="application/problem+json")


def _received(endpoint: Endpoint[Any, Any], body: Any, request: Request) -> Received:
    return Received(endpoint.name, body, dict(request.path_params), request.headers.get("X-Correlation-ID", ""))


def _body(endpoint: Endpoint[RequestBody, Any], content: bytes) -> RequestBody:
    try:
        return msgspec.json.decode(content or b"{}", type=endpoint.request)
    except msgspec.DecodeError as error:
        raise InvalidRequest(str(error)) from error
