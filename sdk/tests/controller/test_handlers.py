"""Actions and previews: what their handlers return reaches the platform."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from gpuaas_contract.catalog import ReplaceOrder
from gpuaas_contract.operations import OperationKind
from gpuaas_sdk.client import Client
from gpuaas_sdk.controller import App, Operation, Preview, Refused, Temporary, Work
from gpuaas_sdk.controller.handlers import REPLACE_NOTES
from gpuaas_sdk.testing import FakePlatform

Working = Callable[..., AbstractAsyncContextManager[None]]


async def test_an_action_ends_with_what_its_handler_returned(
    app: App, platform: FakePlatform, working: Working
) -> None:
    @app.action("rotate")
    async def rotate(op: Operation) -> dict[str, Any]:
        return {"key": op.inputs["key"], "rotated": True}

    operation = platform.invoke(platform.add_instance({}, ready=True), "rotate", {"key": "k7"})
    async with working():
        ended = await platform.ended(operation.operation_id)
    assert (ended.status, ended.result) == ("succeeded", {"key": "k7", "rotated": True})


async def test_an_action_without_a_handler_is_not_supported(platform: FakePlatform, working: Working) -> None:
    operation = platform.invoke(platform.add_instance({}, ready=True), "rotate")
    async with working():
        ended = await platform.ended(operation.operation_id)
    assert ended.error is not None
    assert (ended.error.code, ended.error.message) == ("not_supported", "The app demo has no handler for action rotate")


async def test_a_preview_lists_the_work_of_the_requested_members(
    app: App, platform: FakePlatform, working: Working
) -> None:
    @app.preview("drain", role="worker")
    async def preview(op: Operation) -> Preview:
        assert op.preview_of == "drain"
        work = [Work(work_id="41", member_ids=[member.member_id]) for member in op.targets]
        return Preview(answered=True, source="the scheduler", running_work=work, gpu_hours_at_stake=2.5)

    instance = platform.add_instance({"worker": ["n1", "n2"]}, ready=True)
    asked = platform.members(instance)[1:]
    operation = platform.ask_preview(instance, "drain", asked, component_key="worker")
    async with working():
        ended = await platform.ended(operation.operation_id)
    assert ended.preview is not None
    assert [work.member_ids for work in ended.preview.running_work] == [[asked[0].member_id]]


def ordered(manifest: Path, order: str = "new_first") -> App:
    """The demo app, whose manifest declares the order of a replace of workers."""
    text = manifest.read_text()
    manifest.write_text(text.replace("replace, repair]", f"replace, repair], replace_order: {order}"))
    return App("demo", manifest=manifest)


async def _nothing(op: Operation) -> None:
    return None


def test_a_handler_with_another_order_than_the_manifest_breaks_a_promise(manifest: Path) -> None:
    app = ordered(manifest)
    promise = "replace of role worker in the order new_first"
    app.operation("replace")(_nothing)
    assert promise in app.unkept(), "the handler declares no order"
    app.operation("replace", role="worker", replace_order="old_first")(_nothing)
    assert promise in app.unkept(), "the handler of the role declares the opposite"


@pytest.mark.parametrize("role", ["", "worker"])
def test_a_handler_with_the_order_of_the_manifest_keeps_the_promise(manifest: Path, role: str) -> None:
    app = ordered(manifest)
    app.operation("replace", role=role, replace_order="new_first")(_nothing)
    assert [promise for promise in app.unkept() if "replace" in promise] == []


def test_only_a_replace_has_an_order(app: App) -> None:
    with pytest.raises(ValueError, match="replace_order is for replace, not for drain"):
        app.operation("drain", role="worker", replace_order="new_first")


@pytest.mark.parametrize("order", ["new_first", "old_first"])
async def test_the_preview_of_a_replace_shows_the_order_before_the_notes_of_the_app(
    manifest: Path, order: ReplaceOrder, platform: FakePlatform, client: Client
) -> None:
    app = ordered(manifest, order)

    @app.preview("replace")
    @app.preview("remove")
    async def preview(op: Operation) -> Preview:
        return Preview(answered=True, notes=["two jobs wait"])

    instance = platform.add_instance({"worker": ["n1"]}, ready=True)
    kinds: tuple[OperationKind, ...] = ("replace", "remove")
    asked = [platform.ask_preview(instance, kind, component_key="worker") for kind in kinds]
    running = asyncio.create_task(app.runner(client, platform.project_id, "one").run())
    shown = [(await platform.ended(operation.operation_id)).preview for operation in asked]
    running.cancel()
    await asyncio.wait({running})
    notes = [preview.notes for preview in shown if preview is not None]
    assert notes == [[REPLACE_NOTES[order], "two jobs wait"], ["two jobs wait"]]


async def test_a_preview_that_cannot_be_answered_now_ends_at_once_with_the_reason(
    app: App, platform: FakePlatform, working: Working
) -> None:
    @app.preview("stop")
    async def stop(op: Operation) -> Preview:
        raise Temporary("the scheduler does not answer")

    operation = platform.ask_preview(platform.add_instance({}, ready=True), "stop")
    async with working():
        ended = await platform.ended(operation.operation_id)
    assert ended.preview is not None
    assert (ended.preview.answered, ended.preview.notes) == (
        False,
        ["The work is unknown: the scheduler does not answer"],
    )


async def test_a_preview_that_is_refused_shows_why_the_operation_would_be(
    app: App, platform: FakePlatform, working: Working
) -> None:
    @app.preview("stop")
    async def stop(op: Operation) -> Preview:
        assert op.force
        raise Refused("2 jobs run", fix="wait for them")

    operation = platform.ask_preview(platform.add_instance({}, ready=True), "stop", force=True)
    async with working():
        ended = await platform.ended(operation.operation_id)
    assert ended.preview is not None
    assert (ended.status, ended.preview.refusal) == ("succeeded", "2 jobs run. Fix: wait for them")


async def test_an_app_without_a_preview_handler_answers_that_it_has_none(
    platform: FakePlatform, working: Working
) -> None:
    operation = platform.ask_preview(platform.add_instance({}, ready=True), "stop")
    async with working():
        ended = await platform.ended(operation.operation_id)
    assert ended.preview is not None
    assert (ended.preview.answered, ended.preview.notes) == (False, ["The app demo has no preview of stop."])


async def test_a_controller_is_listed_with_its_version_after_its_first_claim(
    app: App, platform: FakePlatform, working: Working
) -> None:
    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        return None

    async with working("one"):
        await platform.ended(platform.request(platform.add_instance({}), "deploy").operation_id)
    assert {holder: known.version for holder, known in platform.observations.controllers.items()} == {"one": "1.0.0"}
