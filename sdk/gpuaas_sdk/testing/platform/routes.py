"""The endpoints of the contract that the fake platform serves, with the function that serves each."""

import asyncio
import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from gpuaas_contract import deliveries, placements, stewardships
from gpuaas_contract.access import MACHINE_ACCESS, MachineAccess, RequestMachineAccess
from gpuaas_contract.artifacts import LIST as ARTIFACT_LIST
from gpuaas_contract.artifacts import Artifact
from gpuaas_contract.catalog import PROJECT_APP_GET, AppVersion
from gpuaas_contract.controllers import CONTROLLER_LIST, CONTROLLER_LOG, Controller, ControllerLogLine
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.errors import ApiError
from gpuaas_contract.identity import PROJECT_LIST, Project
from gpuaas_contract.instances import INSTANCE_GET, INSTANCE_LIST, MEMBER_GET, MEMBER_LIST, Instance, Member
from gpuaas_contract.lifecycles import GONE_MEMBER
from gpuaas_contract.operations import OPERATION_GET, OPERATION_LOG, LogLine, Operation, OperationQuery, Receipt
from gpuaas_contract.posix import (
    POSIX_PEOPLE,
    POSIX_PEOPLE_DIGEST,
    PeopleDigest,
    PeopleDigestQuery,
    PosixPerson,
)
from gpuaas_contract.runtime import (
    ACCESS_PUBLISH,
    CLAIM,
    COMPLETE,
    FAIL,
    HEARTBEAT,
    MEMBER_REPORT,
    RUNTIME_REPORT,
    STEP_REPORT,
    Claim,
    ClaimOperation,
    ReportMember,
)
from gpuaas_contract.secrets import DELIVERY_OPEN, SECRET_ISSUE
from gpuaas_contract.usage import USAGE_REPORT
from gpuaas_contract.wire import Item, NoBody, Page, PageQuery
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpuaas_sdk.testing.platform import edge, rows
from gpuaas_sdk.testing.platform.artifacts import Artifacts
from gpuaas_sdk.testing.platform.edge import Changes, Edge
from gpuaas_sdk.testing.platform.observations import Observations
from gpuaas_sdk.testing.platform.records import Records
from gpuaas_sdk.testing.platform.runtime import Runtime
from gpuaas_sdk.testing.platform.secrets import Secrets
from gpuaas_sdk.testing.platform.stewards import Stewards
from gpuaas_sdk.testing.platform.usage import Usage

EXPIRY_CHECK_S = 0.05
"""Interval at which a waiting claim checks for expired leases."""


@dataclass(frozen=True)
class Login:
    """Where a controller logs in to a machine: address, user, and the public key of the host."""

    host: str
    port: int
    user: str
    host_public_key: str = ""


Locate = Callable[[str, RequestMachineAccess], Login]
"""Takes an allocation id and a request for access."""


def by_name(allocation_id: str, request: RequestMachineAccess) -> Login:
    """Return the machine of that name, which exists in memory only: see `FakeMachines`."""
    return Login(rows.place(allocation_id)["address"], 22, "observer" if request.instance_id else "root")


