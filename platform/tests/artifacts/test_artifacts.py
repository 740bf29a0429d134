"""The life of an artifact over HTTP, in a project and shared by the platform, on both stores."""

import asyncio
import dataclasses
import json
import os
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from artifact_world import (
    CONTENT,
    Signer,
    code_of,
    delivery,
    digest_of,
    fetch,
    intent,
    promoted,
    published,
    shared,
    trust,
    trusted,
    upload,
    verified,
)
from gpuaas_contract import artifacts, audit, errors, events, identity, policy, trust_keys
from gpuaas_contract.artifacts import Artifact
from gpuaas_contract.deliveries import Delivery
from gpuaas_platform import server, tls
from gpuaas_platform.artifacts import fetch as fetching
from gpuaas_platform.artifacts import reconcile, service, store
from gpuaas_platform.artifacts.blobs import Blobs
from gpuaas_platform.certificates import Certificates
from gpuaas_platform.edge import http
from gpuaas_platform.identity import store as identity_store
from gpuaas_platform.kit import clock
from gpuaas_platform.kit.settings import Settings
from loopback_source import LoopbackSource, goes_silent, loopback_source, redirects, refuses, sends
from platform_world import World
from served_application import served

PATH = "/team/tool"
SECRET = "a-token-for-the-source"


@pytest.fixture
def fetch_s_max() -> float:
    return 600.0


@pytest.fixture
def settings(settings: Settings, fetch_s_max: float) -> Settings:
    return dataclasses.replace(
        settings,
        artifact_internal_hosts=("127.0.0.1", "files.test", "other.test"),
        artifact_bytes_max=50 << 20,
        artifact_fetch_s_max=fetch_s_max,
    )


@pytest.fixture
async def source() -> AsyncIterator[LoopbackSource]:
    async with loopback_source() as server:
        yield server


async def test_an_artifact_goes_from_intent_to_delivery_with_an_event_for_each_step(world: World) -> None:
    signer = await trusted(world)
    artifact = await published(world, signer=signer)
    assert (artifact.lifecycle, artifact.trust, artifact.signed) == ("published", "unverified", True)
    current = await verified(world, artifact)
    assert (current.trust, current.trust_code, current.signers) == ("verified", "", [signer.fingerprint()])
    for channel in ("beta", "stable", "beta"):
        body = {"channel": channel}
        current = await world.call(artifacts.PROMOTE, body, artifact_id=artifact.artifact_id)
    assert (current.lifecycle, current.channels) == ("promoted", ["beta", "stable"])
    answer = await fetch(world, await delivery(world, artifact))
    assert (answer.content, answer.headers["content-type"]) == (CONTENT, "application/octet-stream")
    payloads = [event.payload for event in await _events(world, "artifacts.artifact.changed")]
    assert [(payload["lifecycle"], payload["trust"]) for payload in payloads] == [
        ("published", "unverified"),
        ("published", "unverified"),
        ("published", "verified"),
        *[("promoted", "verified")] * 3,
    ]
    (handed_out,) = await _events(world, "artifacts.delivery.created")
    assert (handed_out.payload["digest"], handed_out.payload["purpose"]) == (artifact.digest, "install")


async def test_a_signature_can_be_added_later_and_the_next_verification_succeeds(world: World) -> None:
    signer = await trusted(world)
    artifact = await published(world)
    assert (await verified(world, artifact)).trust == "failed_verification"
    envelope = signer.envelope(artifact.digest)
    await world.call(artifacts.SIGNATURE_PUT, envelope, artifact_id=artifact.artifact_id)
    assert (await verified(world, artifact)).trust == "verified"


async def test_an_artifact_whose_key_was_revoked_is_trusted_again_with_a_signature_of_another_key(world: World) -> None:
    artifact = await promoted(world, await trusted(world))
    await world.call(trust_keys.TRUST_KEY_REVOKE, trust_key_id="release")
    successor = await trusted(world, "release-2")
    envelope = successor.envelope(artifact.digest)
    await world.call(artifacts.SIGNATURE_PUT, envelope, artifact_id=artifact.artifact_id)
    assert (await verified(world, artifact)).signers == [successor.fingerprint()]
    assert (await fetch(world, await delivery(world, artifact))).content == CONTENT


