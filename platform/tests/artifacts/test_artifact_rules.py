"""Pure: the one name of a source, who signed what, and what the states allow."""

import base64
import datetime
from typing import Any

import msgspec
import pytest
from artifact_world import CONTENT, Signer, digest_of
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from gpuaas_contract import errors
from gpuaas_contract.artifacts import Envelope, HttpSource, LocalSource, OciSource
from gpuaas_contract.trust_keys import TrustKey
from gpuaas_platform.artifacts import rules, signatures

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
DIGEST = digest_of(CONTENT)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (LocalSource(), "local"),
        (HttpSource(url="https://Files.example/team/a.tgz"), "https://files.example/team/a.tgz"),
        (HttpSource(url="https://files.example:443/a"), "https://files.example/a"),
        (HttpSource(url="http://files.example:8080"), "http://files.example:8080/"),
        (HttpSource(url="http://[::1]:8080/a"), "http://[::1]:8080/a"),
        (OciSource(reference="registry.example:5000/team/tool"), "registry.example:5000/team/tool"),
        (OciSource(reference="registry/team/tool:1.0"), "registry/team/tool"),
        (OciSource(reference=f"registry/team/tool@{DIGEST}"), "registry/team/tool"),
    ],
)
def test_a_source_has_one_name_in_every_spelling(source: Any, name: str) -> None:
    assert rules.canonical(source) == name


@pytest.mark.parametrize(
    "url",
    [
        "https://files.example/team/../secret",
        "https://files.example/team/%2e%2E/secret",
        "https://files.example/team%2fsecret",
        "https://files.example/team\\..\\secret",
        "https://user:pass@files.example/a",
        "https://files.example/a?b=c",
        "https://files.example/a#b",
        "https://files.example:99999/a",
        "https://files.example:0/a",
        "https://[::1/a",
        "https:///a",
        "ftp://files.example/a",
        "file:///etc/passwd",
        "https://files.example/a b",
        "https://filés.example/a",
    ],
)
def test_an_address_that_could_leave_its_prefix_or_hide_its_host_is_refused(url: str) -> None:
    with pytest.raises(errors.ValidationFailed):
        rules.canonical(HttpSource(url=url))


@pytest.mark.parametrize(
    "reference",
    [
        "tool",
        "registry/",
        "registry/Team",
        "registry/a/../b",
        "registry//a",
        "registry/a:",
        "registry/a@sha256:0",
        "u@r/a",
    ],
)
def test_an_invalid_reference_is_refused(reference: str) -> None:
    with pytest.raises(errors.ValidationFailed):
        rules.canonical(OciSource(reference=reference))


@pytest.mark.parametrize(
    "signer",
    [
        Signer(),
        Signer(ec.generate_private_key(ec.SECP256R1())),
        Signer(ec.generate_private_key(ec.SECP384R1())),
        Signer(rsa.generate_private_key(65537, 2048)),
    ],
    ids=["ed25519", "p256", "p384", "rsa"],
)
@pytest.mark.parametrize("keyid", [None, "", "something else"], ids=["own", "empty", "other"])
def test_a_trusted_key_is_recognised_under_any_key_id_in_the_envelope(signer: Signer, keyid: str | None) -> None:
    keys = [_key(Signer()), _key(signer)]
    envelope = signer.envelope(DIGEST)
    if keyid is not None:
        renamed = [msgspec.structs.replace(signature, keyid=keyid) for signature in envelope.signatures]
        envelope = msgspec.structs.replace(envelope, signatures=renamed)
    assert signatures.signed(envelope, DIGEST, keys).signers == [signer.fingerprint()]


def test_one_trusted_signature_among_others_is_enough_and_only_it_counts() -> None:
    known, unknown = Signer(), Signer()
    both = [*unknown.envelope(DIGEST).signatures, *known.envelope(DIGEST).signatures]
    envelope = msgspec.structs.replace(known.envelope(DIGEST), signatures=both)
    assert signatures.signed(envelope, DIGEST, [_key(known)]).signers == [known.fingerprint()]


def test_a_key_revoked_anywhere_is_revoked_under_every_id() -> None:
    signer = Signer()
    keys = [_key(signer, "old", revoked_at=NOW), _key(signer, "new", scope="platform")]
    with pytest.raises(errors.ArtifactSignerRevoked):
        signatures.signed(signer.envelope(DIGEST), DIGEST, keys)


