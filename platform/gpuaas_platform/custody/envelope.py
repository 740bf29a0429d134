"""Envelope encryption: each value has its own data key, which is encrypted (wrapped) with a key-encryption key.

AES-256-GCM for both. A ciphertext is authenticated together with its ref and version, a wrapped key also with its key
id. So neither can be decrypted after it was moved to another place. Pure: `embedded` stores the results.
"""

import base64
import os
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gpuaas_platform.custody import port as custody

KEY_BYTES = 32
_NONCE_BYTES = 12


class Sealed(NamedTuple):
    """One version of one secret, encrypted, so that it can be stored anywhere."""

    ref: str
    version: int
    key_id: str
    """Id of the key-encryption key that decrypts `wrapped_key`."""
    wrapped_key: str
    ciphertext: str


def new_key() -> bytes:
    return AESGCM.generate_key(KEY_BYTES * 8)


def seal(ref: str, version: int, value: bytes, key_id: str, key: bytes) -> Sealed:
    data_key = new_key()
    wrapped_key = _encode(encrypt(key, data_key, _about_key(ref, version, key_id)))
    return Sealed(ref, version, key_id, wrapped_key, _encode(encrypt(data_key, value, _about_value(ref, version))))


def unseal(sealed: Sealed, key: bytes) -> bytes:
    return _decrypt_stored(_data_key(sealed, key), sealed.ciphertext, _about_value(sealed.ref, sealed.version))


def rewrapped(sealed: Sealed, key: bytes, new_key_id: str, new_key: bytes) -> Sealed:
    """Return the secret with its data key wrapped by another key-encryption key. The value is not decrypted."""
    about = _about_key(sealed.ref, sealed.version, new_key_id)
    return sealed._replace(key_id=new_key_id, wrapped_key=_encode(encrypt(new_key, _data_key(sealed, key), about)))


def encrypt(key: bytes, plain: bytes, about: bytes) -> bytes:
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plain, about)


def decrypt(key: bytes, raw: bytes, about: bytes) -> bytes:
    """Decrypt. Raise `InvalidTag` if the key is wrong, or if `raw` or `about` was changed since the encryption."""
    return AESGCM(key).decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], about)


def _data_key(sealed: Sealed, key: bytes) -> bytes:
    return _decrypt_stored(key, sealed.wrapped_key, _about_key(sealed.ref, sealed.version, sealed.key_id))


def _decrypt_stored(key: bytes, text: str, about: bytes) -> bytes:
    try:
        return decrypt(key, base64.b64decode(text, validate=True), about)
    except (InvalidTag, ValueError) as error:
        raise custody.Unreadable(
            "the stored value was changed: it differs from the value that the platform wrote"
        ) from error


def _encode(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _about_key(ref: str, version: int, key_id: str) -> bytes:
    return f"gpuaas custody key\n{key_id}\n{version}\n{ref}".encode()


def _about_value(ref: str, version: int) -> bytes:
    return f"gpuaas custody value\n{version}\n{ref}".encode()
