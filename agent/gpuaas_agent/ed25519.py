"""Ed25519 signatures through the openssl program, because the standard library has none. Used by identity and tasks."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from gpuaas_agent import commands, files


def ensure_private_key(path: Path) -> None:
    """Make the node's private key unless the file exists. The key is stored in this file only."""
    if files.read(path) is None:
        files.write_atomic(path, commands.run(["openssl", "genpkey", "-algorithm", "ed25519"]), 0o600)


def public_key_pem(private_key: Path) -> str:
    return commands.run(["openssl", "pkey", "-in", str(private_key), "-pubout"]).decode()


def sign(private_key: Path, message: bytes) -> bytes:
    argv = ["openssl", "pkeyutl", "-sign", "-rawin", "-inkey", str(private_key)]
    with _in_memory(message) as file:
        return commands.run([*argv, "-in", _path(file)], files=[file])


def verify(public_key: Path, message: bytes, signature: bytes) -> bool:
    """Return whether openssl accepts the signature; False if openssl cannot be run."""
    argv = ["openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", str(public_key)]
    with _in_memory(message) as content, _in_memory(signature) as proof:
        return commands.succeeds([*argv, "-in", _path(content), "-sigfile", _path(proof)], files=[content, proof])


@contextlib.contextmanager
def _in_memory(content: bytes) -> Iterator[int]:
    """Put the content into a file in memory, because openssl needs a file, and a killed agent must leave none."""
    with os.fdopen(os.memfd_create("gpuaas-agent"), "wb") as file:
        file.write(content)
        file.flush()
        yield file.fileno()


def _path(file: int) -> str:
    return f"/proc/self/fd/{file}"
