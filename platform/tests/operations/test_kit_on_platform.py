"""The controller kit against the real platform over a socket: what people ask for goes through an app's handlers."""

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from artifact_world import CONTENT, digest_of, promoted, trusted
from gpuaas_contract import actions, identity, instances, lifecycles, operations
from gpuaas_contract.controllers import CONTROLLER_LIST
from gpuaas_platform import server
from gpuaas_platform.edge import http
from gpuaas_platform.kit.settings import Settings
from gpuaas_sdk.auth import ServiceAccount
from gpuaas_sdk.client import Client
from gpuaas_sdk.controller import (
    App,
    Evidence,
    HealthSettings,
    Member,
    Operation,
    Preview,
    Reconciliation,
    ReportedCondition,
    RunnerSettings,
)
from gpuaas_sdk.testing import serving
from platform_world import MANIFEST, RealClock, World
from scripted_controller import CLUSTERED, Cluster, Controller, take_exit

TOY: dict[str, Any] = {
    **CLUSTERED,
    "permissions": {"shop.queue.flush": {"meaning": "empty the queue", "roles": ["project_member"]}},
    "actions": [
        {"name": "flush", "title": "Flush", "permission": "shop.queue.flush", "input_schema": {"type": "object"}}
    ],
    "artifacts": {"image": {"digest": digest_of(CONTENT)}},
}
SETTINGS = RunnerSettings(lease_s=6, claim_wait_s=5, health=HealthSettings(interval_s=0.2))


def idle() -> Evidence:
    return Evidence(state="idle", source="toy", observed_at=datetime.datetime.now(datetime.UTC))


async def nothing() -> None:
    return None


async def for_ever() -> None:
    await asyncio.Event().wait()


def toy(folder: Path) -> App:
    """An app that puts members where they should be, and hangs when the reason is `hang`."""
    manifest = folder / "manifest.yaml"
    manifest.write_bytes(msgspec.json.encode({**MANIFEST, **TOY}))
    app = App("toy", manifest=manifest, settings=SETTINGS)

    @app.operation("deploy")
    @app.operation("add", role="hand")
    async def bring_up(op: Operation) -> None:
        async def bring_up_member(member: Member) -> None:
            await op.report(member, status="provisioning")
            await op.step("install", for_ever if op.reason == "hang" else nothing, member=member)
            await op.report(member, status="joining")
            await op.report(member, status="ready", version=op.instance.app_version)

        await op.each(op.to_do, bring_up_member)

    @app.undo("add", role="hand")
    async def take_off(op: Operation) -> None:
        for member in op.to_do:
            await op.step("take off", nothing, member=member)
            await op.report(member, status="removing")
            await op.report(member, status="removed")

    @app.operation("replace", role="hand")
    async def replace(op: Operation) -> None:
        for member in op.to_do:
            await op.report(member, status="removing", evidence=idle())
            moved = await op.report(member, status="provisioning")
            assert moved.allocation_id == op.replacement(member)
            await op.report(moved, status="joining")
            await op.report(moved, status="ready")

    @app.operation("stop")
    async def stop(op: Operation) -> None:
        for member in op.targets:
            await op.report(member, status="drained")

    @app.action("flush")
    async def flush(op: Operation) -> dict[str, Any]:
        token, image = await op.secret("role_join", "token"), await op.artifact("image")
        async with httpx.AsyncClient(timeout=60) as machine:
            answer = await machine.get(image.url, headers={"Authorization": f"Bearer {image.token}"})
        return {"queue": op.inputs["queue"], "token of": len(token), "image": digest_of(answer.content)}

    @app.preview("stop")
    async def look(op: Operation) -> Preview:
        return Preview(answered=True, source="toy", notes=[f"{len(op.targets)} members would stop"])

    @app.health()
    async def reconcile(now: Reconciliation) -> None:
        ready = all(member.status == "ready" for member in now.members)
        await now.report([ReportedCondition(type="AllReady", status="true" if ready else "false")])

    return app


