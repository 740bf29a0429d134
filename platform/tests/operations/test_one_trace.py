"""One trace from the request at the edge through the controller and its steps to the commands and tasks on machines."""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import span_collector
from artifact_world import CONTENT, digest_of, promoted, trusted
from gpuaas_contract import identity, instances, lifecycles, node, operations
from gpuaas_platform import server
from gpuaas_platform.edge import http
from gpuaas_platform.kit.settings import Settings
from gpuaas_sdk import traces
from gpuaas_sdk.auth import ServiceAccount
from gpuaas_sdk.client import Client
from gpuaas_sdk.controller import App, Member, Operation, RunnerSettings
from gpuaas_sdk.machine import Machine
from gpuaas_sdk.testing import FakeMachines, serving
from platform_world import MANIFEST, Node, RealClock, World

TOY: dict[str, Any] = {**MANIFEST, "artifacts": {"image": {"digest": digest_of(CONTENT)}}}


def toy(folder: Path) -> App:
    """An app that fetches an artifact and runs one command on each machine."""
    manifest = folder / "manifest.yaml"
    manifest.write_bytes(msgspec.json.encode(TOY))
    app = App("toy", manifest=manifest, settings=RunnerSettings(lease_s=6, claim_wait_s=5))

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        async def bring_up(member: Member) -> None:
            await op.report(member, status="provisioning")
            await op.step("install", install, op, member, await op.machine(member), member=member)
            await op.report(member, status="joining")
            await op.report(member, status="ready")

        await op.each(op.to_do, bring_up)

    async def install(op: Operation, member: Member, machine: Machine) -> None:
        await machine.run("install-toy", await op.place("image", member))

    return app


async def answer_tasks(world: World, machine: Node) -> None:
    """Do every task at once, as an agent does."""
    while True:
        answer = await world.call(node.TASK_NEXT, token=machine.token, query={"wait_s": 20})
        if answer.task is None:
            continue
        task, began_s = msgspec.json.decode(answer.task.payload), time.time()
        assert task["traceparent"]
        where = f"{task['params']['allocation_id']}/{task['params'].get('digest', '').replace(':', '/')}"
        result = {"path": f"/var/lib/gpuaas/artifacts/{where}"} if task["type"] == node.FETCH_TASK else {}
        body = {"status": "succeeded", "result": result, "started_at_s": began_s, "took_s": 0.001}
        await world.call(node.TASK_RESULT, body, token=machine.token, task_id=task["task_id"])


@contextlib.asynccontextmanager
async def traced(settings: Settings) -> AsyncIterator[tuple[World, str]]:
    clock = RealClock()
    async with server.open_site(settings, clock) as site:
        application = http.application(site, server.DOMAINS)
        async with serving(application) as address:
            transport = httpx.ASGITransport(app=application)
            async with httpx.AsyncClient(transport=transport, base_url=address, timeout=60) as people:
                yield await World.make(site, clock, people), address
            site.hub.close()


async def deployed(world: World, address: str, app: App) -> operations.Operation:
    account = await world.call(identity.SERVICE_ACCOUNT_CREATE, identity.CreateServiceAccount(name="toy", apps=["toy"]))
    where = {"service_account_id": account.service_account_id}
    key = await world.call(identity.SERVICE_ACCOUNT_KEY_CREATE, **where)
    spans = traces.open_spans("gpuaas-app-toy")
    assert spans is not None
    async with Client(address, ServiceAccount(key.key_id, key.client_secret)) as client, asyncio.timeout(60):
        asked = (await world.deploy()).operation
        runner = app.runner(client, world.project_id, "toy@test", connect=FakeMachines().connect, spans=spans)
        work = [answer_tasks(world, machine) for machine in world.nodes.values()]
        working = [asyncio.create_task(part) for part in (*work, runner.run())]
        try:
            while asked.status not in lifecycles.ENDED_OPERATION:
                query = {"wait_s": 10, "revision": asked.revision}
                asked = await world.call(operations.OPERATION_GET, query=query, operation_id=asked.operation_id)
        finally:
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)
    await asyncio.to_thread(spans.close)
    return asked


async def test_a_deploy_is_one_trace_from_the_edge_to_the_machines(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with span_collector.running() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        async with traced(dataclasses.replace(settings, otlp_endpoint=collector.url)) as (world, address):
            await promoted(world, await trusted(world), name="image")
            await world.entitled_app(artifacts=TOY["artifacts"])
            operation = await deployed(world, address, toy(tmp_path))
    assert operation.status == "succeeded", operation.error
    trace_id = operation.traceparent.split("-")[1]
    spans = {span.span_id.hex(): span for span in collector.spans if span.trace_id.hex() == trace_id}
    parents = {(span.name, getattr(spans.get(span.parent_span_id.hex()), "name", "")) for span in spans.values()}
    assert {
        (instances.INSTANCE_CREATE.name, ""),
        ("operation deploy", instances.INSTANCE_CREATE.name),
        ("step install", "operation deploy"),
        ("machine install-toy", "step install"),
        ("runtime.step", "step install"),
        ("artifacts.placement.create", "step install"),
        ("node task artifact.fetch", "artifacts.placement.create"),
    } <= parents
    assert [name for name, parent in parents if not parent] == [instances.INSTANCE_CREATE.name]
    assert "runtime.heartbeat" not in {span.name for span in spans.values()}
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in spans.values())
