"""Seal a value to a public key (HPKE, RFC 9180): only whoever made the key opens it. The SDK has the other side."""

import base64

from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from gpuaas_contract import errors
from gpuaas_contract.credentials import seal_info

_SUITE = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_256_GCM)


def sealed(value: bytes, recipient_key: str, delivery_id: str) -> str:
    """Base mode, bound to the delivery: `enc || ciphertext` in base64."""
    recipient = X25519PublicKey.from_public_bytes(base64.b64decode(recipient_key))
    return base64.b64encode(_SUITE.encrypt(value, recipient, info=seal_info(delivery_id))).decode()


def check_recipient(recipient_key: str) -> None:
    """Tried out at once: with a key of low order everybody would know the shared secret, so none is made."""
    try:
        sealed(b"", recipient_key, "")
    except ValueError as error:
        raise errors.ValidationFailed(
            "recipient_key is not an X25519 public key.", details={"field": "recipient_key"}
        ) from error
