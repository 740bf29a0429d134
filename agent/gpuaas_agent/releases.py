"""Signatures of agent releases: what a release key signs, and the check with the keys that are pinned on this node.

`handlers.upgrade` verifies, `signer` signs. The platform computes the same message.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence

from gpuaas_agent import ed25519

CONTEXT = "gpuaas-agent-release-v1"
"""First line of what is signed, so that a signature made for another purpose is never valid for a release."""
KEY_ID_DIGITS = 16


def message(version: str, sha256: str) -> bytes:
    return f"{CONTEXT}\n{version}\n{sha256}".encode()


def is_signed(public_keys: Sequence[str], version: str, sha256: str, signature: str) -> bool:
    """Return whether one of the keys signed this release."""
    try:
        raw = base64.b64decode(signature, validate=True)
    except (binascii.Error, ValueError):
        return False
    signed = message(version, sha256)
    return any(ed25519.verify_by_line(key, signed, raw) for key in public_keys)


def key_id(public_key: str) -> str:
    """Return the first digits of the SHA-256 of a public key, for people who compare keys."""
    return hashlib.sha256(base64.b64decode(public_key)).hexdigest()[:KEY_ID_DIGITS]
