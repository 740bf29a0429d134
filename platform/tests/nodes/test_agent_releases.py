"""Releases of the agent: signed by a key the platform was configured with, and approved by a second person."""

import argparse
import dataclasses
import hashlib
from pathlib import Path

import msgspec
import old_store
import pytest
import signed_releases
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_agent import ed25519
from gpuaas_agent import releases as agent_releases
from gpuaas_contract import agents, audit, errors, node
from gpuaas_platform import main, server
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.nodes import rules, signatures, store
from platform_world import World
from signed_releases import archive, body

WHY = {"reason": "built it from the same source"}


async def register(world: World, content: bytes, version: str = "1.0.0") -> agents.AgentRelease:
    return await world.call(agents.AGENT_RELEASE_REGISTER, body(content, version))


async def upgrade(world: World, release: agents.AgentRelease) -> agents.NodeTask:
    veteran = world.nodes.get("n1") or await world.node("n1")
    asked = {"sha256": release.sha256, "reason": "try it"}
    return await world.call(agents.NODE_UPGRADE_AGENT, asked, node_id=veteran.node_id)


async def test_a_release_is_named_by_its_bytes_and_reaches_the_node_with_its_signature(world: World) -> None:
    content = archive()
    release = await register(world, content)
    assert release.sha256 == hashlib.sha256(content).hexdigest()
    assert await register(world, content) == release
    assert (await world.call(agents.AGENT_RELEASE_LIST)).items == [release]
    n1 = await world.node("n1")
    sent = await world.call(node.AGENT_FILE, token=n1.token, sha256=release.sha256)
    assert sent.content == content
    pinned = [ed25519.one_line(signed_releases.public_pem())]
    assert agent_releases.is_signed(pinned, sent.version, release.sha256, sent.signature)
    assert release.key_id == agent_releases.key_id(pinned[0])


async def test_only_an_archive_is_accepted_as_a_release(world: World) -> None:
    with pytest.raises(errors.ValidationFailed, match="not an agent archive"):
        await register(world, b"#!/bin/sh\nrm -rf /\n")


def test_platform_and_agent_sign_the_same_message() -> None:
    assert agents.release_message("1.0.0", "0" * 64) == agent_releases.message("1.0.0", "0" * 64)


async def test_a_release_that_no_configured_key_signed_is_refused(world: World) -> None:
    content = archive()
    stranger = body(content, key=Ed25519PrivateKey.generate())
    for refused in (stranger, {**body(content), "version": "1.0.1"}, {**body(archive("other")), **_content(content)}):
        with pytest.raises(errors.AgentSignatureInvalid) as error:
            await world.call(agents.AGENT_RELEASE_REGISTER, refused)
        assert error.value.details["trusted_key_ids"] == [signatures.key_id(signed_releases.KEY.public_key())]
    with pytest.raises(errors.ValidationFailed, match="signature"):
        await world.call(agents.AGENT_RELEASE_REGISTER, {**body(content), "signature": ""})
    assert (await world.call(agents.AGENT_RELEASE_LIST)).items == []


def _content(content: bytes) -> dict[str, str]:
    return {"content": body(content)["content"]}


class TestWithoutAKey:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return dataclasses.replace(settings, agent_release_keys=())

    async def test_no_release_is_registered(self, world: World) -> None:
        with pytest.raises(errors.AgentNoReleaseKey):
            await register(world, archive())


NEXT_KEY = Ed25519PrivateKey.generate()


class TestDuringAChangeOfKeys:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        both = (*settings.agent_release_keys, signed_releases.public_pem(NEXT_KEY))
        return dataclasses.replace(settings, agent_release_keys=both)

    async def test_an_approved_release_gets_the_signature_of_the_next_key(self, world: World) -> None:
        content = archive()
        before = await signed_releases.approved(world, content)
        after = await world.call(agents.AGENT_RELEASE_REGISTER, body(content, key=NEXT_KEY))
        assert after.key_id == signatures.key_id(NEXT_KEY.public_key())
        unsigned = {"signature": "", "key_id": ""}
        assert msgspec.structs.replace(after, **unsigned) == msgspec.structs.replace(before, **unsigned)


