"""Conformance cards: only a trusted key makes one, only about this manifest, and a policy can require one."""

import base64
from typing import Any

import artifact_world
import msgspec
import pytest
from artifact_world import Signer
from gpuaas_contract import bindings, catalog, conformance, errors, events, policy, trust_keys
from gpuaas_contract.permissions import PUBLISHER
from platform_world import MANIFEST, World

WHERE: dict[str, Any] = {"app_slug": "toy", "version": "1.0.0"}
REQUIRED = {"conformance_required": True, "reason": "production"}
_INVALID = "artifact_signature_invalid"
FAILED = [{"name": "residue", "result": "failed", "reason": "n1 has /opt"}]


async def _trusted(world: World, trust_key_id: str = "cards") -> Signer:
    """A signer whom the platform trusts."""
    signer = Signer()
    key = {"public_key_pem": signer.public_pem()}
    await world.call(trust_keys.SHARED_TRUST_KEY_PUT, key, trust_key_id=trust_key_id)
    return signer


async def _require(world: World) -> None:
    await world.call(policy.PROJECT_SET, REQUIRED, headers={"If-Match": "*"})


async def test_a_publisher_attaches_a_card_that_everyone_reads_with_the_version(world: World) -> None:
    await world.entitled_app()
    signer, ada = await _trusted(world), await world.person("ada")
    role = {"user_id": ada.user_id, "role": PUBLISHER}
    await world.call(bindings.APP_BINDING_CREATE, role, app_slug="toy")
    envelope = artifact_world.card(signer)
    attached = await world.call(conformance.CARD_PUT, envelope, token=ada.token, **WHERE)
    assert (attached.card.conforming, attached.card.trusted) == (True, True)
    assert attached.card.signers == [signer.fingerprint()]
    assert attached.card.attached_by == ada.user_id
    for shown in (
        await world.call(catalog.PROJECT_APP_GET, **WHERE),
        await world.call(catalog.VERSION_GET, token=ada.token, **WHERE),
    ):
        assert shown.conformance == attached.card
    for endpoint in (conformance.CARD_GET, conformance.PROJECT_CARD_GET):
        assert await world.call(endpoint, **WHERE) == attached
    changed = [
        event
        for event in (await world.call(events.PLATFORM_EVENT_LIST)).items
        if event.type == "catalog.conformance.changed"
    ]
    assert [(event.app_slug, event.payload["conforming"]) for event in changed] == [("toy", True)]


async def test_only_a_key_that_the_platform_trusts_makes_a_card(world: World) -> None:
    await world.entitled_app()
    of_project = await artifact_world.trusted(world)
    for signer in (Signer(), of_project):
        with pytest.raises(errors.ConformanceRefused) as refused:
            await artifact_world.attach_card(world, signer)
        assert refused.value.details == {"reason": "artifact_signer_unknown"}
    trusted = await _trusted(world)
    signed, other = artifact_world.card(trusted, checks=FAILED), artifact_world.card(trusted)
    with pytest.raises(errors.ConformanceRefused):  # the signature of a failed run below the checks of another one
        await world.call(conformance.CARD_PUT, msgspec.structs.replace(signed, payload=other.payload), **WHERE)
    assert (await world.call(catalog.VERSION_GET, **WHERE)).conformance is None


async def test_a_failed_card_whose_payload_is_spelled_differently_is_refused(world: World) -> None:
    """A decoder that leaves unknown characters out reads another statement than the one that was signed."""
    await world.entitled_app()
    failed = [{"name": "residue", "result": "failed", "reason": "???" + " ???" * 3}]
    signed = artifact_world.card(await _trusted(world), checks=failed)
    other = msgspec.structs.replace(signed, payload=signed.payload.replace("/", "_"))
    assert other != signed
    with pytest.raises(errors.ConformanceRefused) as refused:
        await world.call(conformance.CARD_PUT, other, **WHERE)
    assert refused.value.details == {"reason": _INVALID}
    assert not (await world.call(conformance.CARD_PUT, signed, **WHERE)).card.conforming


@pytest.mark.parametrize(
    "changes",
    [
        {"app_slug": "other"},
        {"version": "2.0.0"},
        {"manifest_digest": "sha256:" + "a" * 64},
        {"completed_at": "2999-01-01T00:00:00Z"},
        {"checks": []},
        {"checks": [{"name": "residue", "result": "great"}]},
        {"checks": [{"name": "residue", "result": "failed", "reason": "\x1b[2J"}]},
    ],
    ids=["another app", "another version", "another digest", "future", "no checks", "unknown result", "escape"],
)
async def test_a_statement_that_does_not_fit_the_version_is_refused(world: World, changes: dict[str, Any]) -> None:
    await world.entitled_app()
    with pytest.raises(errors.ConformanceRefused) as refused:
        await artifact_world.attach_card(world, await _trusted(world), **changes)
    assert refused.value.details == {"reason": "statement"}


