"""Signers, uploads, deliveries: the steps of an artifact's life that many tests take."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract import artifacts, catalog, conformance, deliveries, trust_keys
from gpuaas_contract.artifacts import Artifact, Envelope
from gpuaas_contract.deliveries import Delivery
from gpuaas_platform.artifacts import signatures
from platform_world import MANIFEST, World
from securesystemslib import dsse
from securesystemslib.signer import CryptoSigner

CONTENT = b"#!/bin/sh\necho the real thing\n"
MEDIA_TYPE = "application/x-sh"


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@dataclass(frozen=True)
class Signer:
    """A signer with a key pair, who signs statements as release tools do."""

    key: Any = field(default_factory=Ed25519PrivateKey.generate)

    def public_pem(self) -> str:
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return str(self.key.public_key().public_bytes(serialization.Encoding.PEM, form).decode())

    def fingerprint(self) -> str:
        return signatures.fingerprint(self.public_pem())

    def envelope(self, digest: str, **changes: Any) -> Envelope:
        statement = {
            "_type": signatures.STATEMENT_TYPES[0],
            "subject": [{"name": "it", "digest": {"sha256": digest.removeprefix("sha256:")}}],
            "predicateType": "https://slsa.dev/provenance/v1",
            "predicate": {},
            **changes,
        }
        return self.sign(msgspec.json.encode(statement))

    def sign(self, payload: bytes) -> Envelope:
        signed = dsse.Envelope(payload, signatures.PAYLOAD_TYPE, {})
        signed.sign(CryptoSigner(self.key))
        return msgspec.convert(signed.to_dict(), Envelope)


async def trusted(world: World, trust_key_id: str = "release") -> Signer:
    signer = Signer()
    await trust(world, signer, trust_key_id)
    return signer


async def trust(world: World, signer: Signer, trust_key_id: str) -> trust_keys.TrustKey:
    body = trust_keys.PutTrustKey(public_key_pem=signer.public_pem())
    return await world.call(trust_keys.TRUST_KEY_PUT, body, trust_key_id=trust_key_id)


def intent(content: bytes = CONTENT, signer: Signer | None = None, **changes: Any) -> dict[str, Any]:
    body = {
        "name": "tool",
        "digest": digest_of(content),
        "size_bytes": len(content),
        "media_type": MEDIA_TYPE,
        "source": {"kind": "local"},
        **changes,
    }
    if signer is not None:
        body["signature"] = msgspec.to_builtins(signer.envelope(body["digest"]))
    return body


async def published(world: World, content: bytes = CONTENT, signer: Signer | None = None, **changes: Any) -> Artifact:
    """Published, and uploaded when its source is local."""
    artifact = await world.call(artifacts.PUBLISH, intent(content, signer, **changes))
    if isinstance(artifact.source, artifacts.LocalSource):
        answer = await upload(world, artifact, content)
        assert answer.status_code == 200, answer.text
    return artifact


async def upload(world: World, artifact: Artifact, content: Any, **query: str) -> httpx.Response:
    path = artifacts.CONTENT_PUT.path.format(project_id=world.project_id, artifact_id=artifact.artifact_id)
    headers = {"Authorization": f"Bearer {world.token}"}
    return await world.http.put(path, content=content, headers=headers, params=query)


async def verified(world: World, artifact: Artifact, **body: str) -> Artifact:
    return await world.call(artifacts.VERIFY, body, artifact_id=artifact.artifact_id)


async def promoted(world: World, signer: Signer, content: bytes = CONTENT, **changes: Any) -> Artifact:
    artifact = await published(world, content, signer, **changes)
    assert (await verified(world, artifact)).trust == "verified"
    return await world.call(artifacts.PROMOTE, {"channel": "stable"}, artifact_id=artifact.artifact_id)


async def shared(world: World, signer: Signer, content: bytes = CONTENT) -> Artifact:
    """The same by the platform's admin, for every project."""
    key = trust_keys.PutTrustKey(public_key_pem=signer.public_pem())
    await world.call(trust_keys.SHARED_TRUST_KEY_PUT, key, trust_key_id="release")
    artifact = await world.call(artifacts.SHARED_PUBLISH, intent(content, signer))
    path = artifacts.SHARED_CONTENT_PUT.path.format(artifact_id=artifact.artifact_id)
    answer = await world.http.put(path, content=content, headers={"Authorization": f"Bearer {world.token}"})
    assert answer.status_code == 200, answer.text
    assert (await world.call(artifacts.SHARED_VERIFY, {}, artifact_id=artifact.artifact_id)).trust == "verified"
    return await world.call(artifacts.SHARED_PROMOTE, {"channel": "stable"}, artifact_id=artifact.artifact_id)


async def delivery(world: World, artifact: Artifact, **options: Any) -> Delivery:
    body = {"purpose": "install", "ttl_s": 60}
    return await world.call(deliveries.DELIVERY_CREATE, body, artifact_id=artifact.artifact_id, **options)


async def fetch(world: World, delivery: Delivery, token: str = "") -> httpx.Response:
    return await world.http.get(delivery.url, headers={"Authorization": f"Bearer {token or delivery.token}"})


def code_of(answer: httpx.Response) -> str:
    """The named reason of a refusal."""
    assert answer.is_error, answer.text
    return str(answer.json()["code"])


async def of_app(world: World, signer: Signer, content: bytes, app_slug: str = "toy", **options: Any) -> Artifact:
    """Published and uploaded by a publisher of the app or an admin of the platform. The signer is trusted already."""
    token = options.pop("token", world.token)
    where = {"app_slug": app_slug, "token": token}
    artifact = await world.call(artifacts.APP_PUBLISH, intent(content, signer, **options), **where)
    path = artifacts.APP_CONTENT_PUT.path.format(app_slug=app_slug, artifact_id=artifact.artifact_id)
    answer = await world.http.put(path, content=content, headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 200, answer.text
    return artifact


def card(signer: Signer, manifest: dict[str, Any] = MANIFEST, **changes: Any) -> Envelope:
    """A conformance statement about a manifest, as the conformance kit signs it; `changes` are of its predicate."""
    digest = conformance.manifest_digest(msgspec.convert(manifest, catalog.Manifest))
    predicate = {
        "app_slug": manifest["slug"],
        "version": manifest["version"],
        "manifest_digest": digest,
        "kit_version": "0.1.0",
        "completed_at": "2025-12-01T00:00:00Z",
        "checks": [{"name": "residue", "result": "passed"}],
        **changes,
    }
    return signer.envelope(digest, predicateType=conformance.PREDICATE_TYPE, predicate=predicate)


async def attach_card(
    world: World, signer: Signer, manifest: dict[str, Any] = MANIFEST, **changes: Any
) -> conformance.AttachedStatement:
    where = {"app_slug": manifest["slug"], "version": manifest["version"]}
    return await world.call(conformance.CARD_PUT, card(signer, manifest, **changes), **where)
