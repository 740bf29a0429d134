"""Handlers get the inputs that people chose, with the defaults of the form, as a type of the app."""

import asyncio
import datetime
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from gpuaas_sdk.client import Client
from gpuaas_sdk.controller import App, Operation, Preview, Reconciliation, ReportedCondition, inputs
from gpuaas_sdk.testing import FakePlatform

Working = Callable[..., AbstractAsyncContextManager[None]]

FORM = """
  type: object
  properties:
    port: {type: integer, default: 7000}
    limits: {type: object, default: {}, properties: {queue: {type: integer, default: 5}}}
    shards: {type: array, default: [], items: {type: object, properties: {copies: {type: integer, default: 3}}}}
    note: {type: string}
"""
SCHEMA: dict[str, Any] = {
    "properties": {
        "port": {"default": 7000},
        "limits": {"default": {}, "properties": {"queue": {"default": 5}}},
        "shards": {"default": [], "items": {"properties": {"copies": {"default": 3}}}},
        "note": {},
    }
}


class Limits(msgspec.Struct):
    queue: int


class Settings(msgspec.Struct):
    port: int
    limits: Limits


class Rotate(msgspec.Struct, forbid_unknown_fields=True):
    bits: int
    since: Annotated[datetime.datetime, msgspec.Meta(tz=True)] | None = None
    ports: tuple[int, ...] = ()
    size: int = 1

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError("a size is at least 1")


@pytest.fixture
def manifest(manifest: Path) -> Path:
    text = manifest.read_text()
    text = text.replace("deploy_form: {type: object}", f"deploy_form:{FORM}")
    text = text.replace(
        "input_schema: {type: object}", "input_schema: {type: object, properties: {bits: {default: 256}}}"
    )
    text = text.replace("[stop, start, upgrade]", "[stop, start, upgrade, reconfigure]")
    manifest.write_text(text)
    return manifest


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({}, {"port": 7000, "limits": {"queue": 5}, "shards": []}),
        ({"port": 1, "note": "x"}, {"port": 1, "limits": {"queue": 5}, "shards": [], "note": "x"}),
        ({"limits": {"queue": 0}}, {"port": 7000, "limits": {"queue": 0}, "shards": []}),
        ({"port": None}, {"port": None, "limits": {"queue": 5}, "shards": []}),
        (
            {"shards": [{}, {"copies": 1}]},
            {"port": 7000, "limits": {"queue": 5}, "shards": [{"copies": 3}, {"copies": 1}]},
        ),
    ],
)
def test_an_absent_field_gets_its_default_and_a_chosen_one_stays(
    chosen: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert inputs.with_defaults(SCHEMA, chosen) == expected


def test_a_handler_that_changes_its_inputs_does_not_change_the_form() -> None:
    inputs.with_defaults(SCHEMA, {})["shards"].append("changed")
    assert inputs.with_defaults(SCHEMA, {})["shards"] == []


async def test_an_instance_that_was_deployed_without_inputs_has_the_defaults_in_each_handler(
    app: App, platform: FakePlatform, working: Working
) -> None:
    seen: dict[str, Any] = {}

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        seen["deploy"] = op.inputs_as(Settings)

    @app.operation("reconfigure")
    async def reconfigure(op: Operation) -> None:
        seen["before"], seen["after"] = op.inputs_before["port"], op.inputs_as(Settings).port

    @app.action("rotate")
    async def rotate(op: Operation) -> dict[str, Any]:
        return {"bits": op.inputs["bits"], "port": op.instance.inputs["port"]}

    @app.preview("reconfigure")
    async def preview(op: Operation) -> Preview:
        seen["preview"] = op.inputs_as(Settings)
        return Preview(answered=True)

    @app.health()
    async def look(now: Reconciliation) -> None:
        seen["health"] = now.inputs_as(Settings)

    instance = platform.add_instance({})
    async with working():
        assert (await platform.ended(platform.request(instance, "deploy").operation_id)).status == "succeeded"
        assert (await platform.ended(platform.reconfigure(instance, {"port": 9}).operation_id)).status == "succeeded"
        asked = platform.ask_preview(platform.instance(instance.instance_id), "reconfigure", inputs={"port": 8})
        await platform.ended(asked.operation_id)
        action = await platform.ended(platform.invoke(instance, "rotate").operation_id)
        async with asyncio.timeout(60):
            while "health" not in seen or seen["health"].port != 9:
                await platform.changed()
    assert seen["deploy"] == Settings(7000, Limits(5))
    assert (seen["before"], seen["after"], seen["preview"].port, seen["health"].port) == (7000, 9, 8, 9)
    assert action.result == {"bits": 256, "port": 9}
    assert platform.instance(instance.instance_id).inputs == {"port": 9}  # the platform stores what was sent


async def test_a_health_handler_has_the_defaults_also_after_it_reported(
    app: App, platform: FakePlatform, working: Working
) -> None:
    ports: list[int | None] = []

    @app.operation("deploy")
    async def deploy(_: Operation) -> None: ...

    @app.health()
    async def look(now: Reconciliation) -> None:
        await now.report([ReportedCondition(type="Serving", status="true", message=f"look {len(ports)}")])
        ports.append(now.inputs.get("port"))

    instance = platform.add_instance({})
    async with working():
        assert (await platform.ended(platform.request(instance, "deploy").operation_id)).status == "succeeded"
        async with asyncio.timeout(60):
            while not ports:
                await platform.changed()
    assert ports[0] == 7000


async def test_inputs_that_do_not_fit_the_type_fail_the_operation_with_the_field(
    app: App, platform: FakePlatform, client: Client, working: Working
) -> None:
    class Wrong(msgspec.Struct):
        port: str

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        op.inputs_as(Wrong)

    async with working():
        ended = await platform.ended(platform.request(platform.add_instance({}), "deploy").operation_id)
    assert ended.error is not None
    assert "do not fit Wrong" in ended.error.message
    assert "$.port" in ended.error.message


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"since": "2026-13-01T00:00:00Z"}, "Input since of rotate cannot be used: Invalid RFC3339 encoded datetime."),
        ({"since": "2026-01-01T00:00:00"}, "Input since of rotate cannot be used: Expected `datetime` with a timezone"),
        ({"ports": [80, "x"]}, "Input ports[1] of rotate cannot be used: Expected `int`, got `str`."),
        ({"size": 0}, "The inputs of rotate cannot be used: a size is at least 1."),
        ({"sise": 1}, "The inputs of rotate cannot be used: Object contains unknown field `sise`."),
    ],
)
async def test_inputs_of_an_action_that_cannot_be_converted_are_refused_with_the_field(
    app: App, platform: FakePlatform, working: Working, chosen: dict[str, Any], message: str
) -> None:
    @app.action("rotate")
    async def rotate(op: Operation) -> dict[str, Any]:
        return {"size": op.inputs_as(Rotate).size}

    instance = platform.add_instance({}, ready=True)
    async with working():
        ended = await platform.ended(platform.invoke(instance, "rotate", chosen).operation_id)
    assert ended.error is not None
    assert (ended.error.code, ended.error.failure_class) == ("refused", "refused")
    assert ended.error.message.startswith(message)
    assert ended.error.fix.endswith(f"gpuaas action list {instance.name}")
