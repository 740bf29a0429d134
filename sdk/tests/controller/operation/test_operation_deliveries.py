"""Secrets and artifacts that an operation gets from the platform."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import httpx
import msgspec
from gpuaas_contract.artifacts import Artifact
from gpuaas_contract.catalog import ArtifactRef
from gpuaas_contract.deliveries import DELIVERY_CREATE
from gpuaas_contract.secrets import DELIVERY_OPEN
from gpuaas_sdk.controller import App, Instance, Operation, Permanent
from gpuaas_sdk.testing import FakePlatform

Working = Callable[..., AbstractAsyncContextManager[None]]


async def test_a_secret_is_the_same_for_every_operation_that_asks(
    app: App, platform: FakePlatform, working: Working
) -> None:
    values: list[str] = []

    @app.action("rotate")
    async def rotate(op: Operation) -> None:
        values.append(await op.secret("role_join", "token"))

    instance = platform.add_instance({}, ready=True)
    async with working():
        await platform.ended(platform.invoke(instance, "rotate").operation_id)
        await platform.ended(platform.invoke(instance, "rotate").operation_id)
    first, second = values
    assert first == second != ""


async def test_a_secret_whose_answer_was_lost_is_delivered_again(
    app: App, platform: FakePlatform, working: Working
) -> None:
    values: list[str] = []

    async def keep(op: Operation) -> None:
        values.append(await op.secret("role_join", "token", "open sesame"))

    @app.action("rotate")
    async def rotate(op: Operation) -> None:
        await op.step("keep the token", keep, op)

    platform.lose_answers(DELIVERY_OPEN)
    operation = platform.invoke(platform.add_instance({}, ready=True), "rotate")
    async with working():
        ended = await platform.ended(operation.operation_id)
    assert ended.status == "succeeded", ended.error
    assert values == ["open sesame"]
    assert [name for name, _ in platform.calls].count(DELIVERY_OPEN.name) == 3
    assert "open sesame" not in repr(ended)


async def test_a_purpose_the_manifest_does_not_declare_fails_with_the_way_out(
    app: App, platform: FakePlatform, working: Working
) -> None:
    @app.action("rotate")
    async def rotate(op: Operation) -> None:
        await op.secret("operator_access", "admin")

    operation = platform.invoke(platform.add_instance({}, ready=True), "rotate")
    async with working():
        ended = await platform.ended(operation.operation_id)
    assert ended.error is not None
    assert "declares no secret purpose operator_access" in ended.error.message
    assert "secret_purposes" in ended.error.fix


async def test_an_artifact_is_fetched_with_the_token_of_its_delivery(
    app: App, platform: FakePlatform, working: Working
) -> None:
    fetched: list[bytes] = []

    @app.action("rotate")
    async def rotate(op: Operation) -> dict[str, str]:
        delivery = await op.artifact("image")
        async with httpx.AsyncClient() as http:
            answer = await http.get(delivery.url, headers={"Authorization": f"Bearer {delivery.token}"})
            refused = await http.get(delivery.url, headers={"Authorization": "Bearer other"})
        fetched.append(answer.content)
        return {"digest": delivery.digest, "without token": refused.json()["code"]}

    instance = platform.add_instance({}, ready=True)
    artifact = platform.add_artifact(instance, "image", b"bits")
    async with working():
        ended = await platform.ended(platform.invoke(instance, "rotate").operation_id)
    assert ended.result == {"digest": artifact.digest, "without token": "delivery_unknown"}, ended.error
    assert fetched == [b"bits"]


async def test_a_delivery_whose_answer_was_lost_is_requested_again(
    app: App, platform: FakePlatform, working: Working
) -> None:
    @app.action("rotate")
    async def rotate(op: Operation) -> dict[str, str]:
        return {"digest": (await op.artifact("image")).digest}

    instance = platform.add_instance({}, ready=True)
    artifact = platform.add_artifact(instance, "image", b"bits")
    platform.lose_answers(DELIVERY_CREATE)
    async with working():
        ended = await platform.ended(platform.invoke(instance, "rotate").operation_id)
    assert ended.result == {"digest": artifact.digest}, ended.error


async def test_an_upgrade_gets_the_artifacts_of_the_version_it_leads_to(
    app: App, platform: FakePlatform, working: Working
) -> None:
    digests: list[str] = []

    @app.operation("upgrade")
    async def upgrade(op: Operation) -> None:
        digests.append((await op.artifact("image")).digest)

    instance, _, newer = with_new_version(app, platform)
    async with working():
        ended = await platform.ended(platform.request(instance, "upgrade", to_version="2.0.0").operation_id)
    assert ended.status == "succeeded", ended.error
    assert digests == [newer.digest]
    assert platform.records.instances[instance.instance_id].app_version == "2.0.0"


async def test_an_upgrade_that_is_undone_gets_the_artifacts_of_the_version_it_came_from(
    app: App, platform: FakePlatform, working: Working
) -> None:
    digests: list[str] = []

    @app.operation("upgrade")
    async def upgrade(op: Operation) -> None:
        raise Permanent("the new version does not start")

    @app.undo("upgrade")
    async def undo(op: Operation) -> None:
        digests.append((await op.artifact("image")).digest)

    instance, older, _ = with_new_version(app, platform)
    platform.records.add_member(instance, "head", "n1")
    platform.records.make_ready(instance)
    async with working():
        operation = platform.request(instance, "upgrade", to_version="2.0.0")
        await platform.ended(operation.operation_id)
        platform.compensate(operation.operation_id)
        ended = await platform.ended(operation.operation_id)
    assert (ended.status, digests) == ("cancelled", [older.digest]), ended.error


def with_new_version(app: App, platform: FakePlatform) -> tuple[Instance, Artifact, Artifact]:
    """An instance, the artifact of its version, and the artifact of version 2.0.0."""
    instance = platform.add_instance({}, ready=True)
    older = platform.add_artifact(instance, "image", b"old bits")
    newer = platform.artifacts.put("image", b"new bits")
    reference = {"image": ArtifactRef(digest=newer.digest)}
    platform.add_version(msgspec.structs.replace(app.manifest, version="2.0.0", artifacts=reference))
    return platform.records.instances[instance.instance_id], older, newer


async def test_an_artifact_the_manifest_does_not_name_is_reported_as_missing(
    app: App, platform: FakePlatform, working: Working
) -> None:
    @app.action("rotate")
    async def rotate(op: Operation) -> None:
        await op.artifact("driver")

    instance = platform.add_instance({}, ready=True)
    platform.add_artifact(instance, "image", b"bits")
    async with working():
        ended = await platform.ended(platform.invoke(instance, "rotate").operation_id)
    assert ended.error is not None
    assert ended.error.message == "demo 1.0.0 has no artifact driver; it has image."
