"""Pure: find the keys that signed an artifact. securesystemslib checks the DSSE envelope, this module its statement."""

import base64
import contextlib
import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from gpuaas_contract import errors
from gpuaas_contract.artifacts import Envelope
from gpuaas_contract.trust_keys import TrustKey
from securesystemslib import dsse
from securesystemslib.exceptions import UnverifiedSignatureError
from securesystemslib.signer import SSlibKey

from gpuaas_platform.artifacts import documents, rules

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPES = ("https://in-toto.io/Statement/v1", "https://in-toto.io/Statement/v0.1")
_RSA_BITS_MIN = 2048


class _Subject(msgspec.Struct):
    digest: dict[str, str]


class _Statement(msgspec.Struct):
    type: str = msgspec.field(name="_type")
    subject: list[_Subject]


class Signed(NamedTuple):
    """What trusted keys have signed. Callers read `payload`, never the envelope: other bytes were not verified."""

    signers: list[str]
    """The fingerprints of the keys."""
    payload: bytes


def signed(envelope: Envelope | None, digest: str, keys: Sequence[TrustKey]) -> Signed:
    """Return the trusted keys that signed a statement about this digest, and the statement. Raise if there is none."""
    if envelope is None:
        raise errors.ArtifactUnsigned
    read = _read(envelope)
    live, revoked = rules.counting(keys)
    fingerprints = sorted({key.fingerprint for key in keys if key.fingerprint in live and _has_signed(key, read)})
    if not fingerprints:
        raise rules.signer_refusal(any(_has_signed(key, read) for key in keys if key.fingerprint in revoked))
    _check_statement(read.payload, digest)
    return Signed(fingerprints, read.payload)


def fingerprint(public_key_pem: str) -> str:
    """Return the SHA-256 of a public key. Refuse a key whose signatures cannot be checked."""
    public = _public_key(public_key_pem)
    raw = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(raw).hexdigest()


def _public_key(public_key_pem: str) -> PublicKeyTypes:
    try:
        public = serialization.load_pem_public_key(public_key_pem.encode())
        SSlibKey.from_crypto(public)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _unsound(f"it is not a usable public key: {error}") from error
    if isinstance(public, RSAPublicKey) and public.key_size < _RSA_BITS_MIN:
        raise _unsound(f"an RSA key has at least {_RSA_BITS_MIN} bits, this one has {public.key_size}")
    return public


def _read(envelope: Envelope) -> dsse.Envelope:
    if envelope.payload_type != PAYLOAD_TYPE:
        raise errors.ArtifactSignatureInvalid(f"The envelope holds {envelope.payload_type[:100]}, not {PAYLOAD_TYPE}.")
    # Key ids in an envelope are optional and not verified, so they are replaced by unique numbers.
    numbered = [
        {"keyid": f"signature {position}", "sig": signature.sig}
        for position, signature in enumerate(envelope.signatures)
    ]
    try:
        read = dsse.Envelope.from_dict(
            {"payload": envelope.payload, "payloadType": envelope.payload_type, "signatures": numbered}
        )
    except (ValueError, KeyError) as error:
        raise errors.ArtifactSignatureInvalid(f"The envelope cannot be read: {error}.") from error
    # Decoders differ about other alphabets and characters between, so two readers could see two statements.
    if base64.b64encode(read.payload).decode() != envelope.payload:
        raise errors.ArtifactSignatureInvalid("The payload of the envelope is not standard base64.")
    return read


def _has_signed(key: TrustKey, read: dsse.Envelope) -> bool:
    public = _public_key(key.public_key_pem)
    for number in read.signatures:
        with contextlib.suppress(UnverifiedSignatureError):
            read.verify([SSlibKey.from_crypto(public, keyid=number)], threshold=1)
            return True
    return False


def _check_statement(payload: bytes, digest: str) -> None:
    try:
        statement = documents.decode(payload, _Statement)
    except documents.Unreadable as error:
        raise errors.ArtifactSignatureInvalid(f"The signed payload is not an in-toto statement: {error}.") from error
    if statement.type not in STATEMENT_TYPES:
        raise errors.ArtifactSignatureInvalid(f"The statement is of type {statement.type[:100]}.")
    algorithm, _, value = digest.partition(":")
    if all(subject.digest.get(algorithm) != value for subject in statement.subject):
        raise errors.ArtifactSignatureInvalid(f"No subject of the signed statement is {digest}.")


def _unsound(why: str) -> errors.ValidationFailed:
    return errors.ValidationFailed(f"The field `public_key_pem`: {why}.", details={"field": "public_key_pem"})
