"""A version is compared with the published artifacts before it is registered, because it never changes afterwards."""

from typing import Any

import artifact_world
import pytest
from artifact_world import CONTENT, Signer, digest_of
from gpuaas_contract import catalog, errors, instances
from platform_world import MANIFEST, World


def _needing(name: str, content: bytes = CONTENT, **more: str) -> dict[str, Any]:
    return {**MANIFEST, "artifacts": {name: {"digest": digest_of(content), **more}}}


@pytest.mark.parametrize("query", [{}, {"dry_run": "true"}])
async def test_a_digest_that_is_published_under_another_name_is_refused(world: World, query: dict[str, str]) -> None:
    await artifact_world.shared(world, Signer())
    for manifest, why in (
        (_needing("image"), "is published as tool; the key must be the published name"),
        (_needing("tool", media_type="text/plain"), "has the media type application/x-sh, not text/plain"),
    ):
        with pytest.raises(errors.ValidationFailed, match=why) as refused:
            await world.call(catalog.VERSION_REGISTER, manifest, query=query)
        assert "a version never changes" in refused.value.fix
    assert (await world.call(catalog.VERSION_LIST)).items == []


async def test_an_artifact_that_nothing_is_published_for_is_a_warning_also_in_a_dry_run(world: World) -> None:
    manifest = _needing("tool")
    rehearsed = await world.call(catalog.VERSION_REGISTER, manifest, query={"dry_run": "true"})
    registered = await world.call(catalog.VERSION_REGISTER, manifest)
    assert registered.warnings == rehearsed.warnings
    (warning,) = registered.warnings
    assert f"artifacts.tool: no shared artifact has this name and the digest {digest_of(CONTENT)}" in warning
    assert "gpuaas artifact publish tool --file FILE" in warning
    published = await world.call(catalog.VERSION_PUBLISH, {}, app_slug="toy", version="1.0.0")
    assert published.warnings == [warning]


async def test_the_warning_ends_when_the_artifact_is_promoted_and_the_app_can_be_deployed(world: World) -> None:
    signer = Signer()
    await artifact_world.trust(world, signer, "release")
    published = await world.call(catalog.VERSION_REGISTER, _needing("tool"))
    assert published.warnings
    await artifact_world.shared(world, signer)
    again = await world.call(catalog.VERSION_REGISTER, _needing("tool"))
    assert again.warnings == []
    await world.call(catalog.VERSION_PUBLISH, {}, app_slug="toy", version="1.0.0")
    await world.call(catalog.ENTITLEMENT_SET, {"enabled": True}, app_slug="toy")
    deployed: instances.Deployed = await world.deploy()
    assert deployed.instance.artifacts == {"tool": digest_of(CONTENT)}


async def test_an_artifact_that_is_not_verified_yet_is_a_warning_with_what_to_do(world: World) -> None:
    await artifact_world.of_app(world, Signer(), b"new", name="tool")
    (warning,) = (await world.call(catalog.VERSION_REGISTER, _needing("tool", b"new"))).warnings
    assert warning.startswith("artifacts.tool: tool has not been verified.")
