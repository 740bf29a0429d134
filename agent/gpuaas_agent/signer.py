"""`python -m gpuaas_agent.signer`: make a release key and sign builds of the agent, on a computer without network.

It needs Python, openssl and this folder. It is not in the built agent: nodes verify signatures and never make one.
"""

from __future__ import annotations

import argparse
import base64
import getpass
import hashlib
import json
import re
import sys
import zipfile
from pathlib import Path

from gpuaas_agent import commands, ed25519, files, releases

_VERSION_FILE = "gpuaas_agent/__init__.py"
_VERSION = re.compile(rb'^AGENT_VERSION = "([A-Za-z0-9][A-Za-z0-9._-]*)"', re.MULTILINE)


class CannotSign(Exception):
    """The key or the signature was not made; the message names what to change."""


def create_key(path: Path, passphrase: bytes = b"") -> str:
    """Write a new private key to `path` and its public key to `path`.pub; return the public key as one line."""
    public_file = path.with_name(f"{path.name}.pub")
    for file in (path, public_file):
        if file.exists():
            raise CannotSign(f"{file} exists. Choose another name: a release key is never replaced in its file.")
    private_pem = commands.run(["openssl", "genpkey", "-algorithm", "ed25519"])
    files.write_atomic(path, ed25519.encrypted(private_pem, passphrase) if passphrase else private_pem, 0o600)
    public_pem = ed25519.public_key_pem(path, passphrase)
    files.write_atomic(public_file, public_pem.encode(), 0o644)
    return ed25519.one_line(public_pem)


def sign(archive: Path, key: Path, passphrase: bytes = b"") -> Path:
    """Sign the build. Return the path of the signature file, `archive`.sig: JSON with version, digest, key id and
    signature."""
    content = archive.read_bytes()
    version, sha256 = _version(archive), hashlib.sha256(content).hexdigest()
    public_key = ed25519.one_line(ed25519.public_key_pem(key, passphrase))
    signature = ed25519.sign(key, releases.message(version, sha256), passphrase)
    document = {
        "version": version,
        "sha256": sha256,
        "key_id": releases.key_id(public_key),
        "signature": base64.b64encode(signature).decode(),
    }
    result = archive.with_name(f"{archive.name}.sig")
    files.write_atomic(result, json.dumps(document, indent=1).encode() + b"\n", 0o644)
    return result


def _version(archive: Path) -> str:
    """Read the version from the archive, without running anything of it."""
    try:
        with zipfile.ZipFile(archive) as build:
            match = _VERSION.search(build.read(_VERSION_FILE))
    except (zipfile.BadZipFile, KeyError):
        match = None
    if match is None:
        raise CannotSign(f"{archive} is not a build of the agent. Make one: python -m gpuaas_agent.build agent.pyz")
    return match[1].decode()


def main(arguments: list[str] | None = None) -> int:
    flags = _parser().parse_args(arguments)
    try:
        return _sign(flags) if flags.command == "sign" else _create_key(flags)
    except (CannotSign, commands.CommandFailed, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _create_key(flags: argparse.Namespace) -> int:
    line = create_key(flags.file, _new_passphrase() if flags.passphrase else b"")
    sys.stderr.write(
        f"Private key: {flags.file}. Store it offline.\n"
        f"Public key {releases.key_id(line)}: {flags.file}.pub. Give this file to the platform "
        "(gpuaas-platform server --agent-release-key) and the next line to every node (release_keys in agent.json).\n"
    )
    sys.stdout.write(f"{line}\n")
    return 0


def _sign(flags: argparse.Namespace) -> int:
    _version(flags.archive)  # a wrong file is reported before anyone types a passphrase
    is_encrypted = b"ENCRYPTED" in flags.key.read_bytes()
    passphrase = _asked(f"Passphrase of {flags.key}: ").encode() if is_encrypted else b""
    try:
        ed25519.public_key_pem(flags.key, passphrase)
    except commands.CommandFailed as error:
        why = "the passphrase is wrong" if is_encrypted else "it is not a private key"
        raise CannotSign(f"{flags.key} cannot be used: {why}. Nothing was signed.") from error
    sys.stdout.write(f"{sign(flags.archive, flags.key, passphrase)}\n")
    return 0


def _asked(prompt: str) -> str:
    try:
        return getpass.getpass(prompt)
    except EOFError as error:
        raise CannotSign("No passphrase was given. Run this in a terminal, and type it.") from error


def _new_passphrase() -> bytes:
    passphrase = _asked("New passphrase: ")
    if not passphrase or _asked("The same again: ") != passphrase:
        raise CannotSign("The passphrases are empty or differ. No key was made.")
    return passphrase.encode()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m gpuaas_agent.signer", description=__doc__)
    actions = parser.add_subparsers(dest="command", required=True)
    create = actions.add_parser("create-key", help="write a new private key to FILE and its public key to FILE.pub")
    create.add_argument("file", type=Path, metavar="FILE")
    create.add_argument("--passphrase", action="store_true", help="ask for a passphrase and encrypt the private key")
    signs = actions.add_parser("sign", help="sign a build of the agent; writes BUILD.sig")
    signs.add_argument("archive", type=Path, metavar="BUILD", help="made by python -m gpuaas_agent.build")
    signs.add_argument("--key", type=Path, required=True, metavar="FILE", help="the private key")
    return parser


if __name__ == "__main__":
    sys.exit(main())
