"""Open what the platform has sealed to a key of ours (HPKE, RFC 9180). The private half never leaves this process."""

import base64

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from gpuaas_contract.credentials import SUITE, OpenedCredential, seal_info

from gpuaas_sdk.failures import Permanent

_SUITE = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_256_GCM)


class Recipient:
    """A key pair for one delivery."""

    def __init__(self) -> None:
        self._key = X25519PrivateKey.generate()

    @property
    def public_key(self) -> str:
        return base64.b64encode(self._key.public_key().public_bytes_raw()).decode()

    def open(self, opened: OpenedCredential) -> str:
        """The private key as it was uploaded."""
        if opened.suite != SUITE:
            raise Permanent(f"The platform sealed with {opened.suite}; this SDK knows {SUITE}.", fix="Update the SDK.")
        try:
            content = _SUITE.decrypt(base64.b64decode(opened.sealed), self._key, info=seal_info(opened.delivery_id))
        except InvalidTag:
            raise Permanent(f"Delivery {opened.delivery_id} is not sealed to this key.") from None
        return content.decode()
