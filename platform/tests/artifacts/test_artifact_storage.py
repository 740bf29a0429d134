"""Only content that no artifact needs is deleted, and policy limits the storage of a project."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from artifact_world import (
    CONTENT,
    code_of,
    delivery,
    digest_of,
    fetch,
    intent,
    promoted,
    published,
    shared,
    trusted,
    upload,
    verified,
)
from gpuaas_contract import artifacts, errors, identity, policy
from gpuaas_contract.artifacts import Artifact
from gpuaas_platform import server
from gpuaas_platform.artifacts import content, store
from gpuaas_platform.artifacts.blobs import Blobs
from gpuaas_platform.artifacts.reconcile import ContentSweep
from gpuaas_platform.call import Site
from gpuaas_platform.edge import http
from gpuaas_platform.kit import db
from gpuaas_platform.kit.settings import Settings
from loopback_source import LoopbackSource, loopback_source, sends
from old_store import schema_before
from platform_world import FakeClock, World

KEPT_S = 600
WHY = {"reason": "no longer needed"}
ENDS = {"retire": artifacts.RETIRE, "revoke": artifacts.REVOKE}
MORE = b"x" * 100


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return dataclasses.replace(settings, artifact_kept_s=KEPT_S, artifact_internal_hosts=("127.0.0.1",))


@pytest.fixture
def sweeper(site: Site) -> ContentSweep:
    return ContentSweep(site)


async def _end(world: World, artifact: Artifact, how: str = "retire") -> Artifact:
    return await world.call(ENDS[how], WHY, artifact_id=artifact.artifact_id)


async def _later(world: World, sweeper: ContentSweep, seconds: float = KEPT_S) -> None:
    world.clock.forward(seconds)
    await sweeper.sweep()


def _is_stored(world: World, content_: bytes = CONTENT) -> bool:
    return content.blobs(world.site).path(digest_of(content_)).exists()


def _files(world: World) -> list[Path]:
    return _files_below(world.site.settings.data_dir / "blobs")


def _files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("how", ENDS)
async def test_content_is_deleted_when_its_artifact_has_ended_for_long_enough(
    world: World, sweeper: ContentSweep, how: str
) -> None:
    artifact = await published(world)
    await _later(world, sweeper)
    assert (await _end(world, artifact, how)).ended_at == world.clock()
    await _later(world, sweeper, KEPT_S - 1)
    assert _is_stored(world)
    await _later(world, sweeper, 1)
    assert _files(world) == []


async def test_content_stays_while_any_artifact_of_any_scope_needs_it(world: World, sweeper: ContentSweep) -> None:
    signer = await trusted(world)
    own, other_name = await promoted(world, signer), await published(world, name="other")
    for_all = await shared(world, signer)
    for ended in (own, other_name):
        await _end(world, ended)
        await _later(world, sweeper, 2 * KEPT_S)
        assert _is_stored(world)
    assert (await fetch(world, await delivery(world, for_all))).content == CONTENT
    await world.call(artifacts.SHARED_DEPRECATE, WHY, artifact_id=for_all.artifact_id)
    await _later(world, sweeper, 2 * KEPT_S)
    assert (await fetch(world, await delivery(world, for_all))).content == CONTENT
    await world.call(artifacts.SHARED_RETIRE, WHY, artifact_id=for_all.artifact_id)
    await _later(world, sweeper)
    assert not _is_stored(world)


async def test_the_second_end_of_an_artifact_does_not_prolong_its_content(world: World, sweeper: ContentSweep) -> None:
    artifact = await published(world)
    ended = await _end(world, artifact)
    world.clock.forward(KEPT_S - 1)
    assert (await _end(world, artifact, "revoke")).ended_at == ended.ended_at
    await _later(world, sweeper, 1)
    assert not _is_stored(world)


async def test_a_digest_published_again_in_time_keeps_its_content_and_later_needs_another_upload(
    world: World, sweeper: ContentSweep
) -> None:
    first = await published(world)
    await _end(world, first)
    world.clock.forward(KEPT_S)
    second = await world.call(artifacts.PUBLISH, intent(name="again"))
    await sweeper.sweep()
    assert (await verified(world, second)).trust_code == "artifact_unsigned", "the content is there"
    await _end(world, second)
    await _later(world, sweeper)
    third = await world.call(artifacts.PUBLISH, intent(name="once-more"))
    assert (await verified(world, third)).trust_code == "artifact_content_missing"
    assert (await upload(world, third, CONTENT)).status_code == 200
    await _later(world, sweeper)
    assert _is_stored(world)


async def test_content_without_any_artifact_is_kept_as_long_as_any_other_from_when_it_is_noticed(
    world: World, sweeper: ContentSweep
) -> None:
    await content.blobs(world.site).take(_chunks(MORE), digest_of(MORE), len(MORE))
    await _later(world, sweeper)
    await _later(world, sweeper, KEPT_S - 1)
    await _later(world, ContentSweep(world.site), 1)
    assert _is_stored(world, MORE), "a new process does not know since when"
    await sweeper.sweep()
    assert _files(world) == []


async def test_a_digest_published_while_the_sweep_looks_keeps_its_content(
    world: World, sweeper: ContentSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _end(world, await published(world))
    original = store.ended_at

    async def look(reader: db.Reader, digests: Any) -> dict[str, int]:
        times = await original(reader, digests)
        if reader is world.site.database.reader:
            await world.call(artifacts.PUBLISH, intent(name="again"))
        return times

    monkeypatch.setattr(store, "ended_at", look)
    await _later(world, sweeper)
    assert _is_stored(world)


async def test_a_download_under_way_ends_whole_although_its_content_is_deleted(
    world: World, sweeper: ContentSweep
) -> None:
    big = bytes(3 << 18)
    artifact = await promoted(world, await trusted(world), big)
    reading = await content.blobs(world.site).read(artifact.digest, len(big))
    taken = await reading.next()
    await _end(world, artifact)
    await _later(world, sweeper)
    assert _files(world) == []
    while chunk := await reading.next():
        taken += chunk
    reading.close()
    assert taken == big


async def test_content_that_a_killed_process_had_set_aside_is_deleted_by_the_next_sweep(
    world: World, sweeper: ContentSweep
) -> None:
    artifact = await published(world)
    content.blobs(world.site).set_aside(artifact.digest)
    assert len(_files(world)) == 1
    await sweeper.sweep()
    assert _files(world) == []


async def test_an_upload_that_is_cut_off_before_its_first_byte_leaves_no_draft(tmp_path: Path) -> None:
    async def never() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    taking = asyncio.create_task(Blobs(tmp_path).take(never(), digest_of(CONTENT), len(CONTENT)))
    await asyncio.sleep(0)  # as far as it comes by itself
    taking.cancel()
    await asyncio.wait({taking})
    await asyncio.get_running_loop().shutdown_default_executor()  # what it began in a thread is over
    assert _files_below(tmp_path) == []


async def test_two_processes_publish_upload_and_sweep_one_digest_and_what_is_registered_has_its_content(
    world: World, settings: Settings
) -> None:
    """Each round retires the only artifact of the content and publishes it again during two sweeps."""
    async with _second_process(settings, world) as other:
        sweepers = [ContentSweep(process.site) for process in (world, other)]
        for number in range(10):
            artifact = await published(other if number % 2 else world, name=f"round-{number}")
            assert _is_stored(world)
            assert (await verified(world, artifact)).trust_code == "artifact_unsigned"
            await _end(world, artifact)
            world.clock.forward(KEPT_S)
            next_life = published(world if number % 2 else other, name=f"next-{number}")
            async with asyncio.TaskGroup() as racing:
                following = racing.create_task(next_life)
                for sweeper in sweepers:
                    racing.create_task(sweeper.sweep())
            assert _is_stored(world)
            await _end(world, following.result())


@contextlib.asynccontextmanager
async def _second_process(settings: Settings, world: World) -> AsyncIterator[World]:
    """Another platform with the same store and folder. On SQLite, which is for one process, it is the same one."""
    if not settings.database_url:
        yield world
        return
    async with server.open_site(settings, world.clock) as site:
        transport = httpx.ASGITransport(app=http.application(site, server.DOMAINS), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://second") as client:
            yield World(site, world.clock, client, token=world.token, project_id=world.project_id)


async def _chunks(content_: bytes) -> AsyncIterator[bytes]:
    yield content_


async def _limited(world: World, layer: str, bytes_max: int) -> None:
    endpoint = {"global": policy.GLOBAL_SET, "org": policy.ORG_SET, "project": policy.PROJECT_SET}[layer]
    overlay = policy.Overlay(artifact_bytes_max=bytes_max, reason="disks are dear")
    org_id = (await world.call(identity.ORG_LIST)).items[0].org_id
    await world.call(endpoint, overlay, org_id=org_id)


def _usage(bytes_used: int, artifact_count: int, limit: policy.PolicyLimit | None = None) -> artifacts.ArtifactStorage:
    return artifacts.ArtifactStorage(
        bytes_used=bytes_used,
        artifact_count=artifact_count,
        limit=limit,
        org_bytes_used=bytes_used,
        org_bytes_max=Settings.artifact_quota_bytes,
    )


async def _storage(world: World) -> artifacts.ArtifactStorage:
    return await world.call(artifacts.STORAGE_GET)


async def test_published_bytes_count_and_more_than_the_lowest_limit_is_refused_with_its_layer(world: World) -> None:
    await _limited(world, "project", 1000)
    await _limited(world, "org", len(CONTENT) + 99)
    await world.call(artifacts.PUBLISH, intent())
    with pytest.raises(errors.PolicyDenied, match="Policy of org sets artifact_bytes_max") as refused:
        await world.call(artifacts.PUBLISH, intent(MORE, name="more"))
    assert refused.value.details == {
        "layer": "org",
        "rule": f"policy of org sets artifact_bytes_max to {len(CONTENT) + 99} (disks are dear)",
        "limit": "artifact_bytes_max",
        "max": len(CONTENT) + 99,
        "present": len(CONTENT),
        "asked": 100,
    }
    await _limited(world, "org", len(CONTENT) + 100)
    await world.call(artifacts.PUBLISH, intent(MORE, name="more"))


async def test_a_limit_counts_within_one_project_and_not_for_what_is_shared(world: World) -> None:
    await _limited(world, "global", len(CONTENT))
    await published(world)
    org_id = (await world.call(identity.ORG_LIST)).items[0].org_id
    sibling = await world.call(identity.PROJECT_CREATE, {"name": "sibling"}, org_id=org_id)
    await world.call(artifacts.PUBLISH, intent(), project_id=sibling.project_id)
    await world.call(artifacts.SHARED_PUBLISH, intent())
    await world.call(artifacts.SHARED_PUBLISH, intent(name="second"))
    storage = await world.call(artifacts.SHARED_STORAGE_GET)
    assert (storage.bytes_used, storage.artifact_count, storage.limit) == (2 * len(CONTENT), 2, None)


async def _sibling(world: World) -> str:
    org_id = (await world.call(identity.ORG_LIST)).items[0].org_id
    return (await world.call(identity.PROJECT_CREATE, {"name": "sibling"}, org_id=org_id)).project_id


def _with_quota(world: World, quota_bytes: int) -> None:
    """Change the setting as a restart with this quota would."""
    settings = dataclasses.replace(world.site.settings, artifact_quota_bytes=quota_bytes)
    object.__setattr__(world.site, "settings", settings)


async def test_without_any_policy_the_projects_of_an_organisation_share_a_quota(world: World) -> None:
    quota_bytes = len(CONTENT) + 99
    _with_quota(world, quota_bytes)
    await published(world)
    sibling = await _sibling(world)
    with pytest.raises(errors.StorageQuotaExceeded, match="The organisation may store") as refused:
        await world.call(artifacts.PUBLISH, intent(MORE, name="more"), project_id=sibling)
    assert refused.value.details == {"max": quota_bytes, "present": len(CONTENT), "asked": 100}
    assert "gpuaas artifact retire" in refused.value.fix
    storage = await world.call(artifacts.STORAGE_GET, project_id=sibling)
    assert (storage.bytes_used, storage.org_bytes_used, storage.org_bytes_max) == (0, len(CONTENT), quota_bytes)


async def test_the_quota_is_of_one_organisation_and_not_of_what_is_shared(world: World) -> None:
    _with_quota(world, len(CONTENT))
    await published(world)
    other = await world.call(identity.ORG_CREATE, {"name": "other"})
    elsewhere = await world.call(identity.PROJECT_CREATE, {"name": "elsewhere"}, org_id=other.org_id)
    await world.call(artifacts.PUBLISH, intent(), project_id=elsewhere.project_id)
    await world.call(artifacts.SHARED_PUBLISH, intent())


async def test_the_shared_artifacts_of_an_app_have_a_quota_of_their_own(world: World) -> None:
    settings = dataclasses.replace(world.site.settings, app_artifact_quota_bytes=len(CONTENT) + 99)
    object.__setattr__(world.site, "settings", settings)
    first = await world.call(artifacts.APP_PUBLISH, intent(), app_slug="toy")
    with pytest.raises(errors.StorageQuotaExceeded, match="The app toy may store") as refused:
        await world.call(artifacts.APP_PUBLISH, intent(MORE, name="more"), app_slug="toy")
    assert refused.value.details == {"max": len(CONTENT) + 99, "present": len(CONTENT), "asked": 100}
    await world.call(artifacts.APP_PUBLISH, intent(MORE, name="more"), app_slug="other")
    await world.call(artifacts.SHARED_PUBLISH, intent(MORE * 2, name="more"))
    path = artifacts.APP_CONTENT_PUT.path.format(app_slug="toy", artifact_id=first.artifact_id)
    headers = {"Authorization": f"Bearer {world.token}"}
    answer = await world.http.put(path, content=CONTENT, headers=headers)
    assert answer.status_code == 200, "its own reservation does not count twice"
    settings = dataclasses.replace(settings, app_artifact_quota_bytes=0)
    object.__setattr__(world.site, "settings", settings)
    await world.call(artifacts.APP_PUBLISH, intent(MORE, name="more"), app_slug="toy")


async def test_a_quota_of_zero_sets_no_limit(world: World) -> None:
    _with_quota(world, 0)
    await published(world)
    assert (await _storage(world)).org_bytes_max is None


async def test_content_that_no_longer_fits_the_quota_is_neither_uploaded_nor_fetched(
    world: World, source: LoopbackSource
) -> None:
    source.replies["/tool"] = sends(CONTENT)
    local = await world.call(artifacts.PUBLISH, intent())
    remote = await published(world, name="remote", source={"kind": "http", "url": source.url("/tool")})
    _with_quota(world, len(CONTENT))
    assert code_of(await upload(world, local, CONTENT)) == "storage_quota_exceeded"
    with pytest.raises(errors.StorageQuotaExceeded):
        await verified(world, remote)
    assert (source.asked, _files(world)) == ([], [])


async def test_explain_names_the_layer_of_the_limit_and_storage_shows_how_much_is_used(world: World) -> None:
    assert await _storage(world) == _usage(0, 0)
    await _limited(world, "global", 500)
    await _limited(world, "project", 800)
    await published(world)
    explained = await world.call(policy.EXPLAIN, {})
    [limit] = explained.limits
    assert (limit.limit, limit.max, limit.layer) == ("artifact_bytes_max", 500, "global")
    assert (explained.effective.artifact_bytes_max, explained.ineffective[0].field) == (500, "artifact_bytes_max")
    assert await _storage(world) == _usage(len(CONTENT), 1, limit)


async def test_an_ended_artifact_frees_its_storage_when_its_content_is_deleted(world: World) -> None:
    await _limited(world, "project", len(CONTENT))
    await _end(world, await published(world))
    world.clock.forward(KEPT_S - 1)
    with pytest.raises(errors.PolicyDenied):
        await world.call(artifacts.PUBLISH, intent(name="next"))
    world.clock.forward(1)
    assert (await _storage(world)).bytes_used == 0
    await world.call(artifacts.PUBLISH, intent(name="next"))


async def test_an_upload_that_no_longer_fits_is_refused_before_it_is_read(world: World) -> None:
    artifact = await world.call(artifacts.PUBLISH, intent())
    await _limited(world, "project", len(CONTENT) - 1)

    taken: list[bytes] = []

    async def body() -> AsyncIterator[bytes]:
        taken.append(CONTENT)
        yield CONTENT

    assert code_of(await upload(world, artifact, body())) == "policy_denied"
    assert (taken, _files(world)) == ([], [])


async def test_an_upload_that_no_longer_fits_when_it_is_complete_is_refused_too(world: World) -> None:
    artifact = await world.call(artifacts.PUBLISH, intent())

    async def content_while_the_limit_is_lowered() -> AsyncIterator[bytes]:
        yield CONTENT[:5]
        await _limited(world, "project", len(CONTENT) - 1)
        yield CONTENT[5:]

    assert code_of(await upload(world, artifact, content_while_the_limit_is_lowered())) == "policy_denied"
    assert (await world.call(artifacts.GET, artifact_id=artifact.artifact_id)).content_checked_at is None
    assert (await _storage(world)).bytes_used == len(CONTENT), "until it is retired, it counts"


async def test_stored_artifacts_stay_usable_when_the_limit_becomes_lower(world: World) -> None:
    artifact = await published(world, signer=await trusted(world))
    await _limited(world, "project", 0)
    assert (await upload(world, artifact, CONTENT)).status_code == 200
    assert (await verified(world, artifact)).trust == "verified"
    promoted_ = await world.call(artifacts.PROMOTE, {"channel": "stable"}, artifact_id=artifact.artifact_id)
    assert (await fetch(world, await delivery(world, promoted_))).content == CONTENT


@pytest.fixture
async def source() -> AsyncIterator[LoopbackSource]:
    async with loopback_source() as server:
        yield server


async def test_content_that_no_longer_fits_is_not_fetched_either(world: World, source: LoopbackSource) -> None:
    source.replies["/tool"] = sends(CONTENT)
    artifact = await published(world, source={"kind": "http", "url": source.url("/tool")})
    await _limited(world, "project", 0)
    with pytest.raises(errors.PolicyDenied):
        await verified(world, artifact)
    assert (source.asked, _files(world)) == ([], [])


async def test_artifacts_of_an_older_store_are_counted_and_those_that_ended_give_their_content_back(
    settings: Settings, clock: FakeClock
) -> None:
    path = settings.data_dir / "gpuaas.sqlite"
    path.parent.mkdir()
    kept = [_row("art_1", CONTENT), _row("art_2", MORE, lifecycle="retired"), _row("art_3", b"bad", trust="revoked")]
    await schema_before(16, path, settings.database_url, *kept)
    async with server.open_site(settings, clock) as site:
        blobs = content.blobs(site)
        for data in (CONTENT, MORE, b"bad"):
            await blobs.take(_chunks(data), digest_of(data), len(data))
        assert await store.storage(site.database.reader, ["proj_1"], 1) == (len(CONTENT), 1)
        await ContentSweep(site).sweep()
        assert blobs.digests() == [digest_of(CONTENT)]


def _row(artifact_id: str, content_: bytes, lifecycle: str = "published", trust: str = "unverified") -> str:
    """The row of an artifact before its size and end had columns."""
    facts = {"artifact_id": artifact_id, "digest": digest_of(content_), "size_bytes": len(content_)}
    document = msgspec.json.encode({**facts, "lifecycle": lifecycle, "trust": trust}).decode()
    values = (artifact_id, "proj_1", artifact_id, facts["digest"], trust, document)
    return f"INSERT INTO artifacts (artifact_id, scope, name, digest, trust, document) VALUES {values}"