async def test_a_deprecated_artifact_is_still_delivered_and_no_longer_deployed(world: World) -> None:
    artifact = await promoted(world, await trusted(world))
    assert (await _deployable(world)).artifact_id == artifact.artifact_id
    await world.call(artifacts.DEPRECATE, {"reason": "there is a newer one"}, artifact_id=artifact.artifact_id)
    assert (await fetch(world, await delivery(world, artifact))).content == CONTENT
    with pytest.raises(errors.ArtifactNotPromoted):
        await _deployable(world)


async def test_a_revoked_digest_is_refused_under_every_name_and_for_good(world: World) -> None:
    signer = await trusted(world)
    artifact = await promoted(world, signer)
    twin = await promoted(world, signer, name="twin")
    handed_out = await delivery(world, twin)
    await world.call(artifacts.REVOKE, {"reason": "it phones home"}, artifact_id=artifact.artifact_id)
    assert code_of(await fetch(world, handed_out)) == "artifact_revoked"
    for refused in (
        await world.send(artifacts.PUBLISH, intent(name="third")),
        await world.send(artifacts.PROMOTE, {"channel": "x"}, artifact_id=twin.artifact_id),
        await world.send(artifacts.VERIFY, {}, artifact_id=artifact.artifact_id),
        await upload(world, artifact, CONTENT),
    ):
        assert code_of(refused) == "artifact_revoked"


async def test_a_repeated_verification_or_promotion_gets_its_first_answer_even_after_a_revocation(world: World) -> None:
    artifact_id = (await published(world, CONTENT, await trusted(world))).artifact_id
    stable = {"channel": "stable"}
    first = await world.send(artifacts.VERIFY, {}, key="verify-1", artifact_id=artifact_id)
    released = await world.send(artifacts.PROMOTE, stable, key="promote-1", artifact_id=artifact_id)
    await world.call(artifacts.REVOKE, {"reason": "it phones home"}, artifact_id=artifact_id)
    again = await world.send(artifacts.VERIFY, {}, key="verify-1", artifact_id=artifact_id)
    released_again = await world.send(artifacts.PROMOTE, stable, key="promote-1", artifact_id=artifact_id)
    assert (again.status_code, again.content) == (200, first.content)
    assert (released_again.status_code, released_again.content) == (200, released.content)
    refused = await world.send(artifacts.VERIFY, {}, key="verify-2", artifact_id=artifact_id)
    assert code_of(refused) == "artifact_revoked"


@pytest.mark.parametrize(
    "endpoint", [artifacts.DEPRECATE, artifacts.RETIRE, artifacts.REVOKE], ids=lambda endpoint: endpoint.name
)
async def test_ending_an_artifact_needs_a_reason(world: World, endpoint: Any) -> None:
    artifact = await published(world)
    assert code_of(await world.send(endpoint, {}, artifact_id=artifact.artifact_id)) == "validation_error"


async def test_only_legal_moves_are_made(world: World) -> None:
    artifact = await published(world)
    early = await world.send(artifacts.DEPRECATE, {"reason": "too early"}, artifact_id=artifact.artifact_id)
    assert code_of(early) == "conflict"
    assert code_of(await world.send(artifacts.PROMOTE, {"channel": "x"}, artifact_id=artifact.artifact_id)) == (
        "artifact_unverified"
    )
    await world.call(artifacts.RETIRE, {"reason": "never mind"}, artifact_id=artifact.artifact_id)
    assert code_of(await world.send(artifacts.VERIFY, {}, artifact_id=artifact.artifact_id)) == "artifact_retired"


async def test_the_same_name_and_digest_is_published_once(world: World) -> None:
    artifact = await published(world)
    again = await world.send(artifacts.PUBLISH, intent())
    assert (code_of(again), again.json()["details"]) == ("conflict", {"artifact_id": artifact.artifact_id})


async def test_an_upload_that_is_not_whole_leaves_nothing_behind(world: World) -> None:
    artifact = await world.call(artifacts.PUBLISH, intent())
    refusals = {
        "artifact_truncated": CONTENT[:-1],
        "artifact_too_large": CONTENT + b"!",
        "artifact_digest_mismatch": bytes(len(CONTENT)),
    }
    for code, content in refusals.items():
        assert code_of(await upload(world, artifact, content)) == code
    assert await _hang_up_while_uploading(world, artifact) == 400
    assert _files(world) == []
    assert (await verified(world, artifact)).trust_code == "artifact_content_missing"


