"""The score card as a signed statement: what it contains, and that a part of a run cannot be signed."""

import base64
import datetime
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract import conformance
from gpuaas_contract.artifacts import Envelope
from gpuaas_contract.catalog import Manifest, StewardSpec
from gpuaas_sdk.conformance import Driver, ScoreCard, Verdict, command, statement

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
MANIFEST = msgspec.convert(
    {
        "slug": "hello",
        "display_name": "Hello",
        "version": "1.1.0",
        "runtime_backend": "hello",
        "operating_modes": ["own"],
        "control_plane_scopes": ["project"],
        "roles": [{"component_key": "server", "max": 3}],
        "topologies": {"flat": {"server": "servers"}},
        "deploy_form": {"type": "object"},
    },
    Manifest,
)


def test_the_statement_names_the_manifest_by_digest_and_has_every_verdict() -> None:
    verdicts = [
        Verdict("residue", "Nothing stays.", "failed", 2.0, "n1 has \x1b[2J /opt", "Remove it.", "app problem"),
        Verdict("operations", "Every operation succeeds.", "passed", 1.0),
    ]
    content = statement.signed(ScoreCard("hello", "1.1.0", verdicts), MANIFEST, Ed25519PrivateKey.generate(), NOW)
    envelope = msgspec.json.decode(content, type=Envelope)
    signed = msgspec.json.decode(base64.b64decode(envelope.payload))
    digest = conformance.manifest_digest(MANIFEST)
    assert signed["subject"] == [{"name": "hello@1.1.0", "digest": {"sha256": digest.removeprefix("sha256:")}}]
    predicate = msgspec.convert(signed["predicate"], conformance.ConformanceStatement)
    assert (predicate.app_slug, predicate.version, predicate.manifest_digest) == ("hello", "1.1.0", digest)
    assert [(check.name, check.result) for check in predicate.checks] == [
        ("residue", "failed"),
        ("operations", "passed"),
    ]
    assert "\x1b" not in predicate.checks[0].reason
    assert not conformance.conforms(predicate.checks)
    assert conformance.conforms(predicate.checks[1:])


def test_a_field_with_its_default_does_not_change_the_digest_of_a_manifest_and_any_other_value_does() -> None:
    digest = conformance.manifest_digest(MANIFEST)
    assert conformance.manifest_digest(msgspec.structs.replace(MANIFEST, steward=StewardSpec())) == digest
    assert conformance.manifest_digest(msgspec.structs.replace(MANIFEST, summary="x")) != digest
    other = msgspec.structs.replace(MANIFEST, steward=StewardSpec(requests_per_hour=4))
    assert conformance.manifest_digest(other) != digest


def _key_file(folder: Path) -> Path:
    file, none = folder / "key", serialization.NoEncryption()
    key = Ed25519PrivateKey.generate()
    file.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, none))
    return file


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--check", "residue"], "--sign needs the whole run"),
        (["--kind", "deploy"], "--sign needs the whole run"),
    ],
)
def test_a_part_of_the_checks_is_not_signed(
    more: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--sign", str(_key_file(tmp_path)), *more]
    assert command.main(Driver(), ("false",), argv) == command.EXIT_USAGE
    assert why in capsys.readouterr().err


def test_a_wrong_key_is_refused_before_the_checks_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "key").write_text("no key")
    assert command.main(Driver(), ("false",), ["--sign", str(tmp_path / "key")]) == command.EXIT_USAGE
    assert "cannot be used to sign" in capsys.readouterr().err
    assert command.main(Driver(), ("false",), ["--card", str(tmp_path / "card")]) == command.EXIT_USAGE
    assert "--card needs --sign" in capsys.readouterr().err
