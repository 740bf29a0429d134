"""Attack: a member of a project registers a public key that the platform accepts and agents refuse. A machine gets the
accounts and keys of all people in one task, so the refusal would keep everyone in who has left, on all machines of the
project."""

import base64
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_agent import parameters
from gpuaas_contract import errors
from gpuaas_platform.allocations.keys import rules


def _line(key: Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> str:
    made = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return made.decode()


KIND, BLOB = _line(Ed25519PrivateKey.generate()).split()


def _security_key() -> str:
    """The key of a hardware token: the parts of a plain key under another type, and the application."""
    kind, raw = b"sk-ssh-ed25519@openssh.com", base64.b64decode(BLOB)
    parts = (kind, raw[4 + len(KIND) + 4 :], b"ssh:")
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return f"{kind.decode()} {base64.b64encode(blob).decode()}"


def _certificate(folder: Path) -> str:
    for name in ("authority", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    public = folder / "key.pub"
    subprocess.run(["ssh-keygen", "-q", "-s", folder / "authority", "-I", "a", "-n", "root", public], check=True)
    return (folder / "key-cert.pub").read_text()


def test_a_key_that_agents_refuse_is_refused_by_the_platform(tmp_path: Path) -> None:
    options = (f'command="id" {KIND} {BLOB}', f"{KIND} {BLOB}\n{KIND} {BLOB}", f"{KIND} {BLOB},command=id")
    for text in (_security_key(), _certificate(tmp_path), *options):
        with pytest.raises(errors.ValidationFailed):
            rules.read_public_key(text, "")


@pytest.mark.parametrize("junk", ["!", "!!!!", "==", "-_"])
def test_a_key_with_characters_that_parsers_skip_is_stored_without_them(junk: str) -> None:
    for text in (f"{KIND} {BLOB[:20]}{junk}{BLOB[20:]}", f"{KIND} {BLOB}{junk}"):
        try:
            key = rules.read_public_key(text, "")
        except errors.ValidationFailed:
            continue
        assert (key.line, parameters.public_key_set([key.line])) == (f"{KIND} {BLOB}", True)


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()])
def test_agents_accept_each_kind_of_key_that_the_platform_accepts(curve: ec.EllipticCurve) -> None:
    keys = (ec.generate_private_key(curve), rsa.generate_private_key(65537, 3072), Ed25519PrivateKey.generate())
    lines = [rules.read_public_key(_line(key), "").line for key in keys]
    assert parameters.public_key_set(lines)
    assert all(rules.is_installable(line) for line in lines)