async def test_a_release_is_installed_only_after_another_person_approved_it(world: World) -> None:
    release = await register(world, archive())
    assert (release.status, release.approved_by, release.approved_at) == ("registered", "", None)
    with pytest.raises(errors.AgentReleaseUnapproved) as refused:
        await upgrade(world, release)
    assert f"gpuaas agent approve {release.version}" in refused.value.fix
    with pytest.raises(errors.PermissionDenied, match="another person"):
        await world.call(agents.AGENT_RELEASE_APPROVE, WHY, sha256=release.sha256)

    other = await signed_releases.second_operator(world)
    approved = await world.call(agents.AGENT_RELEASE_APPROVE, WHY, token=other.token, sha256=release.sha256)
    assert (approved.status, approved.approved_by) == ("approved", other.user_id)
    assert await world.call(agents.AGENT_RELEASE_APPROVE, WHY, sha256=release.sha256) == approved
    assert (await upgrade(world, release)).state == "queued"


async def test_the_audit_trail_has_who_registered_and_who_approved_and_why(world: World) -> None:
    release = await signed_releases.approved(world, archive())
    rows = (await world.call(audit.PLATFORM_AUDIT_LIST, query={"page_size": 500})).items
    of_release = {row.action: row for row in rows if row.target.endswith(release.sha256)}
    registered = of_release["capacity.agent_release.register"]
    approved = of_release["capacity.agent_release.approve"]
    assert (registered.actor_id, registered.details["key_id"]) == (release.registered_by, release.key_id)
    assert (approved.actor_id, approved.details["reason"]) == (release.approved_by, WHY["reason"])


async def test_what_was_never_registered_cannot_be_approved(world: World) -> None:
    with pytest.raises(errors.NotFound, match="no agent release"):
        await world.call(agents.AGENT_RELEASE_APPROVE, WHY, sha256="0" * 64)


class TestWithoutASecondPerson:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return dataclasses.replace(settings, agent_release_approvals=0)

    async def test_a_registered_release_is_approved_at_once(self, world: World) -> None:
        release = await register(world, archive())
        assert (release.status, release.approved_by) == ("approved", release.registered_by)
        assert (await upgrade(world, release)).state == "queued"

    async def test_the_registrars_own_approval_does_not_count_once_the_policy_asks_for_two(self, world: World) -> None:
        release = await register(world, archive())
        with pytest.raises(errors.AgentReleaseUnapproved):
            rules.check_approved(release, 1)
        again = rules.approved(release, "another person", world.clock(), approvals=1)
        rules.check_approved(again, 1)


async def test_releases_of_an_older_store_have_no_signature_and_are_deleted(
    settings: Settings, database_url: str
) -> None:
    settings.data_dir.mkdir(mode=0o700)
    await old_store.schema_before(
        33,
        settings.sqlite_path,
        database_url,
        """INSERT INTO agent_releases VALUES ('0', '{"sha256":"0","version":"1"}')""",
        "INSERT INTO agent_files VALUES ('0', 'UEs=')",
    )
    async with server.open_site(settings) as site:
        assert await store.AGENT_RELEASES.find(site.database.reader, "1 = 1") == []
        assert await store.file(site.database.reader, "0") is None


def test_a_file_without_a_public_key_is_refused_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "release.key.pub"
    for content in ("", "no key", signed_releases.public_pem().replace("MCow", "MCox")):
        file.write_text(content)
        with pytest.raises(argparse.ArgumentTypeError, match="not an Ed25519 public key"):
            main._release_key(str(file))
    file.write_text(signed_releases.public_pem())
    assert main._release_key(str(file)) == signed_releases.public_pem()