def _other_payload(envelope: Envelope) -> Envelope:
    return msgspec.structs.replace(envelope, payload=base64.b64encode(b"{}").decode())


def _garbled(envelope: Envelope) -> Envelope:
    return msgspec.structs.replace(envelope, payload="%%%")


@pytest.mark.parametrize(
    ("spoil", "refusal"),
    [
        (lambda signer: signer.envelope(digest_of(b"other")), errors.ArtifactSignatureInvalid),
        (lambda signer: signer.envelope(DIGEST, _type="https://example/other"), errors.ArtifactSignatureInvalid),
        (lambda signer: signer.envelope(DIGEST, subject=[]), errors.ArtifactSignatureInvalid),
        (lambda signer: signer.envelope(DIGEST, subject="it"), errors.ArtifactSignatureInvalid),
        (lambda signer: signer.sign(b'{"_type":"\xff","subject":[]}'), errors.ArtifactSignatureInvalid),
        (lambda signer: signer.sign(b"[" * 80_000 + b"]" * 80_000), errors.ArtifactSignatureInvalid),
        (
            lambda signer: signer.sign(b'{"a":' + b"[" * 80_000 + b"]" * 80_000 + b"}"),
            errors.ArtifactSignatureInvalid,
        ),
        (lambda signer: _garbled(signer.envelope(DIGEST)), errors.ArtifactSignatureInvalid),
        (lambda signer: _other_payload(signer.envelope(DIGEST)), errors.ArtifactSignerUnknown),
        (lambda signer: Signer().envelope(DIGEST), errors.ArtifactSignerUnknown),
        (lambda signer: None, errors.ArtifactUnsigned),
        (
            lambda signer: msgspec.structs.replace(signer.envelope(DIGEST), payload_type="application/json"),
            errors.ArtifactSignatureInvalid,
        ),
    ],
    ids=[
        "about another digest",
        "of another type",
        "about nothing",
        "no statement",
        "not UTF-8",
        "a deep list",
        "deep",
        "garbled",
        "changed after signing",
        "by a stranger",
        "missing",
        "of another payload type",
    ],
)
def test_a_signature_that_does_not_vouch_for_this_digest_is_refused(spoil: Any, refusal: type[Exception]) -> None:
    signer = Signer()
    with pytest.raises(refusal):
        signatures.signed(spoil(signer), DIGEST, [_key(signer)])


@pytest.mark.parametrize(
    "spell",
    [
        lambda payload: payload.replace("/", "_"),
        lambda payload: f"{payload[:8]}\n{payload[8:]}",
        lambda payload: f"{payload[:8]}-_-_{payload[8:]}",
        lambda payload: payload + "====",
    ],
    ids=["url-safe", "newline", "characters between", "padded"],
)
def test_a_payload_has_one_spelling_so_that_all_readers_see_the_verified_bytes(spell: Any) -> None:
    signer = Signer()
    envelope = signer.envelope(DIGEST, predicate={"note": ["???", " ???", "  ???"]})
    verified = signatures.signed(envelope, DIGEST, [_key(signer)])
    assert verified.payload == base64.b64decode(envelope.payload, validate=True)
    other = msgspec.structs.replace(envelope, payload=spell(envelope.payload))
    assert other != envelope
    with pytest.raises(errors.ArtifactSignatureInvalid):
        signatures.signed(other, DIGEST, [_key(signer)])


@pytest.mark.parametrize(
    "pem",
    [
        "not a key",
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        Signer(rsa.generate_private_key(65537, 1024)).public_pem(),
        Signer(ec.generate_private_key(ec.SECP256K1())).public_pem(),
    ],
    ids=["no PEM", "broken", "short RSA", "unknown curve"],
)
def test_a_key_whose_signatures_cannot_be_relied_on_is_refused(pem: str) -> None:
    with pytest.raises(errors.ValidationFailed):
        signatures.fingerprint(pem)


def _key(signer: Signer, trust_key_id: str = "release", **changes: Any) -> TrustKey:
    values = {"scope": "proj_1", "created_by": "usr_1", "created_at": NOW, **changes}
    return TrustKey(
        trust_key_id=trust_key_id, fingerprint=signer.fingerprint(), public_key_pem=signer.public_pem(), **values
    )