async def test_a_body_above_the_limit_is_refused_before_it_is_read(world: World) -> None:
    artifact = await world.call(artifacts.PUBLISH, intent())
    path = artifacts.CONTENT_PUT.path.format(project_id=world.project_id, artifact_id=artifact.artifact_id)
    size = world.site.settings.artifact_bytes_max + 1
    headers = {"Authorization": f"Bearer {world.token}", "Content-Length": str(size)}
    answer = await world.http.put(path, content=CONTENT, headers=headers)
    assert code_of(answer) == "body_too_large"
    assert code_of(await world.send(artifacts.PUBLISH, intent(size_bytes=size))) == "artifact_too_large"


async def test_a_dry_run_checks_an_upload_and_keeps_nothing(world: World) -> None:
    artifact = await world.call(artifacts.PUBLISH, intent())
    assert (await upload(world, artifact, CONTENT, dry_run="true")).status_code == 200
    assert code_of(await upload(world, artifact, b"x", dry_run="true")) == "artifact_truncated"
    assert _files(world) == []
    assert (await world.call(artifacts.GET, artifact_id=artifact.artifact_id)).content_checked_at is None


async def test_drafts_of_a_killed_process_are_deleted_and_drafts_in_progress_are_kept(world: World) -> None:
    await published(world)
    drafts = world.site.settings.data_dir / "blobs" / "drafts"
    (drafts / "old").write_bytes(b"half")
    (drafts / "new").write_bytes(b"half")
    _touch_before(drafts / "old", seconds=7200)
    await reconcile.sweep(world.site)
    assert [draft.name for draft in drafts.iterdir()] == ["new"]


async def test_deliveries_are_deleted_a_day_after_they_expire(world: World) -> None:
    artifact = await promoted(world, await trusted(world))
    old = await delivery(world, artifact)
    world.clock.forward(86_400 + 30)
    world.token = await world.sign_in("admin")
    new = await delivery(world, artifact)
    await server.forget_old_rows(world.site)
    assert code_of(await fetch(world, old)) == "delivery_expired"
    world.clock.forward(31)
    await server.forget_old_rows(world.site)
    assert code_of(await fetch(world, old)) == "delivery_unknown"
    assert await store.delivery(world.site.database.reader, new.delivery_id) is not None


async def test_shared_artifacts_are_made_by_admins_and_used_by_every_project(world: World) -> None:
    artifact = await shared(world, Signer())
    member = await world.person("member", "project_member", world.project_id)
    listed = await world.call(artifacts.LIST, token=member.token, query={"shared": "true"})
    assert [item.artifact_id for item in listed.items] == [artifact.artifact_id]
    assert (await world.call(artifacts.LIST, token=member.token)).items == []
    assert (await world.call(artifacts.GET, token=member.token, artifact_id=artifact.artifact_id)).scope == "platform"
    assert (await fetch(world, await delivery(world, artifact, token=member.token))).content == CONTENT
    assert (await _deployable(world)).scope == "platform"
    refused = await world.send(artifacts.REVOKE, {"reason": "mine now"}, artifact_id=artifact.artifact_id)
    assert refused.status_code == 404


async def test_a_project_key_does_not_vouch_for_what_is_shared_and_a_platform_key_does_everywhere(world: World) -> None:
    mine, vendor = await trusted(world), Signer()
    key = trust_keys.PutTrustKey(public_key_pem=vendor.public_pem())
    await world.call(trust_keys.SHARED_TRUST_KEY_PUT, key, trust_key_id="vendor")
    artifact = await world.call(artifacts.SHARED_PUBLISH, intent(signer=mine))
    path = artifacts.SHARED_CONTENT_PUT.path.format(artifact_id=artifact.artifact_id)
    await world.http.put(path, content=CONTENT, headers={"Authorization": f"Bearer {world.token}"})
    checked = await world.call(artifacts.SHARED_VERIFY, {}, artifact_id=artifact.artifact_id)
    assert checked.trust_code == "artifact_signer_unknown"
    assert (await verified(world, await published(world, signer=vendor))).trust == "verified"


