"""The whole way of an app team: sign, publish, verify, register, attach a card, deploy by digest; a real server."""

import datetime
import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract.catalog import Manifest
from gpuaas_sdk import signatures
from gpuaas_sdk.conformance import ScoreCard, Verdict, statement
from msgspec import convert

Cli = Any
PASSWORD = "a long enough password"
CONTENT = b"#!/bin/sh\necho hello\n"
DIGEST = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
KEYS: dict[str, Any] = {
    "ed25519": Ed25519PrivateKey.generate,
    "p256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "p384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "p521": lambda: ec.generate_private_key(ec.SECP521R1()),
    "rsa": lambda: rsa.generate_private_key(65537, 2048),
}


def _key_files(folder: Path, kind: str = "ed25519") -> tuple[Path, Path]:
    """Write a key pair; return the files of the private and the public key."""
    key = KEYS[kind]()
    private, public = folder / f"{kind}.key", folder / f"{kind}.pem"
    pem, none = serialization.Encoding.PEM, serialization.NoEncryption()
    private.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, none))
    public.write_bytes(key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
    return private, public


def _manifest(folder: Path, slug: str, **changes: Any) -> Path:
    present = yaml.safe_load((Path(__file__).parent / "demo_manifest.yaml").read_text())
    file = folder / "manifest.yaml"
    file.write_text(yaml.safe_dump({**present, "slug": slug, "permissions": {}, "actions": [], **changes}))
    return file


@pytest.fixture
def publisher(cli: Cli, server: Any, stranger: Cli) -> Cli:
    """A person who publishes the app `kiosk`."""
    cli("user", "create", "pia", "--password", given=f"{PASSWORD}\n")
    cli("binding", "grant", "pia", "app_publisher", "--app", "kiosk")
    stranger("login", "--server", server.url, "--name", "pia", given=f"{PASSWORD}\n")
    return stranger


def test_a_publisher_signs_publishes_and_proves_an_app_that_is_deployed_by_digest(
    cli: Cli, publisher: Cli, tmp_path: Path
) -> None:
    private, public = _key_files(tmp_path)
    file, signature = tmp_path / "tool.sh", tmp_path / "tool.dsse"
    file.write_bytes(CONTENT)
    cli("artifact", "trust", "add", "kiosk", str(public), "--platform")
    signature.write_text(publisher("artifact", "signature", "tool", str(file), "--key", str(private)).out)
    publish: tuple[str, ...] = ("artifact", "publish", "tool", "--file", str(file), "--media-type", "text/x-sh")
    made = publisher(*publish, "--signature", str(signature), "--app", "kiosk", "-o", "json").json
    assert (made["digest"], made["app_slug"], made["signed"]) == (DIGEST, "kiosk", True)
    publisher("artifact", "verify", "tool", "--app", "kiosk")
    publisher("artifact", "promote", "tool", "--app", "kiosk", "--channel", "stable")
    assert "tool" in publisher("artifact", "list", "--app", "kiosk").out
    file.write_bytes(b"in two commands, as on the page about publishing")
    content = ("--file", str(file), "--media-type", "text/plain")
    unsigned = publisher("artifact", "publish", "notes", "--app", "kiosk", *content)
    refused = publisher("artifact", "verify", "notes", "--app", "kiosk", expect=1)
    for shown in (unsigned.err, refused.err):
        assert "next: gpuaas artifact sign art_" in shown
        assert "--app kiosk --key FILE" in shown
    publisher("artifact", "sign", "notes", "--app", "kiosk", "--key", str(private))
    assert publisher("artifact", "verify", "notes", "--app", "kiosk", "-o", "json").json["trust"] == "verified"

    named_wrong = _manifest(tmp_path, "kiosk", artifacts={"image": {"digest": DIGEST}})
    refused = publisher("app", "register", str(named_wrong), "--dry-run", expect=1)
    assert "is published as tool; the key must be the published name" in refused.err
    manifest = _manifest(tmp_path, "kiosk", artifacts={"tool": {"digest": DIGEST}})
    assert "warning" not in publisher("app", "register", str(manifest)).err
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    publisher("app", "register", str(_manifest(foreign, "booth")), expect=4)
    publisher("app", "publish", "kiosk", "1.0.0")
    assert "kiosk" in publisher("app", "versions", "kiosk").out

    card = tmp_path / "card.dsse"
    key = signatures.read_key(private.read_bytes())
    verdicts = [Verdict("residue", "Nothing stays.", "passed", 1.0)]
    document = convert(yaml.safe_load(manifest.read_text()), Manifest)
    now = datetime.datetime.now(datetime.UTC)
    card.write_bytes(statement.signed(ScoreCard("kiosk", "1.0.0", verdicts), document, key, now))
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text("conformance_required: true\n")
    cli("policy", "set", str(overlay))
    refused = cli("app", "entitle", "kiosk", expect=1)
    assert "kiosk 1.0.0 has no conformance card: policy of project" in refused.err
    assert "trusted conformance card" in cli("policy", "explain", "--app", "kiosk").out
    attached = publisher("app", "attach-card", "kiosk", "1.0.0", str(card)).out
    assert "kiosk 1.0.0 conforms: 1 passed, 0 failed, 0 not applicable" in attached
    cli("app", "entitle", "kiosk")
    assert "signed by" in cli("app", "card", "kiosk", "1.0.0").out
    overlay.write_text("{}\n")
    cli("policy", "set", str(overlay))
    shown = cli("app", "show", "kiosk", "1.0.0", "-o", "json").json
    assert shown["manifest"]["artifacts"]["tool"]["digest"] == DIGEST
    assert shown["conformance"]["conforming"] is True


@pytest.mark.parametrize("kind", KEYS)
def test_every_kind_of_key_that_can_be_trusted_can_sign(cli: Cli, tmp_path: Path, kind: str) -> None:
    private, public = _key_files(tmp_path, kind)
    file = tmp_path / f"{kind}.bin"
    file.write_text(kind)
    cli("artifact", "trust", "add", kind, str(public))
    cli("artifact", "publish", f"by-{kind}", "--file", str(file), "--media-type", "text/plain")
    assert "code=artifact_unsigned" in cli("artifact", "verify", f"by-{kind}", expect=1).err
    cli("artifact", "sign", f"by-{kind}", "--key", str(private))
    assert cli("artifact", "verify", f"by-{kind}", "-o", "json").json["trust"] == "verified"


def test_signing_needs_a_usable_key_or_a_signature(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("no key")
    assert "Exactly one of --key KEY" in cli("artifact", "sign", "tool", expect=64).err
    assert "is no private key" in cli("artifact", "signature", "a", str(file), "--key", str(file), expect=64).err
    missing = cli("artifact", "signature", "a", str(file), "--key", str(tmp_path / "none"), expect=64)
    assert "openssl genpkey" in missing.err