async def test_a_statement_that_no_decoder_accepts_is_refused_and_no_failure_of_the_platform(world: World) -> None:
    await world.entitled_app()
    signer = await _trusted(world)
    payload = base64.b64decode(artifact_world.card(signer).payload)
    for wrong in (b'"\xff\x7f"', b"1e999", b"9" * 5000, b"[" * 80_000 + b"]" * 80_000):
        of_kit = payload.replace(b'"0.1.0"', wrong)
        assert of_kit != payload
        answer = await world.send(conformance.CARD_PUT, signer.sign(of_kit), **WHERE)
        assert (answer.status_code, answer.json()["details"]["reason"]) in ((422, "statement"), (422, _INVALID))
        unknown = payload[:-1] + b',"unknown":' + wrong + b"}"
        answer = await world.send(conformance.CARD_PUT, signer.sign(unknown), **WHERE)
        assert answer.status_code < 500, "the decoder skips fields that it does not know, if it can"


async def test_the_card_of_another_manifest_and_a_signature_of_an_artifact_are_refused(world: World) -> None:
    await world.entitled_app()
    signer = await _trusted(world)
    other = artifact_world.card(signer, {**MANIFEST, "summary": "changed"})
    with pytest.raises(errors.ConformanceRefused) as refused:
        await world.call(conformance.CARD_PUT, other, **WHERE)
    assert refused.value.details == {"reason": "artifact_signature_invalid"}
    manifest = (await world.call(catalog.VERSION_GET, **WHERE)).manifest
    predicate = {
        "app_slug": "toy",
        "version": "1.0.0",
        "manifest_digest": conformance.manifest_digest(manifest),
        "kit_version": "1",
        "completed_at": "2025-12-01T00:00:00Z",
        "checks": [{"name": "residue", "result": "passed"}],
    }
    of_artifact = signer.envelope(conformance.manifest_digest(manifest), predicate=predicate)
    with pytest.raises(errors.ConformanceRefused, match="predicate type"):
        await world.call(conformance.CARD_PUT, of_artifact, **WHERE)


async def test_only_a_later_run_replaces_a_card(world: World) -> None:
    await world.entitled_app()
    signer = await _trusted(world)
    first = artifact_world.card(signer, completed_at="2025-12-02T00:00:00Z", checks=FAILED)
    attached = await world.call(conformance.CARD_PUT, first, **WHERE)
    assert await world.call(conformance.CARD_PUT, first, **WHERE) == attached
    for earlier in ("2025-12-01T00:00:00Z", "2025-12-02T00:00:00Z"):
        with pytest.raises(errors.Conflict, match="not earlier"):
            await artifact_world.attach_card(world, signer, completed_at=earlier)
    later = await artifact_world.attach_card(world, signer, completed_at="2025-12-03T00:00:00Z")
    assert (later.card.conforming, attached.card.conforming) == (True, False)


async def test_a_policy_can_require_a_card_for_entitlements_and_deploys(world: World) -> None:
    await world.entitled_app()
    await _require(world)
    with pytest.raises(errors.PolicyDenied, match=r"toy 1\.0\.0 has no conformance card: policy of project") as refused:
        await world.call(catalog.ENTITLEMENT_SET, {"enabled": True}, app_slug="toy")
    assert "gpuaas app attach-card toy 1.0.0" in refused.value.fix
    assert refused.value.details["layer"] == "project"
    with pytest.raises(errors.PolicyDenied, match="has no conformance card"):
        await world.deploy()
    assert (await world.call(catalog.PROJECT_APP_LIST)).items == []
    signer = await _trusted(world)
    await artifact_world.attach_card(world, signer, checks=FAILED)
    with pytest.raises(errors.PolicyDenied, match="has failed checks"):
        await world.deploy("two")
    await artifact_world.attach_card(world, signer, completed_at="2025-12-03T00:00:00Z")
    await world.call(catalog.ENTITLEMENT_SET, {"enabled": True}, app_slug="toy")
    assert (await world.deploy("three")).instance.app_version == "1.0.0"
    await world.call(trust_keys.SHARED_TRUST_KEY_REVOKE, trust_key_id="cards")
    with pytest.raises(errors.PolicyDenied, match="signing key was revoked"):
        await world.deploy("four")
    assert not (await world.call(conformance.CARD_GET, **WHERE)).card.trusted


async def test_a_required_card_takes_an_older_version_and_the_policy_explains_it(world: World) -> None:
    await world.entitled_app()
    await artifact_world.attach_card(world, await _trusted(world))
    newer = {**MANIFEST, "version": "1.1.0"}
    await world.call(catalog.VERSION_REGISTER, newer)
    await world.call(catalog.VERSION_PUBLISH, {}, app_slug="toy", version="1.1.0")
    assert (await world.deploy("free")).instance.app_version == "1.1.0"
    await _require(world)
    explained = await world.call(policy.EXPLAIN, {"app": "toy"})
    (required,) = explained.requirements
    assert required.rule == "policy of project allows only app versions with a trusted conformance card (production)"
    assert explained.effective.conformance_required is True
    assert [item.version for item in (await world.call(catalog.PROJECT_APP_LIST)).items] == ["1.0.0"]
    assert (await world.deploy("strict")).instance.app_version == "1.0.0"