async def test_a_deploy_gets_the_artifact_or_the_reason_why_not(world: World) -> None:
    with pytest.raises(errors.ArtifactUnknown):
        await _deployable(world)
    artifact = await published(world, signer=await trusted(world))
    with pytest.raises(errors.ArtifactUnverified):
        await _deployable(world)
    await verified(world, artifact)
    with pytest.raises(errors.ArtifactNotPromoted):
        await _deployable(world)
    await world.call(artifacts.PROMOTE, {"channel": "stable"}, artifact_id=artifact.artifact_id)
    assert (await _deployable(world)).digest == artifact.digest
    await world.call(policy.PROJECT_SET, policy.Overlay(artifact_sources=policy.Choice(allow=["registry/*"])))
    with pytest.raises(errors.ArtifactSourceDenied):
        await _deployable(world)


async def test_a_trust_key_never_changes_and_never_comes_back(world: World) -> None:
    signer = await trusted(world)
    assert (await trust(world, signer, "release")).revoked_at is None
    with pytest.raises(errors.Conflict):
        await trust(world, Signer(), "release")
    revoked = await world.call(trust_keys.TRUST_KEY_REVOKE, trust_key_id="release")
    assert await world.call(trust_keys.TRUST_KEY_REVOKE, trust_key_id="release") == revoked
    for trust_key_id in ("release", "again"):
        with pytest.raises(errors.Conflict):
            await trust(world, signer, trust_key_id)
    assert (await world.call(trust_keys.TRUST_KEY_LIST)).items == [revoked]
    states = [event.payload["revoked"] for event in await _events(world, "artifacts.trust_key.changed")]
    assert states == [False, True]


async def test_no_service_account_decides_whose_signatures_count(world: World) -> None:
    token = await world.service_account()
    body = trust_keys.PutTrustKey(public_key_pem=Signer().public_pem())
    refused = await world.send(trust_keys.TRUST_KEY_PUT, body, token=token, trust_key_id="mine")
    assert refused.status_code == 403


async def test_lists_are_paged_and_can_be_filtered_by_name(world: World) -> None:
    made = [await world.call(artifacts.PUBLISH, intent(bytes([n]), name=f"tool-{n % 2}")) for n in range(5)]
    seen, token = list[str](), ""
    while True:
        page = await world.call(artifacts.LIST, query={"page_size": 2, "page_token": token})
        seen += [artifact.artifact_id for artifact in page.items]
        if page.next_page_token is None:
            break
        token = page.next_page_token
    assert seen == [artifact.artifact_id for artifact in made]
    named = (await world.call(artifacts.LIST, query={"name": "tool-1"})).items
    assert [artifact.artifact_id for artifact in named] == [made[1].artifact_id, made[3].artifact_id]


async def test_a_redirect_is_followed_to_a_host_that_a_policy_names_and_the_token_stays_behind(
    world: World, source: LoopbackSource
) -> None:
    async with loopback_source() as elsewhere:
        elsewhere.replies["/signed?for=you"] = sends(CONTENT)
        source.replies[PATH] = redirects("/moved")
        source.replies["/moved"] = redirects(elsewhere.url("/signed?for=you"))
        listed = policy.Choice(allow=[source.url("/*"), elsewhere.url("/*")])
        await world.call(policy.PROJECT_SET, policy.Overlay(artifact_sources=listed))
        artifact = await published(world, CONTENT, await trusted(world), source=_at(source))
        assert (await verified(world, artifact, source_token=SECRET)).trust == "verified"
        assert [headers.get("authorization") for _, headers in source.asked] == [f"bearer {SECRET}"] * 2
        ((_, headers),) = elsewhere.asked
        assert "authorization" not in headers


async def test_redirects_in_a_circle_end(world: World, source: LoopbackSource) -> None:
    source.replies[PATH] = redirects(PATH)
    artifact = await published(world, CONTENT, await trusted(world), source=_at(source))
    assert (await verified(world, artifact)).trust_code == "artifact_redirect_refused"
    assert len(source.asked) == 4


