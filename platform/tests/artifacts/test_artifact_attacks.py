"""Attacks on artifacts, and the error code with which each attack is refused."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from artifact_world import (
    CONTENT,
    MEDIA_TYPE,
    Signer,
    code_of,
    delivery,
    fetch,
    intent,
    promoted,
    published,
    trusted,
    upload,
    verified,
)
from gpuaas_contract import artifacts, deliveries, identity, policy, trust_keys
from gpuaas_contract.artifacts import Artifact
from gpuaas_platform.artifacts.blobs import Blobs
from gpuaas_platform.kit.settings import Settings
from loopback_source import LoopbackSource, loopback_source, never_ends, redirects, sends
from platform_world import World

OTHER = CONTENT.replace(b"real", b"evil")
PATH = "/team/tool"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return dataclasses.replace(settings, artifact_internal_hosts=("127.0.0.1",))


@pytest.fixture
async def source() -> AsyncIterator[LoopbackSource]:
    async with loopback_source() as server:
        yield server


Attack = Callable[[World, LoopbackSource], Awaitable[str]]
"""Makes the attack and returns the code with which it was refused."""


async def flip_a_bit_on_the_way_in(world: World, _: LoopbackSource) -> str:
    artifact = await world.call(artifacts.PUBLISH, intent())
    refused = await upload(world, artifact, bytes([CONTENT[0] ^ 1]) + CONTENT[1:])
    assert not [path for path in (world.site.settings.data_dir / "blobs").rglob("*") if path.is_file()]
    return code_of(refused)


async def publish_the_digest_of_another_tenants_content(world: World, _: LoopbackSource) -> str:
    """The store has one file for a digest, also if several projects upload it. A digest is no secret."""
    await promoted(world, await trusted(world))
    org = await world.call(identity.ORG_CREATE, {"name": "beta"})
    spy = await world.call(identity.PROJECT_CREATE, identity.CreateProject(name="spy"), org_id=org.org_id)
    world.project_id = spy.project_id
    artifact = await world.call(artifacts.PUBLISH, intent(signer=await trusted(world)))
    answer = await verified(world, artifact)
    assert (answer.trust, answer.content_checked_at) == ("failed_verification", None)
    promotion = await world.send(artifacts.PROMOTE, {"channel": "stable"}, artifact_id=artifact.artifact_id)
    assert promotion.is_error
    return answer.trust_code


async def replace_the_stored_file_after_promotion(world: World, _: LoopbackSource) -> str:
    artifact = await promoted(world, await trusted(world))
    handed_out = await delivery(world, artifact)
    assert (await fetch(world, handed_out)).content == CONTENT
    Blobs(world.site.settings.data_dir).path(artifact.digest).write_bytes(OTHER)
    return code_of(await fetch(world, handed_out))


async def serve_other_content_after_promotion(world: World, source: LoopbackSource) -> str:
    source.replies[PATH] = sends(CONTENT)
    artifact = await promoted(world, await trusted(world), source=_at(source))
    source.replies[PATH] = sends(OTHER)
    refused = await _promote(world, artifact)
    assert (await fetch(world, await delivery(world, artifact))).content == CONTENT
    return refused


async def leave_it_unsigned(world: World, _: LoopbackSource) -> str:
    await trusted(world)
    return await _failed(world, await published(world))


async def sign_with_an_untrusted_key(world: World, _: LoopbackSource) -> str:
    await trusted(world)
    return await _failed(world, await published(world, signer=Signer()))


async def use_what_a_revoked_key_signed(world: World, _: LoopbackSource) -> str:
    artifact = await promoted(world, await trusted(world))
    handed_out = await delivery(world, artifact)
    await world.call(trust_keys.TRUST_KEY_REVOKE, trust_key_id="release")
    codes = {await _promote(world, artifact), await _deliver(world, artifact), code_of(await fetch(world, handed_out))}
    codes.add(await _failed(world, artifact))
    (code,) = codes
    return code


async def use_what_is_retired(world: World, _: LoopbackSource) -> str:
    artifact = await promoted(world, await trusted(world))
    handed_out = await delivery(world, artifact)
    await world.call(artifacts.RETIRE, {"reason": "too old"}, artifact_id=artifact.artifact_id)
    codes = {await _promote(world, artifact), await _deliver(world, artifact), code_of(await fetch(world, handed_out))}
    (code,) = codes
    return code


async def publish_from_a_denied_source(world: World, source: LoopbackSource) -> str:
    source.replies[PATH] = sends(CONTENT)
    artifact = await promoted(world, await trusted(world), source=_at(source))
    overlay = policy.Overlay(artifact_sources=policy.Choice(deny=["http://127.0.0.1:*"]))
    await world.call(policy.PROJECT_SET, overlay)
    codes = {
        code_of(await world.send(artifacts.PUBLISH, intent(OTHER, source=_at(source)))),
        code_of(await world.send(artifacts.VERIFY, {}, artifact_id=artifact.artifact_id)),
        await _promote(world, artifact),
        await _deliver(world, artifact),
    }
    (code,) = codes
    return code


async def redirect_to_another_host(world: World, source: LoopbackSource) -> str:
    async with loopback_source() as elsewhere:
        elsewhere.replies[PATH] = sends(CONTENT)
        source.replies[PATH] = redirects(elsewhere.url(PATH, "localhost"))
        code = await _failed(world, await _from(world, source))
        assert elsewhere.asked == []
    return code


async def send_more_than_was_published(world: World, source: LoopbackSource) -> str:
    source.replies[PATH] = sends(CONTENT + b"and more")
    return await _failed(world, await _from(world, source))


async def send_without_end(world: World, source: LoopbackSource) -> str:
    hung_up = asyncio.Event()
    source.replies[PATH] = never_ends(hung_up)
    code = await _failed(world, await _from(world, source))
    await hung_up.wait()
    return code


async def break_off_in_the_middle(world: World, source: LoopbackSource) -> str:
    source.replies[PATH] = sends(CONTENT[:-5], length=len(CONTENT))
    return await _failed(world, await _from(world, source))


async def serve_another_media_type(world: World, source: LoopbackSource) -> str:
    source.replies[PATH] = sends(CONTENT, media_type="text/html")
    return await _failed(world, await _from(world, source))


async def use_an_expired_token(world: World, _: LoopbackSource) -> str:
    artifact = await promoted(world, await trusted(world))
    handed_out = await delivery(world, artifact)
    world.clock.forward(60)
    return code_of(await fetch(world, handed_out))


async def use_the_token_of_another_project(world: World, _: LoopbackSource) -> str:
    artifact = await promoted(world, await trusted(world))
    handed_out = await delivery(world, artifact)
    at_home, org_id = world.project_id, (await world.call(identity.ORG_LIST)).items[0].org_id
    other = await world.call(identity.PROJECT_CREATE, {"name": "other"}, org_id=org_id)
    account = await world.service_account("robot", other.project_id)
    refused = await world.send(
        deliveries.DELIVERY_CREATE, {"purpose": "x"}, token=account, artifact_id=handed_out.artifact_id
    )
    assert (refused.status_code, code_of(refused)) == (404, "not_found")
    world.project_id = other.project_id
    theirs = await delivery(world, await promoted(world, await trusted(world), OTHER))
    world.project_id = at_home
    answers = [await fetch(world, handed_out, token) for token in (theirs.token, account, "none")]
    answers.append(await world.http.get(handed_out.url))
    answers.append(await world.http.get(f"{handed_out.url}x", headers={"Authorization": f"Bearer {handed_out.token}"}))
    ((status, code),) = {(answer.status_code, code_of(answer)) for answer in answers}
    assert status == 404
    return code


ATTACKS: tuple[tuple[Attack, str], ...] = (
    (flip_a_bit_on_the_way_in, "artifact_digest_mismatch"),
    (publish_the_digest_of_another_tenants_content, "artifact_content_missing"),
    (replace_the_stored_file_after_promotion, "artifact_digest_mismatch"),
    (serve_other_content_after_promotion, "artifact_digest_mismatch"),
    (leave_it_unsigned, "artifact_unsigned"),
    (sign_with_an_untrusted_key, "artifact_signer_unknown"),
    (use_what_a_revoked_key_signed, "artifact_signer_revoked"),
    (use_what_is_retired, "artifact_retired"),
    (publish_from_a_denied_source, "artifact_source_denied"),
    (redirect_to_another_host, "artifact_redirect_refused"),
    (send_more_than_was_published, "artifact_too_large"),
    (send_without_end, "artifact_too_large"),
    (break_off_in_the_middle, "artifact_truncated"),
    (serve_another_media_type, "artifact_media_type_mismatch"),
    (use_an_expired_token, "delivery_expired"),
    (use_the_token_of_another_project, "delivery_unknown"),
)


@pytest.mark.parametrize(("attack", "reason"), ATTACKS, ids=[attack.__name__ for attack, _ in ATTACKS])
async def test_the_attack_is_refused_with_a_named_reason(
    world: World, source: LoopbackSource, attack: Attack, reason: str
) -> None:
    assert await attack(world, source) == reason


async def test_the_same_steps_without_an_attack_end_with_the_content(world: World, source: LoopbackSource) -> None:
    """Shows that the attacks are refused for what they change and for nothing else."""
    source.replies[PATH] = sends(CONTENT, media_type=f"{MEDIA_TYPE}; charset=utf-8")
    artifact = await promoted(world, await trusted(world), source=_at(source))
    answer = await fetch(world, await delivery(world, artifact))
    assert (answer.status_code, answer.content) == (200, CONTENT)


def _at(source: LoopbackSource) -> dict[str, Any]:
    return {"kind": "http", "url": source.url(PATH)}


async def _from(world: World, source: LoopbackSource) -> Artifact:
    return await published(world, CONTENT, await trusted(world), source=_at(source))


async def _failed(world: World, artifact: Artifact) -> str:
    """Return the code that verification records; promotion is refused with the same code."""
    checked = await verified(world, artifact)
    assert (checked.trust, checked.signers) == ("failed_verification", [])
    assert await _promote(world, artifact) == checked.trust_code
    return checked.trust_code


async def _promote(world: World, artifact: Artifact) -> str:
    return code_of(await world.send(artifacts.PROMOTE, {"channel": "next"}, artifact_id=artifact.artifact_id))


async def _deliver(world: World, artifact: Artifact) -> str:
    answer = await world.send(deliveries.DELIVERY_CREATE, {"purpose": "x"}, artifact_id=artifact.artifact_id)
    return code_of(answer)
