"""A platform in memory that speaks the runtime API over HTTP, with the real rules of claims, leases and lifecycles.

A test asks for operations, lets a `Runner` work against the address, and reads what is on record."""

import asyncio
import datetime
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
from gpuaas_contract.access import MACHINE_ACCESS, MachineAccess, RequestMachineAccess
from gpuaas_contract.endpoint import Answer, Endpoint, RequestBody
from gpuaas_contract.errors import (
    ApiError,
    CredentialsInvalid,
    IdempotencyKeyMissing,
    InvalidRequest,
    LeaseLost,
    NotFound,
    Problem,
    TokenInvalid,
    TokenMissing,
)
from gpuaas_contract.identity import ME, SERVICE_ACCOUNT_TOKEN, Me, ServiceAccountLogin, Token
from gpuaas_contract.instances import AccessBundle, Instance, Member
from gpuaas_contract.lifecycles import ENDED_OPERATION
from gpuaas_contract.operations import DEADLINES_S, OPERATION_GET, Operation, OperationKind, OperationQuery
from gpuaas_contract.runtime import (
    ACCESS_PUBLISH,
    CLAIM,
    COMPLETE,
    FAIL,
    HEARTBEAT,
    MEMBER_REPORT,
    STEP_REPORT,
    Claim,
    ClaimOperation,
)
from gpuaas_contract.wire import NoBody
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpuaas_sdk.auth import ServiceAccount
from gpuaas_sdk.client import Client
from gpuaas_sdk.testing import rows
from gpuaas_sdk.testing.records import Clock, Records
from gpuaas_sdk.testing.server import serving

EXPIRY_CHECK_S = 0.05
"""A waiting claim looks this often whether time alone has freed an operation."""