async def test_a_registry_that_requires_a_token_for_public_content_is_supported(
    world: World, source: LoopbackSource
) -> None:
    asked: list[str] = []

    async def blob(writer: asyncio.StreamWriter) -> None:
        bearer = source.asked[-1][1].get("authorization", "")
        asked.append(bearer)
        challenge = f'WWW-Authenticate: Bearer realm="{source.url("/token")}",service="it",scope="repository:team:pull"'
        await (sends(CONTENT) if bearer == "bearer public" else refuses(401, challenge))(writer)

    artifact = await published(
        world,
        CONTENT,
        await trusted(world),
        source={"kind": "oci", "reference": f"127.0.0.1:{source.port}/team"},
    )
    source.replies[f"/v2/team/blobs/{artifact.digest}"] = blob
    source.replies["/token?service=it&scope=repository%3Ateam%3Apull"] = sends(json.dumps({"token": "public"}).encode())
    assert (await verified(world, artifact)).trust == "verified"
    assert asked == ["", "bearer public"]


async def test_a_source_on_an_internal_address_is_closed_unless_the_operator_names_it(
    world: World, source: LoopbackSource
) -> None:
    source.replies[PATH] = sends(CONTENT)
    for number, host in enumerate(("localhost", "[::ffff:127.0.0.1]", "127.0.0.2")):
        at = {"kind": "http", "url": source.url(PATH, host)}
        artifact = await published(world, CONTENT, name=f"at-{number}", source=at)
        refused = await world.send(artifacts.VERIFY, {}, artifact_id=artifact.artifact_id)
        assert code_of(refused) == "artifact_source_denied"
    assert source.asked == []


