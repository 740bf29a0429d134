"""Artifacts from a real OCI registry: by digest, by tag, and after the content of a tag was changed."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import registry_server
from artifact_world import CONTENT, MEDIA_TYPE, code_of, delivery, fetch, promoted, published, trusted, verified
from gpuaas_contract import artifacts
from gpuaas_contract.artifacts import Artifact
from gpuaas_platform.kit.settings import Settings
from platform_world import World
from registry_server import Registry

OTHER = CONTENT.replace(b"real", b"evil")


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with registry_server.running(Path(tmp_path_factory.mktemp("registry"))) as server:
        yield server


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return dataclasses.replace(settings, artifact_internal_hosts=("127.0.0.1",))


@pytest.mark.parametrize("form", ["registry/repository", "tag", "manifest digest"])
async def test_content_comes_from_the_registry_and_is_delivered(world: World, registry: Registry, form: str) -> None:
    manifest = registry.push("team/tool", "1.0", CONTENT, MEDIA_TYPE)
    suffix = {"registry/repository": "", "tag": ":1.0", "manifest digest": f"@{manifest}"}[form]
    artifact = await promoted(world, await trusted(world), source=_at(registry, f"team/tool{suffix}"))
    assert (await fetch(world, await delivery(world, artifact))).content == CONTENT


async def test_a_tag_that_was_moved_to_other_content_is_noticed(world: World, registry: Registry) -> None:
    registry.push("team/moved", "1.0", CONTENT, MEDIA_TYPE)
    artifact = await promoted(world, await trusted(world), source=_at(registry, "team/moved:1.0"))
    registry.push("team/moved", "1.0", OTHER, MEDIA_TYPE)
    assert await _refusal(world, artifact) == "artifact_digest_mismatch"
    assert (await fetch(world, await delivery(world, artifact))).content == CONTENT


async def test_a_blob_that_was_changed_on_the_registrys_disk_is_noticed(world: World, registry: Registry) -> None:
    content = CONTENT + f"# only in {world.project_id}\n".encode()
    registry.push("team/swapped", "1.0", content, MEDIA_TYPE)
    artifact = await promoted(world, await trusted(world), content, source=_at(registry, "team/swapped"))
    registry.blob_path(artifact.digest).write_bytes(content.replace(b"real", b"evil"))
    assert await _refusal(world, artifact) == "artifact_digest_mismatch"


async def test_a_manifest_that_gives_the_content_another_type_is_refused(world: World, registry: Registry) -> None:
    registry.push("team/typed", "1.0", CONTENT, "text/html")
    artifact = await published(world, CONTENT, await trusted(world), source=_at(registry, "team/typed:1.0"))
    assert (await verified(world, artifact)).trust_code == "artifact_media_type_mismatch"


async def test_content_missing_in_the_registry_is_no_verdict_on_the_artifact(world: World, registry: Registry) -> None:
    artifact = await published(world, CONTENT, await trusted(world), source=_at(registry, "team/none"))
    answer = await world.send(artifacts.VERIFY, {}, artifact_id=artifact.artifact_id)
    assert (code_of(answer), answer.json()["retryable"]) == ("artifact_source_unreachable", True)
    assert "answered 404" in answer.json()["message"]
    assert (await world.call(artifacts.GET, artifact_id=artifact.artifact_id)).trust == "unverified"


def _at(registry: Registry, reference: str) -> dict[str, Any]:
    return {"kind": "oci", "reference": f"{registry.host}/{reference}"}


async def _refusal(world: World, artifact: Artifact) -> str:
    """Return the error code of another promotion, which must not change the artifact."""
    before = await world.call(artifacts.GET, artifact_id=artifact.artifact_id)
    answer = await world.send(artifacts.PROMOTE, {"channel": "next"}, artifact_id=artifact.artifact_id)
    assert await world.call(artifacts.GET, artifact_id=artifact.artifact_id) == before
    return code_of(answer)