class FakePlatform:
    """One project with one service account, inside the test's event loop."""

    def __init__(self, app_slug: str, *, clock: Clock = lambda: datetime.datetime.now(datetime.UTC)) -> None:
        self.app_slug = app_slug
        self.project_id = "prj_test"
        self.key_id = "key_test"
        self.client_secret = secrets.token_hex(8)
        self.calls: list[tuple[str, Any]] = []
        """Every call that was let in: the endpoint's name and the request body."""
        self.records = Records(self.project_id, clock)
        self._clock = clock
        self._tokens: set[str] = set()
        self._changed = asyncio.Event()
        self.app = Starlette(routes=self._routes())

    def add_instance(
        self,
        members: Mapping[str, Sequence[str]],
        *,
        name: str = "demo",
        topology: str = "",
        inputs: dict[str, Any] | None = None,
        ready: bool = False,
    ) -> Instance:
        """`members` names the nodes of each role; `ready` makes it an instance that was deployed before."""
        instance = self.records.add_instance(self.app_slug, name, topology, inputs or {})
        for component_key, node_names in members.items():
            for node_name in node_names:
                self.records.add_member(instance, component_key, node_name)
        return self.records.make_ready(instance) if ready else instance

    def request(
        self,
        instance: Instance,
        kind: OperationKind,
        targets: Sequence[Member] | None = None,
        *,
        component_key: str = "",
        reason: str = "",
        force: bool = False,
        deadline_s: float | None = None,
    ) -> Operation:
        """Ask for an operation; without targets it is about every live member."""
        chosen = self.members(instance) if targets is None else targets
        asked = rows.Asked(
            targets=tuple(chosen),
            component_key=component_key,
            reason=reason,
            force=force,
            deadline_s=DEADLINES_S[kind] if deadline_s is None else deadline_s,
        )
        operation = self.records.add_operation(instance, kind, asked)
        self._wake()
        return operation

    def operation(self, operation_id: str) -> Operation:
        return self.records.operation(operation_id)

    def members(self, instance: Instance) -> list[Member]:
        return self.records.live_members(instance.instance_id)

    def member(self, member_id: str) -> Member:
        return self.records.members[member_id]

    def access_bundle(self, instance: Instance) -> AccessBundle:
        return self.records.access_bundles.get(instance.instance_id, AccessBundle())

    def expire_lease(self, operation_id: str) -> None:
        """As if the holder had been silent for the whole lease."""
        self.records.expire_lease(operation_id)
        self._wake()

    def revoke_tokens(self) -> None:
        """Every token given so far is refused from now on; the key stays good."""
        self._tokens.clear()

    async def until(
        self, operation_id: str, condition: Callable[[Operation], bool], *, timeout_s: float = 20
    ) -> Operation:
        async with asyncio.timeout(timeout_s):
            while not condition(found := self.operation(operation_id)):
                await self._changed.wait()
        return found

    async def ended(self, operation_id: str, *, timeout_s: float = 20) -> Operation:
        return await self.until(operation_id, lambda found: found.status in ENDED_OPERATION, timeout_s=timeout_s)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Client]:
        """Yields a client that is signed in as the service account."""
        async with serving(self.app) as server, self.client(server) as client:
            yield client

    def client(self, server: str) -> Client:
        return Client(server, ServiceAccount(self.key_id, self.client_secret))

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _routes(self) -> list[Route]:
        records = self.records
        return [
            self._route(SERVICE_ACCOUNT_TOKEN, self._sign_in),
            self._route(ME, self._me),
            self._route(CLAIM, self._claim),
            self._route(MACHINE_ACCESS, self._machine_access),
            self._report(HEARTBEAT, records.heartbeat),
            self._report(STEP_REPORT, records.step),
            self._report(ACCESS_PUBLISH, records.publish_access),
            self._report(COMPLETE, records.complete),
            self._report(FAIL, records.fail),
            self._route(MEMBER_REPORT, self._member_report),
            self._route(OPERATION_GET, self._operation_get),
        ]

    def _report(self, endpoint: Endpoint[Any, Any], use: Callable[[str, Any], Any]) -> Route:
        """A route about one operation; whatever it changes wakes who waits."""

        async def reply(body: Any, request: Request) -> Any:
            answer = use(request.path_params["operation_id"], body)
            self._wake()
            return answer

        return self._route(endpoint, reply)

    def _route(
        self, endpoint: Endpoint[RequestBody, Answer], reply: Callable[[RequestBody, Request], Awaitable[Answer]]
    ) -> Route:
        async def serve(request: Request) -> Response:
            try:
                self._check_caller(endpoint, request)
                body = _body(endpoint, await request.body())
                self.calls.append((endpoint.name, body))
                return _json(await reply(body, request), endpoint.status)
            except ApiError as error:
                return _problem(error, request.headers.get("X-Correlation-ID", ""))

        return Route(endpoint.path, serve, methods=[endpoint.method])

    def _check_caller(self, endpoint: Endpoint[Any, Any], request: Request) -> None:
        if endpoint.mutates and endpoint.repeat == "key" and "X-Idempotency-Key" not in request.headers:
            raise IdempotencyKeyMissing()
        if endpoint.audience == "public":
            return
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not token:
            raise TokenMissing()
        if token not in self._tokens:
            raise TokenInvalid()
        if request.path_params.get("project_id", self.project_id) != self.project_id:
            raise NotFound()

    async def _sign_in(self, body: ServiceAccountLogin, request: Request) -> Token:
        if (body.key_id, body.client_secret) != (self.key_id, self.client_secret):
            raise CredentialsInvalid()
        token = secrets.token_hex(16)
        self._tokens.add(token)
        return Token(access_token=token, expires_in_s=3600)

    async def _me(self, body: NoBody, request: Request) -> Me:
        return Me(actor_type="service_account", actor_id=self.key_id, name="test", bindings=[])

    async def _claim(self, body: ClaimOperation, request: Request) -> Claim:
        until = asyncio.get_running_loop().time() + body.wait_s
        # A caller that died while it waited must not be given work.
        while not await request.is_disconnected():
            claim = self.records.claim(body)
            left_s = until - asyncio.get_running_loop().time()
            if claim.operation is not None or left_s <= 0:
                self._wake()
                return claim
            await _woken(self._changed, min(left_s, EXPIRY_CHECK_S))
        return Claim()

    async def _member_report(self, body: Any, request: Request) -> Member:
        path = request.path_params
        member = self.records.report_member(path["operation_id"], path["member_id"], body)
        self._wake()
        return member

    async def _machine_access(self, body: RequestMachineAccess, request: Request) -> MachineAccess:
        allocation_id = request.path_params["allocation_id"]
        operation = self.records.operation(body.operation_id)
        if operation.epoch != body.epoch or operation.status in ENDED_OPERATION:
            raise LeaseLost()
        members = self.records.live_members(operation.instance_id)
        hosts = [member.address for member in members if member.allocation_id == allocation_id]
        if not hosts:
            raise NotFound()
        return MachineAccess(
            grant_id="grant_test",
            certificate="",
            serial=1,
            principal=allocation_id,
            host=hosts[0],
            port=22,
            user="root",
            host_public_key="",
            expires_at=self._clock() + datetime.timedelta(seconds=body.ttl_s),
        )

    async def _operation_get(self, body: NoBody, request: Request) -> Operation:
        operation_id = request.path_params["operation_id"]
        query = msgspec.convert(dict(request.query_params), OperationQuery, strict=False)
        until = asyncio.get_running_loop().time() + query.wait_s
        while self.operation(operation_id).revision == query.revision:
            left_s = until - asyncio.get_running_loop().time()
            if left_s <= 0:
                break
            await _woken(self._changed, left_s)
        return self.operation(operation_id)


def _body(endpoint: Endpoint[RequestBody, Any], content: bytes) -> RequestBody:
    try:
        return msgspec.json.decode(content or b"{}", type=endpoint.request)
    except msgspec.DecodeError as error:
        raise InvalidRequest(str(error)) from error


def _json(answer: object, status: int) -> Response:
    return Response(msgspec.json.encode(answer), status_code=status, media_type="application/json")


def _problem(error: ApiError, correlation_id: str) -> Response:
    problem = Problem(
        type=f"urn:gpuaas:problem:{error.code}",
        title=error.title,
        status=error.status,
        detail=error.message,
        code=error.code,
        message=error.message,
        correlation_id=correlation_id,
        details=error.details,
        retryable=error.retryable,
        fix=error.fix,
    )
    content = msgspec.json.encode(problem)
    return Response(content, status_code=error.status, media_type="application/problem+json")


async def _woken(changed: asyncio.Event, timeout_s: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(changed.wait(), timeout_s)
