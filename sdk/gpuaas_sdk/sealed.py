"""Decrypt a credential that the platform encrypted for this process (HPKE, RFC 9180). The private key of the recipient
stays in this process."""

import base64

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from gpuaas_contract.credentials import SUITE, OpenedCredential, seal_info

from gpuaas_sdk.failures import Permanent

_SUITE = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_256_GCM)


class Recipient:
    """The key pair of one credential delivery."""

    def __init__(self) -> None:
        self._key = X25519PrivateKey.generate()

    @property
    def public_key(self) -> str:
        """The public key in base64, to be sent with the request for the delivery."""
        return base64.b64encode(self._key.public_key().public_bytes_raw()).decode()

    def open(self, delivery: OpenedCredential) -> str:
        """Decrypt the delivery and return the customer's private key as it was uploaded."""
        if delivery.suite != SUITE:
            raise Permanent(
                f"The platform encrypted the credential with {delivery.suite}; this SDK supports only {SUITE}.",
                fix="Update the SDK.",
            )
        try:
            content = _SUITE.decrypt(base64.b64decode(delivery.sealed), self._key, info=seal_info(delivery.delivery_id))
        except InvalidTag:
            raise Permanent(f"Credential delivery {delivery.delivery_id} is encrypted for another key.") from None
        return content.decode()
