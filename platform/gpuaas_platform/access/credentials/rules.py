"""Pure: check whether a private key is usable, and whether an instance's inputs name a credential."""

import base64
import hashlib
from dataclasses import dataclass

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from gpuaas_contract import errors
from gpuaas_contract.credentials import Credential

RSA_BITS_MIN = 2048
_KEY_KINDS = (ed25519.Ed25519PrivateKey, ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey)
_FIELD = {"field": "private_key"}


@dataclass(frozen=True)
class PublicHalf:
    algorithm: str
    fingerprint: str
    public_key: str


def public_half(private_key: str) -> PublicHalf:
    """Return the public part of a key; refuse a key that a controller cannot use. Errors never quote the key."""
    key = _parsed(private_key.encode())
    if not isinstance(key, _KEY_KINDS):
        raise errors.ValidationFailed("private_key is not an Ed25519, ECDSA or RSA key.", details=_FIELD)
    if isinstance(key, rsa.RSAPrivateKey) and key.key_size < RSA_BITS_MIN:
        raise errors.ValidationFailed(f"private_key is an RSA key of fewer than {RSA_BITS_MIN} bits.", details=_FIELD)
    openssh = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    algorithm, blob = openssh.split()[:2]
    digest = base64.b64encode(hashlib.sha256(base64.b64decode(blob)).digest()).decode().rstrip("=")
    return PublicHalf(algorithm.decode(), f"SHA256:{digest}", openssh.decode())


def check_given(credential_id: str, *inputs: object) -> None:
    """Refuse a credential that no input names: a controller gets no other key of the project."""
    if not any(_names(value, credential_id) for value in inputs):
        details = {"credential_id": credential_id}
        fix = "Name the credential in an input of the app when it is deployed or upgraded."
        raise errors.PermissionDenied("The instance was not given this credential.", details=details, fix=fix)


def check_active(credential: Credential) -> None:
    if credential.state != "active":
        raise errors.Conflict(
            f"The credential {credential.name} is {credential.state}; its key is destroyed.",
            details={"credential_id": credential.credential_id},
        )


def _names(value: object, credential_id: str) -> bool:
    if isinstance(value, dict):
        return any(_names(item, credential_id) for item in value.values())
    if isinstance(value, list):
        return any(_names(item, credential_id) for item in value)
    return value == credential_id


def _parsed(content: bytes) -> object:
    load = serialization.load_ssh_private_key if b"OPENSSH" in content else serialization.load_pem_private_key
    try:
        return load(content, password=None)
    except TypeError:
        fix = "Take the passphrase off a copy (ssh-keygen -p); custody encrypts the key."
        raise errors.ValidationFailed("private_key is protected by a passphrase.", details=_FIELD, fix=fix) from None
    except (ValueError, UnsupportedAlgorithm):
        raise errors.ValidationFailed("private_key is not an SSH private key.", details=_FIELD) from None
