"""Ed25519 through the openssl program, as the standard library has none. Used by identity and tasks."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from gpuaas_agent import commands, files


def ensure_private_key(path: Path) -> None:
    """Make the node's key pair unless it is there; the private half never leaves this file."""
    if files.read(path) is None:
        files.write_atomic(path, commands.run(["openssl", "genpkey", "-algorithm", "ed25519"]), 0o600)


def public_key_pem(private_key: Path) -> str:
    return commands.run(["openssl", "pkey", "-in", str(private_key), "-pubout"]).decode()


def sign(private_key: Path, message: bytes) -> bytes:
    argv = ["openssl", "pkeyutl", "-sign", "-rawin", "-inkey", str(private_key)]
    with _in_memory(message) as file:
        return commands.run([*argv, "-in", _path(file)], files=[file])


def verify(public_key: Path, message: bytes, signature: bytes) -> bool:
    """Whether openssl accepts the signature; anything that keeps it from saying yes counts as no."""
    argv = ["openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", str(public_key)]
    with _in_memory(message) as said, _in_memory(signature) as proof:
        return commands.succeeds([*argv, "-in", _path(said), "-sigfile", _path(proof)], files=[said, proof])


@contextlib.contextmanager
def _in_memory(content: bytes) -> Iterator[int]:
    """openssl needs files: Ed25519 takes one pass over a known length. These are gone with this process, however it
    ends."""
    with os.fdopen(os.memfd_create("gpuaas-agent"), "wb") as file:
        file.write(content)
        file.flush()
        yield file.fileno()


def _path(file: int) -> str:
    return f"/proc/self/fd/{file}"