@dataclass(frozen=True)
class Routes:
    """The parts of the fake platform that serve requests."""

    edge: Edge
    changes: Changes
    records: Records
    runtime: Runtime
    observations: Observations
    stewards: Stewards
    secrets: Secrets
    artifacts: Artifacts
    usage: Usage
    locate: Locate = by_name
    visible_projects: Callable[[], Sequence[str]] = tuple

    def all(self) -> list[Route]:
        """Return every route."""
        route, runtime = self.edge.route, self.runtime
        return [
            *self.edge.routes(),
            route(PROJECT_LIST, self._project_list),
            route(CLAIM, self._claim),
            route(MACHINE_ACCESS, self._machine_access),
            self._change(HEARTBEAT, runtime.heartbeat),
            self._change(STEP_REPORT, runtime.report_step),
            self._change(ACCESS_PUBLISH, runtime.publish_access),
            self._change(COMPLETE, runtime.complete),
            self._change(FAIL, runtime.fail),
            self._change(SECRET_ISSUE, self.secrets.issue),
            self._change(DELIVERY_OPEN, self.secrets.open, about="delivery_id"),
            self._change(RUNTIME_REPORT, self.observations.report, about="instance_id"),
            self._change(deliveries.DELIVERY_CREATE, self.artifacts.deliver, about="artifact_id"),
            self._change(placements.PLACEMENT_REMOVE, self.artifacts.unplace, about="artifact_id"),
            self._change(placements.PLACEMENT_CREATE, self.artifacts.place, about="artifact_id"),
            self._change(stewardships.ACCESS_PUBLISH, self.stewards.publish_access, about="instance_id"),
            self._change(stewardships.OPERATION_REQUEST, self.stewards.request, about="instance_id"),
            self._change(USAGE_REPORT, self.usage.report, about="instance_id"),
            route(stewardships.RENEW, self._renew),
            route(MEMBER_REPORT, self._member_report),
            route(OPERATION_GET, self._operation_get),
            route(OPERATION_LOG, self._operation_log),
            route(INSTANCE_LIST, self._instance_list),
            route(INSTANCE_GET, self._instance_get),
            route(MEMBER_LIST, self._member_list),
            route(MEMBER_GET, self._member_get),
            route(CONTROLLER_LIST, self._controller_list),
            route(CONTROLLER_LOG, self._controller_log),
            route(POSIX_PEOPLE, self._people_list),
            route(POSIX_PEOPLE_DIGEST, self._people_digest),
            route(PROJECT_APP_GET, self._version_get),
            route(ARTIFACT_LIST, self._artifact_list),
            route(placements.PLACEMENT_GET, self._placement_get),
            Route(deliveries.CONTENT_PATH, self._artifact_content),
        ]

    def _change(
        self, endpoint: Endpoint[Any, Any], use: Callable[[str, Any], Any], about: str = "operation_id"
    ) -> Route:
        """Return a route that calls `use` with the id in the path parameter `about`, and then wakes every waiter."""

        async def reply(body: Any, request: Request) -> Any:
            answer = use(request.path_params[about], body)
            self.changes.wake()
            return answer

        return self.edge.route(endpoint, reply)

    async def _claim(self, body: ClaimOperation, request: Request) -> Claim:
        self.observations.check_app(body.app_slug)
        self.observations.seen(body.holder, body.controller_version)
        if body.report is not None:
            self.observations.note_report(body.holder, body.report)
        until = asyncio.get_running_loop().time() + body.wait_s
        # A caller that disconnected while it waited must not get an operation.
        while not await request.is_disconnected():
            claim = self.runtime.claim(body)
            left_s = until - asyncio.get_running_loop().time()
            if claim.operation is not None or left_s <= 0:
                self.changes.wake()
                return claim
            await self.changes.wait(min(left_s, EXPIRY_CHECK_S))
        return Claim()

    async def _renew(self, body: stewardships.RenewStewardships, request: Request) -> stewardships.Stewardships:
        self.observations.check_app(body.app_slug)
        answer = self.stewards.renew(body)
        self.changes.wake()
        return answer

    async def _member_report(self, body: ReportMember, request: Request) -> Receipt:
        path = request.path_params
        receipt = self.runtime.report_member(path["operation_id"], path["member_id"], body)
        self.changes.wake()
        return receipt

    async def _machine_access(self, body: RequestMachineAccess, request: Request) -> MachineAccess:
        allocation_id = request.path_params["allocation_id"]
        if body.instance_id:
            instance = self.stewards.check(body.instance_id, body.epoch)
            self.records.check_machine(instance.instance_id, allocation_id)
        else:
            operation = self.runtime.claimed(body.operation_id, body.epoch)
            targets = [target.allocation_id for target in operation.targets]
            self.records.check_machine(operation.instance_id, allocation_id, targets)
        login = self.locate(allocation_id, body)
        return MachineAccess(
            grant_id="grant_test",
            certificate="",
            serial="1",
            principal=f"observer/{allocation_id}" if body.instance_id else allocation_id,
            host=login.host,
            port=login.port,
            user=login.user,
            host_public_key=login.host_public_key,
            expires_at=self.records.clock() + datetime.timedelta(seconds=body.ttl_s),
        )

    async def _operation_get(self, body: NoBody, request: Request) -> Operation:
        operation_id = request.path_params["operation_id"]
        query = msgspec.convert(dict(request.query_params), OperationQuery, strict=False)
        until = asyncio.get_running_loop().time() + query.wait_s
        while self.records.operation(operation_id).revision == query.revision:
            left_s = until - asyncio.get_running_loop().time()
            if left_s <= 0:
                break
            await self.changes.wait(left_s)
        return self.records.operation(operation_id)

    async def _operation_log(self, body: NoBody, request: Request) -> Page[LogLine]:
        operation = self.records.operation(request.path_params["operation_id"])
        return _page(request, self.records.logs.get(operation.operation_id, []))

    async def _instance_list(self, body: NoBody, request: Request) -> Page[Instance]:
        instances = [self.stewards.shown(instance) for instance in list(self.records.instances.values())]
        return Page(items=[instance for instance in instances if _wanted(request, instance.status)])

    async def _instance_get(self, body: NoBody, request: Request) -> Instance:
        return self.stewards.shown(self.records.instance(request.path_params["instance_id"]))

    async def _member_list(self, body: NoBody, request: Request) -> Page[Member]:
        instance_id = self.records.instance(request.path_params["instance_id"]).instance_id
        members = [member for member in self.records.members.values() if member.instance_id == instance_id]
        return _page(
            request, [member for member in members if _wanted(request, member.status) and _asked(request, member)]
        )

    async def _member_get(self, body: NoBody, request: Request) -> Member:
        return self.records.member(request.path_params["instance_id"], request.path_params["member_id"])

    async def _controller_list(self, body: NoBody, request: Request) -> Page[Controller]:
        return Page(items=list(self.observations.controllers.values()))

    async def _controller_log(self, body: NoBody, request: Request) -> Page[ControllerLogLine]:
        return _page(request, self.observations.log(request.query_params.get("controller_id", "")))

    async def _project_list(self, body: NoBody, request: Request) -> Page[Project]:
        made_at = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
        projects = [
            Project(project_id=project_id, org_id="org_test", name=project_id, created_at=made_at)
            for project_id in self.visible_projects()
        ]
        return _page(request, projects)

    async def _people_list(self, body: NoBody, request: Request) -> Page[PosixPerson]:
        return _page(request, self.records.people)

    async def _people_digest(self, body: NoBody, request: Request) -> PeopleDigest:
        query = msgspec.convert(dict(request.query_params), PeopleDigestQuery, strict=False)
        until = asyncio.get_running_loop().time() + query.wait_s
        while (digest := self.records.people_digest()) == query.known:
            left_s = until - asyncio.get_running_loop().time()
            if left_s <= 0 or await request.is_disconnected():
                break
            await self.changes.wait(min(left_s, EXPIRY_CHECK_S))
        return PeopleDigest(digest=digest)

    async def _version_get(self, body: NoBody, request: Request) -> AppVersion:
        return self.artifacts.version(request.path_params["version"])

    async def _artifact_list(self, body: NoBody, request: Request) -> Page[Artifact]:
        shared = request.query_params.get("shared") == "true"
        return Page(items=[] if shared else self.artifacts.named(request.query_params.get("name", "")))

    async def _placement_get(self, body: NoBody, request: Request) -> placements.ArtifactPlacement:
        return self.artifacts.placement(request.path_params["placement_id"])

    async def _artifact_content(self, request: Request) -> Response:
        try:
            return Response(self.artifacts.content(request.path_params["delivery_id"], edge.bearer(request)))
        except ApiError as error:
            return edge.problem(error, request)


def _page(request: Request, items: Sequence[Item]) -> Page[Item]:
    """Return the part of the items that the request asks for."""
    named = {name: request.query_params[name] for name in ("page_size", "page_token") if name in request.query_params}
    query = msgspec.convert(named, PageQuery, strict=False)
    first = int(query.page_token or 0)
    page = list(items[first : first + query.page_size])
    return Page(items=page, next_page_token=str(first + len(page)) if first + len(page) < len(items) else None)


def _wanted(request: Request, status: str) -> bool:
    """Return whether the list contains resources of this status. With `live`, deleted and removed ones are left out."""
    return request.query_params.get("live") != "true" or status not in GONE_MEMBER | {"deleted"}


def _asked(request: Request, member: Member) -> bool:
    """Return whether the member passes the filters of the list."""
    query = request.query_params
    return (
        query.get("status") in (None, member.status)
        and query.get("component_key", "") in ("", member.component_key)
        and query.get("search", "").lower() in member.node_name.lower()
    )
