"""Ed25519 signatures through the openssl program, because the standard library has none."""

from __future__ import annotations

import base64
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from gpuaas_agent import commands, files

_PEM = ("-----BEGIN PUBLIC KEY-----", "-----END PUBLIC KEY-----")
_DER_PREFIX = bytes.fromhex("302a300506032b6570032100")
"""The bytes before the 32 bytes of an Ed25519 public key in its DER form (RFC 8410)."""


def ensure_private_key(path: Path) -> None:
    """Make the node's private key unless the file exists. The key is stored in this file only."""
    if files.read(path) is None:
        files.write_atomic(path, commands.run(["openssl", "genpkey", "-algorithm", "ed25519"]), 0o600)


def public_key_pem(private_key: Path, passphrase: bytes = b"") -> str:
    argv = ["openssl", "pkey", "-in", str(private_key), "-pubout", *_passin(passphrase)]
    return commands.run(argv, content=passphrase).decode()


def sign(private_key: Path, message: bytes, passphrase: bytes = b"") -> bytes:
    argv = ["openssl", "pkeyutl", "-sign", "-rawin", "-inkey", str(private_key), *_passin(passphrase)]
    with _in_memory(message) as file:
        return commands.run([*argv, "-in", _path(file)], content=passphrase, files=[file])


def verify(public_key: Path, message: bytes, signature: bytes) -> bool:
    """Return whether openssl accepts the signature; False if openssl cannot be run."""
    return _verify(str(public_key), message, signature)


def verify_by_line(public_key: str, message: bytes, signature: bytes) -> bool:
    """Verify with a public key in the form that `one_line` returns."""
    pem = "\n".join((_PEM[0], public_key, _PEM[1], ""))
    with _in_memory(pem.encode()) as key:
        return _verify(_path(key), message, signature, key)


def one_line(public_key: str) -> str:
    """Return an Ed25519 public key, given in PEM form or in this one, as one line of base64. Raise ValueError if it is
    anything else."""
    lines = [line.strip() for line in public_key.strip().splitlines()]
    if len(lines) > 2 and (lines[0], lines[-1]) == _PEM:
        lines = lines[1:-1]
    der = base64.b64decode("".join(lines), validate=True)
    if len(der) != len(_DER_PREFIX) + 32 or not der.startswith(_DER_PREFIX):
        raise ValueError("it is not an Ed25519 public key")
    return base64.b64encode(der).decode()


def encrypted(private_key_pem: bytes, passphrase: bytes) -> bytes:
    """Return the private key in PEM form, encrypted with a key that is derived from the passphrase by scrypt."""
    with _in_memory(private_key_pem) as file:
        argv = ["openssl", "pkcs8", "-topk8", "-scrypt", "-in", _path(file), "-passout", "stdin"]
        return commands.run(argv, content=passphrase, files=[file])


def _passin(passphrase: bytes) -> list[str]:
    return ["-passin", "stdin"] if passphrase else []


def _verify(public_key: str, message: bytes, signature: bytes, *inherited: int) -> bool:
    argv = ["openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", public_key]
    with _in_memory(message) as content, _in_memory(signature) as proof:
        argv += ["-in", _path(content), "-sigfile", _path(proof)]
        return commands.succeeds(argv, files=[content, proof, *inherited])


@contextlib.contextmanager
def _in_memory(content: bytes) -> Iterator[int]:
    """Put the content into a file in memory, because openssl needs a file, and a killed agent must leave none."""
    with os.fdopen(os.memfd_create("gpuaas-agent"), "wb") as file:
        file.write(content)
        file.flush()
        yield file.fileno()


def _path(file: int) -> str:
    return f"/proc/self/fd/{file}"
