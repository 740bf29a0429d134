"""Verify a statement of the platform with its public key, which the reader has from another source than the statement.

statement = statements.verify(signed, Path("statement-key.pem").read_text())
"""

import base64
import binascii

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from gpuaas_contract.statements import SignedStatement, Statement, signed_bytes


class NotVerified(Exception):
    """The key did not sign this statement, or its readable part is not the signed one."""


def verify(signed: SignedStatement, public_key_pem: str) -> Statement:
    """Return the statement that was signed. Raise `NotVerified` if the key did not sign it."""
    key = _key(public_key_pem)
    try:
        key.verify(base64.b64decode(signed.signature, validate=True), signed_bytes(signed.document))
        statement = msgspec.json.decode(signed.document, type=Statement)
    except (InvalidSignature, binascii.Error, msgspec.MsgspecError) as error:
        raise NotVerified("the signature does not match the statement and this key") from error
    if statement != signed.statement:
        raise NotVerified("`statement` is not what `document` contains, which is signed")
    return statement


def _key(public_key_pem: str) -> Ed25519PublicKey:
    try:
        key = serialization.load_pem_public_key(public_key_pem.encode())
    except ValueError as error:
        raise NotVerified("the key is not a public key in PEM form") from error
    if not isinstance(key, Ed25519PublicKey):
        raise NotVerified("the key is not an Ed25519 public key")
    return key