async def test_a_server_must_prove_the_name_it_was_asked_by_though_its_address_is_connected_to(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = tls.load_authority(tmp_path, clock.utc_now())
    shows = Certificates(authority, clock.utc_now).context("files.test")
    monkeypatch.setattr(fetching, "_trusted_authorities", lambda: ssl.create_default_context(cadata=authority.pem))
    monkeypatch.setattr(fetching, "_address", _on_this_machine)
    signer = await trusted(world)
    async with loopback_source(encrypted_by=shows) as source:
        source.replies[PATH] = sends(CONTENT)
        for host, outcome in (("files.test", "verified"), ("other.test", "artifact_source_unreachable")):
            at = {"kind": "http", "url": source.url(PATH, host)}
            artifact = await published(world, CONTENT, signer, name=host, source=at)
            answer = (await world.send(artifacts.VERIFY, {}, artifact_id=artifact.artifact_id)).json()
            assert answer.get("trust", answer.get("code")) == outcome


async def test_an_encrypted_source_that_redirects_to_a_listed_address_without_encryption_is_refused(
    world: World, source: LoopbackSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = tls.load_authority(tmp_path, clock.utc_now())
    shows = Certificates(authority, clock.utc_now).context("files.test")
    monkeypatch.setattr(fetching, "_trusted_authorities", lambda: ssl.create_default_context(cadata=authority.pem))
    monkeypatch.setattr(fetching, "_address", _on_this_machine)
    source.replies[PATH] = sends(CONTENT)
    async with loopback_source(encrypted_by=shows) as encrypted:
        encrypted.replies[PATH] = redirects(source.url(PATH))
        listed = policy.Choice(allow=[encrypted.url("/*", "files.test"), source.url("/*")])
        await world.call(policy.PROJECT_SET, policy.Overlay(artifact_sources=listed))
        at = {"kind": "http", "url": encrypted.url(PATH, "files.test")}
        artifact = await published(world, CONTENT, await trusted(world), source=at)
        assert (await verified(world, artifact)).trust_code == "artifact_redirect_refused"
    assert source.asked == []


@pytest.mark.parametrize("fetch_s_max", [0.2])
async def test_a_source_that_stops_sending_times_out_and_nothing_of_it_is_kept(
    world: World, source: LoopbackSource
) -> None:
    released = asyncio.Event()
    source.replies[PATH] = goes_silent(CONTENT[:-1], released)
    artifact = await published(world, CONTENT, await trusted(world), source=_at(source))
    refused = await world.send(artifacts.VERIFY, {}, artifact_id=artifact.artifact_id)
    released.set()
    assert code_of(refused) == "artifact_source_unreachable"
    assert _files(world) == []
    assert (await world.call(artifacts.GET, artifact_id=artifact.artifact_id)).trust == "unverified"


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_neither_the_sources_token_nor_a_deliverys_is_kept_anywhere(
    world: World, source: LoopbackSource, capfd: pytest.CaptureFixture[str]
) -> None:
    source.replies[PATH] = sends(CONTENT)
    artifact = await published(world, CONTENT, await trusted(world), source=_at(source))
    await verified(world, artifact, source_token=SECRET)
    body = {"channel": "stable", "source_token": SECRET}
    await world.call(artifacts.PROMOTE, body, artifact_id=artifact.artifact_id)
    handed_out = await delivery(world, artifact)
    await fetch(world, handed_out)
    output = "".join(capfd.readouterr())
    kept = b"".join(path.read_bytes() for path in world.site.settings.data_dir.rglob("*") if path.is_file())
    assert artifact.artifact_id.encode() in kept
    for secret in (SECRET, handed_out.token):
        assert secret not in output
        assert secret.encode() not in kept


async def test_the_audit_trail_shows_what_was_done_to_an_artifact_and_why(world: World) -> None:
    artifact = await promoted(world, await trusted(world))
    await world.call(artifacts.REVOKE, {"reason": "it phones home"}, artifact_id=artifact.artifact_id)
    rows = (await world.call(audit.AUDIT_LIST)).items
    by_action = {row.action: row for row in rows if row.action.startswith("artifacts.")}
    assert by_action["artifacts.artifact.verify"].details["trust"] == "verified"
    assert by_action["artifacts.artifact.revoke"].details["reason"] == "it phones home"
    assert by_action["artifacts.artifact.revoke"].target == artifact.artifact_id


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_large_file_replaced_on_disk_never_arrives_whole(settings: Settings) -> None:
    """The file is too large to be checked before it is sent, so the connection is closed before the last part."""
    content = bytes(17 << 20)

    async def make(world: World) -> tuple[Delivery, Path]:
        artifact = await promoted(world, await trusted(world), content)
        return await delivery(world, artifact), Blobs(settings.data_dir).path(artifact.digest)

    with served(settings, make) as running:
        handed_out, stored = running.made
        assert digest_of(_fetched(running.url, handed_out)) == handed_out.digest
        with stored.open("r+b") as file:
            file.write(b"x")
        with pytest.raises(httpx.RemoteProtocolError):
            _fetched(running.url, handed_out)


async def _on_this_machine(_: str, __: int) -> str:
    return "127.0.0.1"


def _fetched(url: str, handed_out: Delivery) -> bytes:
    headers = {"Authorization": f"Bearer {handed_out.token}"}
    return httpx.get(f"{url}{handed_out.url}", headers=headers, trust_env=False, timeout=60).content


def _at(source: LoopbackSource) -> dict[str, Any]:
    return {"kind": "http", "url": source.url(PATH)}


def _files(world: World) -> list[Path]:
    return [path for path in (world.site.settings.data_dir / "blobs").rglob("*") if path.is_file()]


def _touch_before(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds,) * 2)


async def _hang_up_while_uploading(world: World, artifact: Artifact) -> int:
    """Disconnect in the middle of an upload and return the status that the platform answers."""
    path = artifacts.CONTENT_PUT.path.format(project_id=world.project_id, artifact_id=artifact.artifact_id)
    headers = [(b"authorization", f"Bearer {world.token}".encode())]
    scope = {"type": "http", "method": "PUT", "path": path, "headers": headers}
    came = [{"type": "http.request", "body": CONTENT[:3], "more_body": True}, {"type": "http.disconnect"}]
    sent: list[Any] = []

    async def receive() -> Any:
        return came.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    await http.application(world.site, server.DOMAINS)(scope, receive, send)
    return int(sent[0]["status"])


async def _events(world: World, kind: str) -> list[events.Event]:
    return [event for event in (await world.call(events.EVENT_LIST)).items if event.type == kind]


async def _deployable(world: World) -> Artifact:
    reader = world.site.database.reader
    project = await identity_store.PROJECTS.get(reader, world.project_id)
    assert isinstance(project, identity.Project)
    return await service.deployable(reader, project, "tool", digest_of(CONTENT))
