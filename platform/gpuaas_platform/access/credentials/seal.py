"""Seal a value to a public key (HPKE, RFC 9180): only the holder of the private key can open it. The SDK opens it."""

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
    """Refuse a key of low order, with which the shared secret would be the same for every sender."""
    try:
        sealed(b"", recipient_key, "")
    except ValueError as error:
        raise errors.ValidationFailed(
            "recipient_key is not an X25519 public key.", details={"field": "recipient_key"}
        ) from error