@pytest.fixture
async def cluster(settings: Settings, tmp_path: Path) -> AsyncIterator[Cluster]:
    """An instance of the app, deployed by its controller, which continues to work."""
    async with contextlib.AsyncExitStack() as stack:
        clock = RealClock()
        site = await stack.enter_async_context(server.open_site(settings, clock))
        application = http.application(site, server.DOMAINS)
        address = await stack.enter_async_context(serving(application))
        stack.callback(site.hub.close)
        transport = httpx.ASGITransport(app=application)
        people = await stack.enter_async_context(httpx.AsyncClient(transport=transport, base_url=address))
        world = await World.make(site, clock, people)
        await promoted(world, await trusted(world), name="image")
        await world.entitled_app(**TOY)
        client = await stack.enter_async_context(Client(address, await _service_account(world)))
        working = asyncio.create_task(_awaited(toy(tmp_path).runner(client, world.project_id, "toy@test").run()))
        stack.push_async_callback(_stopped, working)
        deployed = await world.deploy(hands=2)
        running = Cluster(world, Controller(world, ""), deployed.instance.instance_id)
        assert (await ended(running, deployed.operation)).status == "succeeded"
        yield running


async def _service_account(world: World) -> ServiceAccount:
    account = await world.call(identity.SERVICE_ACCOUNT_CREATE, identity.CreateServiceAccount(name="toy", apps=["toy"]))
    where = {"service_account_id": account.service_account_id}
    key = await world.call(identity.SERVICE_ACCOUNT_KEY_CREATE, **where)
    return ServiceAccount(key.key_id, key.client_secret)


async def _awaited(work: Any) -> None:
    await work


async def _stopped(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


async def until(cluster: Cluster, asked: operations.Operation, *statuses: str) -> operations.Operation:
    operation = asked
    async with asyncio.timeout(60):
        while operation.status not in statuses:
            query = {"wait_s": 10, "revision": operation.revision}
            where = {"operation_id": asked.operation_id}
            operation = await cluster.world.call(operations.OPERATION_GET, query=query, **where)
    return operation


async def ended(cluster: Cluster, asked: operations.Operation) -> operations.Operation:
    return await until(cluster, asked, *lifecycles.ENDED_OPERATION)


async def settled(cluster: Cluster, status: str) -> instances.Instance:
    """The instance, once the reconcile handler has seen what the test did."""
    async with asyncio.timeout(60):
        while True:
            instance = await cluster.instance()
            if any((seen.type, seen.status) == ("AllReady", status) for seen in instance.conditions):
                return instance
            await asyncio.sleep(0.05)


async def test_the_kit_carries_out_what_people_ask_of_a_real_platform(cluster: Cluster) -> None:
    assert (await settled(cluster, "true")).status == "running"
    added = await ended(cluster, await cluster.add(*await cluster.machines(2)))
    assert added.status == "succeeded", added.error
    moved = await cluster.operate(
        "replace", added.targets[0].member_id, allocation_ids=await cluster.machines(1, "new")
    )
    assert (await ended(cluster, moved)).status == "succeeded"
    invoked = await cluster.world.call(
        actions.ACTION_INVOKE,
        {"inputs": {"queue": "night"}},
        query={"wait_s": 20},
        instance_id=cluster.instance_id,
        action="flush",
    )
    assert invoked.result == {"queue": "night", "token of": 43, "image": digest_of(CONTENT)}
    where: dict[str, Any] = {"query": {"dry_run": "true"}, "instance_id": cluster.instance_id}
    planned = await cluster.world.call(instances.STOP, {}, **where)
    assert planned.preview is not None
    assert (planned.preview.answered, planned.preview.notes) == (True, ["5 members would stop"])
    assert (await ended(cluster, await cluster.change("stop"))).status == "succeeded"
    assert (await settled(cluster, "false")).status == "stopped"
    controllers = (await cluster.world.call(CONTROLLER_LIST)).items
    assert [(controller.holder, controller.version) for controller in controllers] == [("toy@test", "1.0.0")]


async def test_a_cancelled_add_is_undone_by_the_kit_and_its_machines_are_free_again(cluster: Cluster) -> None:
    before = await cluster.bound()
    asked = await cluster.add(*await cluster.machines(2), reason="hang")
    await until(cluster, asked, "running")
    await take_exit(cluster.world, asked, "cancel")
    cancelled = await ended(cluster, asked)
    assert (cancelled.status, [target.outcome for target in cancelled.targets]) == (
        "cancelled",
        ["cancelled", "cancelled"],
    )
    assert await cluster.bound() == before
    assert (await settled(cluster, "true")).status == "running"
