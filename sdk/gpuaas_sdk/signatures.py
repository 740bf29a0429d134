"""Sign an artifact: a DSSE envelope around an in-toto statement about its digest, as the platform verifies it."""

import base64

import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"


def envelope(name: str, sha256: str, key: Ed25519PrivateKey, *, predicate_type: str = "", **predicate: str) -> bytes:
    """Return the signature of an artifact, for `gpuaas artifact publish --signature FILE`.

    The predicate describes the content and decides nothing."""
    statement = {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": sha256}}],
        "predicateType": predicate_type or "https://slsa.dev/provenance/v1",
        "predicate": predicate,
    }
    payload = msgspec.json.encode(statement)
    signature = key.sign(b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload))
    signatures = [{"keyid": "", "sig": _text(signature)}]
    shown = {"payloadType": PAYLOAD_TYPE, "payload": _text(payload), "signatures": signatures}
    return msgspec.json.format(msgspec.json.encode(shown)) + b"\n"


def read_key(pem: bytes) -> Ed25519PrivateKey:
    """Read a private key as `openssl genpkey -algorithm ed25519` writes it; raise `ValueError` for any other one."""
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError("it is not an Ed25519 key")
    return key


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
