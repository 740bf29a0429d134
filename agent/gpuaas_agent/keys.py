"""Ed25519 through the openssl program, as the standard library has none. Used by identity and tasks."""

from __future__ import annotations

import tempfile
from pathlib import Path

from gpuaas_agent import commands, files


def ensure_private_key(path: Path) -> None:
    """Make the node's key pair unless it is there; the private half never leaves this file."""
    if files.read(path) is None:
        files.write_atomic(path, commands.run(["openssl", "genpkey", "-algorithm", "ed25519"]), 0o600)


def public_key_pem(private_key: Path) -> str:
    return commands.run(["openssl", "pkey", "-in", str(private_key), "-pubout"]).decode()


def sign(private_key: Path, message: bytes) -> bytes:
    # openssl needs the message as a file: Ed25519 signs in one pass over a known length.
    with tempfile.TemporaryDirectory(prefix="gpuaas-sign-") as directory:
        message_file = Path(directory, "message")
        message_file.write_bytes(message)
        argv = ["openssl", "pkeyutl", "-sign", "-rawin", "-inkey", str(private_key), "-in", str(message_file)]
        return commands.run(argv)


def verify(public_key: Path, message: bytes, signature: bytes) -> bool:
    """Whether openssl accepts the signature; anything that keeps it from saying yes counts as no."""
    with tempfile.TemporaryDirectory(prefix="gpuaas-verify-") as directory:
        message_file, signature_file = Path(directory, "message"), Path(directory, "signature")
        message_file.write_bytes(message)
        signature_file.write_bytes(signature)
        argv = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", str(public_key), "-rawin"]
        return commands.succeeds([*argv, "-in", str(message_file), "-sigfile", str(signature_file)])
