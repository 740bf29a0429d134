"""Pure: find the configured release key that signed a release of the agent."""

import base64
import hashlib
from collections.abc import Sequence

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from gpuaas_contract import errors
from gpuaas_contract.agents import release_message

_KEY_ID_DIGITS = 16


def signer(public_keys_pem: Sequence[str], version: str, sha256: str, signature: str) -> str:
    """Return the id of the key that signed the release. Raise if none of these keys did."""
    if not public_keys_pem:
        raise errors.AgentNoReleaseKey
    keys = [public_key(pem) for pem in public_keys_pem]
    for key in keys:
        if _verifies(key, release_message(version, sha256), base64.b64decode(signature)):
            return key_id(key)
    raise errors.AgentSignatureInvalid(
        f"No release key of this platform signed version {version} with the digest {sha256}.",
        details={"sha256": sha256, "version": version, "trusted_key_ids": [key_id(key) for key in keys]},
    )


def public_key(pem: str) -> Ed25519PublicKey:
    """Return the key. Raise ValueError if the text is not an Ed25519 public key in PEM form."""
    key = serialization.load_pem_public_key(pem.encode())
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError("it is not an Ed25519 public key")
    return key


def key_id(key: Ed25519PublicKey) -> str:
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()[:_KEY_ID_DIGITS]


def _verifies(key: Ed25519PublicKey, message: bytes, signature: bytes) -> bool:
    try:
        key.verify(signature, message)
    except InvalidSignature:
        return False
    return True
