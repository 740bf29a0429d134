"""Attack: the service account of one app claims the work of another app in the same project. With the claim came a
certificate for the machines of that app. The same account shows itself as the controller of the other app."""

import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract import access, audit, catalog, identity, instances, operations, runtime, secrets, usage
from gpuaas_contract.controllers import CONTROLLER_LIST
from gpuaas_contract.endpoint import AnyEndpoint
from platform_world import ssh_public_key
from server_process import APP, Cloud, ServerProcess

PURPOSES = {"secret_purposes": ["role_join"]}


@dataclass
class Attacked:
    """An instance of the app `toy`, whose controller works on its deploy, and an attacker with an account of `tool`."""

    cloud: Cloud
    controller: str
    attacker: str
    deployed: instances.Deployed

    async def attack(self, endpoint: AnyEndpoint, body: Any, **path: Any) -> tuple[int, str]:
        answer = await self.cloud.send(endpoint, body, token=self.attacker, **path)
        return answer.status_code, answer.json().get("code", "")

    async def claim(self, token: str, app_slug: str = "toy") -> httpx.Response:
        body = {"app_slug": app_slug, "holder": "toy@host", "claim_id": uuid.uuid4().hex, "lease_s": 60}
        return await self.cloud.send(runtime.CLAIM, body, token=token)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Address of the server, and the password of its admin."""
    with ServerProcess(tmp_path_factory.mktemp("attacked") / "data") as server:
        yield server.url, server.admin_password()


@pytest.fixture
async def attacked(served: tuple[str, str]) -> AsyncIterator[Attacked]:
    async with httpx.AsyncClient(base_url=served[0], timeout=60) as client:
        cloud = Cloud(client)
        await cloud.sign_in(served[1])
        await cloud.make_project()
        for manifest in ({**APP, **PURPOSES, "version": "1.1.0"}, {**APP, "slug": "tool"}):
            where = {"app_slug": manifest["slug"], "version": manifest["version"]}
            await cloud.call(catalog.VERSION_REGISTER, manifest)
            await cloud.call(catalog.VERSION_PUBLISH, {}, **where)
            await cloud.call(catalog.ENTITLEMENT_SET, {"enabled": True}, app_slug=manifest["slug"])
        inputs = {"allocation": await cloud.allocation()}
        body = instances.DeployInstance(name="one", app_slug="toy", topology="solo", inputs=inputs)
        deployed = await cloud.call(instances.INSTANCE_CREATE, body)
        controller = await cloud.service_account("toy-controller", "toy")
        yield Attacked(cloud, controller, await cloud.service_account("tool-controller", "tool"), deployed)


async def test_work_of_another_app_is_not_claimed_and_its_controller_is_not_imitated(attacked: Attacked) -> None:
    refused = await attacked.claim(attacked.attacker)
    assert (refused.status_code, refused.json()["code"]) == (403, "insufficient_permissions")
    assert (await attacked.cloud.call(CONTROLLER_LIST)).items == []
    operation_id = attacked.deployed.operation.operation_id
    operation = await attacked.cloud.call(operations.OPERATION_GET, operation_id=operation_id)
    assert (operation.status, operation.epoch, operation.lease) == ("accepted", 0, None)
    denied = await attacked.cloud.call(audit.AUDIT_LIST, query={"result": "failure"})
    assert [(row.action, row.actor_name) for row in denied.items] == [("authz.deny", "tool-controller")]
    assert (await attacked.claim(attacked.attacker, "tool")).status_code == 200


async def test_nothing_is_done_with_the_epoch_of_another_apps_controller(attacked: Attacked) -> None:
    claim = (await attacked.claim(attacked.controller)).json()
    operation_id, epoch = claim["operation"]["operation_id"], claim["epoch"]
    (member,) = attacked.deployed.members
    key = ssh_public_key(Ed25519PrivateKey.generate())
    where = {"operation_id": operation_id}
    instance = {"instance_id": attacked.deployed.instance.instance_id}
    fail = {"epoch": epoch, "code": "x", "message": "x", "failure_class": "lost"}
    seen = {"holder": "toy@host", "observed_revision": 1}
    used = {"record_id": "r1", "meter": "gpu-time", "quantity": "1", "unit": "s"}
    times = {"started_at": "2026-01-01T00:00:00Z", "ended_at": "2026-01-01T01:00:00Z"}
    attempts: list[tuple[AnyEndpoint, dict[str, Any], dict[str, str]]] = [
        (runtime.HEARTBEAT, {"epoch": epoch}, where),
        (runtime.STEP_REPORT, {"epoch": epoch, "name": "x", "state": "running"}, where),
        (runtime.MEMBER_REPORT, {"epoch": epoch, "status": "failed"}, {**where, "member_id": member.member_id}),
        (runtime.ACCESS_PUBLISH, {"epoch": epoch}, where),
        (runtime.COMPLETE, {"epoch": epoch}, where),
        (runtime.FAIL, fail, where),
        (runtime.RUNTIME_REPORT, seen, instance),
        (secrets.SECRET_ISSUE, {"epoch": epoch, "purpose": "role_join", "name": "x"}, where),
        (usage.USAGE_REPORT, {"records": [{**used, **times}]}, instance),
        (
            access.MACHINE_ACCESS,
            {"public_key": key, "operation_id": operation_id, "epoch": epoch},
            {"allocation_id": member.allocation_id},
        ),
    ]
    answers = {endpoint.name: await attacked.attack(endpoint, body, **path) for endpoint, body, path in attempts}
    assert answers == {endpoint.name: (403, "insufficient_permissions") for endpoint, _, _ in attempts}
    (controller,) = (await attacked.cloud.call(CONTROLLER_LIST)).items
    me = await attacked.cloud.call(identity.ME, token=attacked.controller)
    assert (controller.app_slug, controller.actor_id) == ("toy", me.actor_id)


async def test_an_account_uses_only_permissions_that_its_app_offers(attacked: Attacked) -> None:
    instance = {"instance_id": attacked.deployed.instance.instance_id}
    answer = await attacked.attack(instances.DECOMMISSION, {"reason": "mine now"}, **instance)
    assert answer == (403, "insufficient_permissions")
    more = {"name": "more", "apps": ["tool"], "permissions": ["apps.instance.decommission"]}
    refused = await attacked.cloud.send(identity.SERVICE_ACCOUNT_CREATE, more)
    assert (refused.status_code, refused.json()["details"]["field"]) == (400, "permissions")


async def test_an_account_that_loses_its_app_loses_the_work_at_once(attacked: Attacked) -> None:
    claim = (await attacked.claim(attacked.controller)).json()
    where = {"service_account_id": "toy-controller"}
    await attacked.cloud.call(identity.SERVICE_ACCOUNT_BIND, {"apps": ["tool"]}, **where)
    beat = {"epoch": claim["epoch"]}
    operation_id = claim["operation"]["operation_id"]
    answer = await attacked.cloud.send(runtime.HEARTBEAT, beat, token=attacked.controller, operation_id=operation_id)
    assert answer.status_code == 403
    assert (await attacked.claim(attacked.controller)).status_code == 403
    bound = [event for event in await attacked.cloud.recorded() if event.type == "identity.service_account.bound"]
    assert [(event.payload["was"], event.payload["apps"]) for event in bound] == [(["toy"], ["tool"])]
