"""The score card as a signed statement: what it contains, and that a part of a run cannot be signed."""

import base64
import datetime
import hashlib
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract import conformance
from gpuaas_contract.artifacts import Envelope
from gpuaas_contract.catalog import ArtifactRef, Manifest, StewardSpec
from gpuaas_sdk.conformance import Driver, ScoreCard, Verdict, command, controllers, statement

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
    assert command.main(Driver(), ("false",), ["--manifest", str(tmp_path / "card")]) == command.EXIT_USAGE
    assert "--manifest needs --sign" in capsys.readouterr().err


def test_the_artifacts_of_a_driver_stand_only_for_those_that_the_manifest_leaves_out() -> None:
    class WithArtifacts(Driver):
        artifacts = {"wheels": b"simulated", "tool": b"simulated"}

    named = ArtifactRef(digest="sha256:" + "a" * 64)
    manifest = msgspec.structs.replace(MANIFEST, artifacts={"tool": named})
    tested = controllers.with_artifacts(manifest, WithArtifacts())
    assert tested.artifacts["tool"] == named
    assert tested.artifacts["wheels"].digest == f"sha256:{hashlib.sha256(b'simulated').hexdigest()}"


def _sign(folder: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> tuple[int, Path]:
    """Run the command with checks that pass at once; return its exit status and the card."""

    async def passed(*_: object) -> ScoreCard:
        return ScoreCard("hello", "1.1.0", [Verdict("residue", "Nothing stays.", "passed", 1.0)])

    class WithArtifacts(Driver):
        artifacts = {"wheels": b"simulated"}

    monkeypatch.setattr(command, "_until_stopped", passed)
    (folder / "own.json").write_bytes(msgspec.json.encode(MANIFEST))
    card = folder / "card.dsse"
    argv = ["--sign", str(_key_file(folder)), "--card", str(card), *more]
    script = ("sh", "-c", f"cat {folder / 'own.json'}")
    return command.main(WithArtifacts(), script, argv), card


def _predicate(card: Path) -> conformance.ConformanceStatement:
    envelope = msgspec.json.decode(card.read_bytes(), type=Envelope)
    signed = msgspec.json.decode(base64.b64decode(envelope.payload))
    return msgspec.convert(signed["predicate"], conformance.ConformanceStatement)


def test_a_card_is_about_the_manifest_of_the_app_without_the_artifacts_of_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exit_status, card = _sign(tmp_path, monkeypatch)
    assert exit_status == 0
    assert _predicate(card).manifest_digest == conformance.manifest_digest(MANIFEST)


def test_a_card_is_about_the_registered_manifest_of_a_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = {"wheels": ArtifactRef(digest="sha256:" + "b" * 64)}
    registered = msgspec.structs.replace(MANIFEST, version="1.1.0+ray2.60.0", artifacts=real)
    (tmp_path / "registered.json").write_bytes(msgspec.json.encode(registered))
    exit_status, card = _sign(tmp_path, monkeypatch, "--manifest", str(tmp_path / "registered.json"))
    predicate = _predicate(card)
    assert (exit_status, predicate.version) == (0, "1.1.0+ray2.60.0")
    assert predicate.manifest_digest == conformance.manifest_digest(registered)


def test_a_manifest_that_was_not_tested_is_not_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = msgspec.structs.replace(MANIFEST, version="2.0.0", summary="another app")
    (tmp_path / "other.json").write_bytes(msgspec.json.encode(other))
    (tmp_path / "broken.json").write_text("[")
    for name, why in (("other.json", "these fields differ: summary"), ("broken.json", "no manifest")):
        exit_status, card = _sign(tmp_path, monkeypatch, "--manifest", str(tmp_path / name))
        assert (exit_status, card.exists()) == (command.EXIT_USAGE, False)
        assert why in capsys.readouterr().err
