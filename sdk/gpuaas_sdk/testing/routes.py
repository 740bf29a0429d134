"""Which endpoint of the contract the platform in memory answers with what. `platform` serves them through `edge`."""

import asyncio
import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from gpuaas_contract import artifacts, deliveries, placements
from gpuaas_contract.access import MACHINE_ACCESS, MachineAccess, RequestMachineAccess
from gpuaas_contract.catalog import PROJECT_APP_GET, AppVersion
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.errors import ApiError
from gpuaas_contract.instances import INSTANCE_GET, INSTANCE_LIST, MEMBER_LIST, Instance, Member
from gpuaas_contract.lifecycles import GONE_MEMBER
from gpuaas_contract.operations import OPERATION_GET, Operation, OperationQuery
from gpuaas_contract.runtime import (
    ACCESS_PUBLISH,
    CLAIM,
    COMPLETE,
    CONTROLLER_LIST,
    FAIL,
    HEARTBEAT,
    MEMBER_REPORT,
    RUNTIME_REPORT,
    STEP_REPORT,
    Claim,
    ClaimOperation,
    Controller,
)
from gpuaas_contract.secrets import DELIVERY_OPEN, SECRET_ISSUE
from gpuaas_contract.wire import NoBody, Page
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpuaas_sdk.testing import edge, rows
from gpuaas_sdk.testing.custody import Custody
from gpuaas_sdk.testing.edge import Edge, News
from gpuaas_sdk.testing.observing import Observations
from gpuaas_sdk.testing.records import Records
from gpuaas_sdk.testing.shelf import Shelf

EXPIRY_CHECK_S = 0.05
"""A waiting claim looks this often whether time alone has freed an operation."""


@dataclass(frozen=True)
class Routes:
    edge: Edge
    news: News
    records: Records
    observations: Observations
    custody: Custody
    shelf: Shelf

    def all(self) -> list[Route]:
        route, records = self.edge.route, self.records
        return [
            *self.edge.routes(),
            route(CLAIM, self._claim),
            route(MACHINE_ACCESS, self._machine_access),
            self._change(HEARTBEAT, records.heartbeat),
            self._change(STEP_REPORT, records.step),
            self._change(ACCESS_PUBLISH, records.publish_access),
            self._change(COMPLETE, records.complete),
            self._change(FAIL, records.fail),
            self._change(SECRET_ISSUE, self.custody.issue),
            self._change(DELIVERY_OPEN, self.custody.open, about="delivery_id"),
            self._change(RUNTIME_REPORT, self.observations.report, about="instance_id"),
            self._change(deliveries.DELIVERY_CREATE, self.shelf.deliver, about="artifact_id"),
            self._change(placements.PLACEMENT_CREATE, self.shelf.place, about="artifact_id"),
            route(MEMBER_REPORT, self._member_report),
            route(OPERATION_GET, self._operation_get),
            route(INSTANCE_LIST, self._instance_list),
            route(INSTANCE_GET, self._instance_get),
            route(MEMBER_LIST, self._member_list),
            route(CONTROLLER_LIST, self._controller_list),
            route(PROJECT_APP_GET, self._version_get),
            route(artifacts.LIST, self._artifact_list),
            route(placements.PLACEMENT_GET, self._placement_get),
            Route(deliveries.CONTENT_PATH, self._artifact_content),
        ]

    def _change(
        self, endpoint: Endpoint[Any, Any], use: Callable[[str, Any], Any], about: str = "operation_id"
    ) -> Route:
        """A route about one operation, or what `about` names; whatever it changes wakes who waits."""

        async def reply(body: Any, request: Request) -> Any:
            answer = use(request.path_params[about], body)
            self.news.wake()
            return answer

        return self.edge.route(endpoint, reply)

    async def _claim(self, body: ClaimOperation, request: Request) -> Claim:
        self.observations.check_app(body.app_slug)
        self.observations.seen(body.holder, body.controller_version)
        until = asyncio.get_running_loop().time() + body.wait_s
        # A caller that died while it waited must not be given work.
        while not await request.is_disconnected():
            claim = self.records.claim(body)
            left_s = until - asyncio.get_running_loop().time()
            if claim.operation is not None or left_s <= 0:
                self.news.wake()
                return claim
            await self.news.wait(min(left_s, EXPIRY_CHECK_S))
        return Claim()

    async def _member_report(self, body: Any, request: Request) -> Member:
        path = request.path_params
        member = self.records.report_member(path["operation_id"], path["member_id"], body)
        self.news.wake()
        return member

    async def _machine_access(self, body: RequestMachineAccess, request: Request) -> MachineAccess:
        allocation_id = request.path_params["allocation_id"]
        operation = self.records.held(body.operation_id, body.epoch)
        self.records.check_machine(operation, allocation_id)
        return MachineAccess(
            grant_id="grant_test",
            certificate="",
            serial="1",
            principal=allocation_id,
            host=rows.place(allocation_id)["address"],
            port=22,
            user="root",
            host_public_key="",
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
            await self.news.wait(left_s)
        return self.records.operation(operation_id)

    async def _instance_list(self, body: NoBody, request: Request) -> Page[Instance]:
        return Page(items=[found for found in self.records.instances.values() if _wanted(request, found.status)])

    async def _instance_get(self, body: NoBody, request: Request) -> Instance:
        return self.records.instance(request.path_params["instance_id"])

    async def _member_list(self, body: NoBody, request: Request) -> Page[Member]:
        instance_id = self.records.instance(request.path_params["instance_id"]).instance_id
        members = [member for member in self.records.members.values() if member.instance_id == instance_id]
        return Page(items=[member for member in members if _wanted(request, member.status)])

    async def _controller_list(self, body: NoBody, request: Request) -> Page[Controller]:
        return Page(items=list(self.observations.controllers.values()))

    async def _version_get(self, body: NoBody, request: Request) -> AppVersion:
        return self.shelf.version(request.path_params["version"])

    async def _artifact_list(self, body: NoBody, request: Request) -> Page[artifacts.Artifact]:
        shared = request.query_params.get("shared") == "true"
        return Page(items=[] if shared else self.shelf.named(request.query_params.get("name", "")))

    async def _placement_get(self, body: NoBody, request: Request) -> placements.ArtifactPlacement:
        return self.shelf.placement(request.path_params["placement_id"])

    async def _artifact_content(self, request: Request) -> Response:
        try:
            return Response(self.shelf.content(request.path_params["delivery_id"], edge.bearer(request)))
        except ApiError as error:
            return edge.problem(error, request)


def _wanted(request: Request, status: str) -> bool:
    """Lists leave out what is gone when they are asked for what lives."""
    return request.query_params.get("live") != "true" or status not in GONE_MEMBER | {"deleted"}
