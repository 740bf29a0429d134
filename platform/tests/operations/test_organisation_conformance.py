"""An account of an organisation, on two platforms: what the SDK's organisation in memory answers, the real one answers
too. Each test runs the same requests on both, over both engines."""

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from gpuaas_contract import catalog, errors, identity, instances, org_accounts, runtime, stewardships
from gpuaas_contract.endpoint import Endpoint
from gpuaas_sdk.testing import FakeOrganisation
from platform_world import FakeClock, OrgAccount, World

ABSENT = "proj_" + "0" * 26


@dataclass
class Side:
    """An organisation with two projects, and its account. `world` sends requests as the account."""

    world: World
    token: str
    first: str
    second: str

    async def call(self, endpoint: Endpoint[Any, Any], body: Any = None, *, project_id: str = "", **path: str) -> Any:
        """Return the answer, or the code of the refusal."""
        where = {"project_id": project_id or self.first, **path}
        try:
            return await self.world.call(endpoint, body, token=self.token, **where)
        except errors.ApiError as refused:
            return refused.code

    async def claim(self, project_id: str, app_slug: str = "toy") -> Any:
        body = {"app_slug": app_slug, "holder": "fleet", "claim_id": uuid.uuid4().hex, "lease_s": 60}
        return await self.call(runtime.CLAIM, body, project_id=project_id)

    async def projects(self) -> set[str]:
        return {project.project_id for project in (await self.call(identity.PROJECT_LIST)).items}

    async def accept(self, project_id: str) -> None: ...
    async def dismiss(self, project_id: str) -> None: ...
    async def deploy(self) -> None: ...


class Real(Side):
    account: OrgAccount

    async def accept(self, project_id: str) -> None:
        where = {"project_id": project_id, "service_account_id": self.account.service_account_id}
        await self.world.call(org_accounts.ACCEPT, **where)

    async def dismiss(self, project_id: str) -> None:
        where = {"project_id": project_id, "service_account_id": self.account.service_account_id}
        await self.world.call(org_accounts.DISMISS, **where)

    async def deploy(self) -> None:
        await self.world.deploy()


class Fake(Side):
    organisation: FakeOrganisation

    async def accept(self, project_id: str) -> None:
        self.organisation.accept(project_id)

    async def dismiss(self, project_id: str) -> None:
        self.organisation.dismiss(project_id)

    async def deploy(self) -> None:
        project = self.organisation.projects[self.first]
        project.request(project.add_instance({"head": ["one-head"], "hand": ["one-hand-0"]}), "deploy")


@pytest.fixture
async def sides(world: World, clock: FakeClock) -> AsyncIterator[tuple[Side, Side]]:
    await world.entitled_app()
    org_id = (await world.call(identity.ORG_LIST)).items[0].org_id
    second = await world.call(identity.PROJECT_CREATE, {"name": "second"}, org_id=org_id)
    await world.call(catalog.ENTITLEMENT_SET, {"enabled": True}, app_slug="toy", project_id=second.project_id)
    account = await world.org_account()
    real = Real(world, account.token, world.project_id, second.project_id)
    real.account = account
    organisation = FakeOrganisation("toy", ["prj_1", "prj_2"], clock=clock)
    transport = httpx.ASGITransport(app=organisation.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://fake") as client:
        copy = World(world.site, clock, client, project_id="prj_1")
        login = identity.ServiceAccountLogin(key_id=organisation.key_id, client_secret=organisation.client_secret)
        token = (await copy.call(identity.SERVICE_ACCOUNT_TOKEN, login)).access_token
        fake = Fake(copy, token, "prj_1", "prj_2")
        fake.organisation = organisation
        yield fake, real


async def test_a_project_that_does_not_accept_the_account_looks_absent(sides: tuple[Side, Side]) -> None:
    for side in sides:
        await side.accept(side.second)
        await side.deploy()
        for hidden in (side.first, ABSENT):
            assert await side.claim(hidden) == "not_found", side
            assert await side.call(instances.INSTANCE_LIST, project_id=hidden) == "not_found", side
        assert (await side.claim(side.second)).operation is None, side
        assert await side.projects() == {side.second}, side
        assert (await side.call(identity.ME)).actor_type == "service_account", side


async def test_work_is_claimed_in_its_own_project_only(sides: tuple[Side, Side]) -> None:
    for side in sides:
        await side.accept(side.first)
        await side.accept(side.second)
        await side.deploy()
        assert (await side.claim(side.second)).operation is None, side
        assert await side.claim(side.first, "other") in ("insufficient_permissions", "app_unknown"), side
        claim = await side.claim(side.first)
        where = {"operation_id": claim.operation.operation_id}
        beat = {"epoch": claim.epoch}
        assert await side.call(runtime.HEARTBEAT, beat, project_id=side.second, **where) == "not_found", side
        assert (await side.call(runtime.HEARTBEAT, beat, **where)).lease.holder == "fleet", side


async def test_a_dismissed_account_loses_its_work_also_if_it_is_accepted_again(sides: tuple[Side, Side]) -> None:
    for side in sides:
        await side.accept(side.first)
        await side.deploy()
        claim = await side.claim(side.first)
        where, beat = {"operation_id": claim.operation.operation_id}, {"epoch": claim.epoch}
        renew = {"app_slug": "toy", "holder": "fleet", "take_max": 9}
        await side.dismiss(side.first)
        assert await side.call(runtime.HEARTBEAT, beat, **where) == "not_found", side
        assert await side.call(stewardships.RENEW, renew) == "not_found", side
        assert await side.projects() == set(), side
        await side.accept(side.first)
        assert await side.call(runtime.HEARTBEAT, beat, **where) == "lease_lost", side
        again = await side.claim(side.first)
        assert (again.operation.operation_id, again.epoch) == (where["operation_id"], claim.epoch + 1), side
