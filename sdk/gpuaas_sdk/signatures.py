"""Sign an artifact or another statement: a DSSE envelope around an in-toto statement, as the platform verifies it.

The private key stays in this process. The platform verifies the same kinds of keys: Ed25519, ECDSA on P-256, P-384 and
P-521, and RSA of at least 2048 bits."""

import base64
from collections.abc import Mapping

import msgspec
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
RSA_BITS_MIN = 2048
SigningKey = Ed25519PrivateKey | EllipticCurvePrivateKey | RSAPrivateKey
_CURVES: dict[str, hashes.HashAlgorithm] = {
    "secp256r1": hashes.SHA256(),
    "secp384r1": hashes.SHA384(),
    "secp521r1": hashes.SHA512(),
}


def envelope(name: str, sha256: str, key: SigningKey, *, predicate_type: str = "", **predicate: object) -> bytes:
    """Return the signature of an artifact, for `gpuaas artifact publish --signature FILE`.

    The predicate describes the content; for an artifact it decides nothing."""
    return signed(name, sha256, key, predicate_type or "https://slsa.dev/provenance/v1", predicate)


def signed(name: str, sha256: str, key: SigningKey, predicate_type: str, predicate: Mapping[str, object]) -> bytes:
    """Return a signed in-toto statement of any predicate type about content with this digest."""
    statement = {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": sha256}}],
        "predicateType": predicate_type,
        "predicate": predicate,
    }
    payload = msgspec.json.encode(statement)
    signature = _sign(key, b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload))
    signatures = [{"keyid": "", "sig": _text(signature)}]
    shown = {"payloadType": PAYLOAD_TYPE, "payload": _text(payload), "signatures": signatures}
    return msgspec.json.format(msgspec.json.encode(shown)) + b"\n"


def read_key(pem: bytes) -> SigningKey:
    """Read a private key in PEM form without a passphrase, as `openssl genpkey -algorithm ed25519` writes it. Raise
    `ValueError` for a key whose signatures the platform does not verify."""
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except TypeError as error:
        raise ValueError("it has a passphrase; remove it: openssl pkey -in KEY -out KEY-WITHOUT") from error
    if isinstance(key, RSAPrivateKey) and key.key_size >= RSA_BITS_MIN:
        return key
    if isinstance(key, EllipticCurvePrivateKey) and key.curve.name in _CURVES:
        return key
    if isinstance(key, Ed25519PrivateKey):
        return key
    raise ValueError("it is not Ed25519, ECDSA on P-256, P-384 or P-521, or RSA of at least 2048 bits")


def _sign(key: SigningKey, message: bytes) -> bytes:
    """Sign with the scheme that the platform expects from a key of this kind."""
    if isinstance(key, EllipticCurvePrivateKey):
        return key.sign(message, ec.ECDSA(_CURVES[key.curve.name]))
    if isinstance(key, RSAPrivateKey):
        pss = padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=padding.PSS.DIGEST_LENGTH)
        return key.sign(message, pss, hashes.SHA256())
    return key.sign(message)


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
