"""The offline tool: a release key and the signature of a build, made with Python and openssl alone."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from gpuaas_agent import AGENT_VERSION, build, config, ed25519, errors, releases, signer


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    build.build(tmp_path / "agent.pyz")
    return tmp_path / "agent.pyz"


def run(*words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run the tool without a terminal: it then reads passphrases from stdin."""
    argv = [sys.executable, "-W", "ignore", "-m", "gpuaas_agent.signer", *words]
    return subprocess.run(argv, input=given, capture_output=True, text=True, check=False, start_new_session=True)


def test_a_signature_names_version_digest_and_key_and_is_verified_with_the_printed_key(
    tmp_path: Path, archive: Path
) -> None:
    key = tmp_path / "release.key"
    line = run("create-key", str(key)).stdout.strip()
    signed = run("sign", str(archive), "--key", str(key))
    assert signed.stdout == f"{archive}.sig\n"
    document = json.loads(Path(f"{archive}.sig").read_text())
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert {name: document[name] for name in ("version", "sha256", "key_id")} == {
        "version": AGENT_VERSION,
        "sha256": sha256,
        "key_id": releases.key_id(line),
    }
    assert releases.is_signed([line], AGENT_VERSION, sha256, document["signature"])
    assert not releases.is_signed([line], AGENT_VERSION, "0" * 64, document["signature"])
    assert not releases.is_signed([], AGENT_VERSION, sha256, document["signature"])


def test_only_its_owner_can_read_the_private_key_and_it_is_never_overwritten(tmp_path: Path) -> None:
    key = tmp_path / "release.key"
    assert run("create-key", str(key)).returncode == 0
    assert key.stat().st_mode & 0o777 == 0o600
    before = key.read_bytes()
    again = run("create-key", str(key))
    assert (again.returncode, key.read_bytes()) == (1, before)
    assert "exists" in again.stderr


def test_a_key_with_a_passphrase_signs_only_with_it(tmp_path: Path, archive: Path) -> None:
    key = tmp_path / "release.key"
    made = run("create-key", str(key), "--passphrase", given="correct horse\ncorrect horse\n")
    assert made.returncode == 0, made.stderr
    assert key.read_text().startswith("-----BEGIN ENCRYPTED PRIVATE KEY-----")
    refused = run("sign", str(archive), "--key", str(key), given="wrong\n")
    assert (refused.returncode, "the passphrase is wrong" in refused.stderr) == (1, True), refused.stderr
    assert "openssl" not in refused.stderr
    assert not Path(f"{archive}.sig").exists()
    assert run("sign", str(archive), "--key", str(key), given="correct horse\n").returncode == 0
    document = json.loads(Path(f"{archive}.sig").read_text())
    assert releases.is_signed([made.stdout.strip()], AGENT_VERSION, document["sha256"], document["signature"])


def test_two_different_passphrases_make_no_key(tmp_path: Path) -> None:
    assert run("create-key", str(tmp_path / "release.key"), "--passphrase", given="one\ntwo\n").returncode == 1
    assert not (tmp_path / "release.key").exists()


def test_only_a_build_of_the_agent_is_signed(tmp_path: Path) -> None:
    key, other = tmp_path / "release.key", tmp_path / "other.pyz"
    signer.create_key(key)
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("__main__.py", "print('not an agent')")
    refused = run("sign", str(other), "--key", str(key))
    assert refused.returncode == 1
    assert "is not a build of the agent" in refused.stderr
    # The file may be anything, also the key, so the next command must not write to it.
    assert f"build {other}" not in refused.stderr


@pytest.mark.parametrize(
    "words", [["create-key", "new.key", "--passphrase"], ["sign", "agent.pyz", "--key", "old.key"]]
)
def test_without_a_passphrase_nothing_is_made_and_no_traceback_is_shown(
    tmp_path: Path, archive: Path, words: list[str]
) -> None:
    signer.create_key(tmp_path / "old.key", b"correct horse")
    before = sorted(path.name for path in tmp_path.iterdir())
    ended = run(*(str(tmp_path / word) if "." in word else word for word in words))
    assert (ended.returncode, "No passphrase was given" in ended.stderr) == (1, True), ended.stderr
    assert "Traceback" not in ended.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_public_key_does_not_sign(tmp_path: Path, archive: Path) -> None:
    signer.create_key(tmp_path / "release.key")
    refused = run("sign", str(archive), "--key", str(tmp_path / "release.key.pub"))
    assert (refused.returncode, "it is not a private key" in refused.stderr) == (1, True), refused.stderr


def test_a_build_into_a_missing_folder_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "absent" / "agent.pyz"
    assert build.main([str(target)]) == 1
    assert capsys.readouterr().err == f"{target} cannot be written: No such file or directory\n"


def test_the_tool_is_not_in_the_built_agent(archive: Path) -> None:
    assert "gpuaas_agent/signer.py" not in zipfile.ZipFile(archive).namelist()


@pytest.mark.parametrize("given", ["", "no key", "ssh-ed25519 AAAA", base64.b64encode(bytes(44)).decode()])
def test_what_is_not_an_ed25519_public_key_is_not_pinned(tmp_path: Path, given: str) -> None:
    path, key = tmp_path / "agent.json", tmp_path / "release.pub"
    path.write_text(json.dumps({"server": "http://127.0.0.1:1", "name": "gpu-1"}))
    key.write_text(given)
    with pytest.raises(errors.CannotStart, match="not the public key"):
        config.pin_release_key(path, key)
    path.write_text(json.dumps({"server": "http://127.0.0.1:1", "name": "gpu-1", "release_keys": [given]}))
    with pytest.raises(errors.CannotStart, match="release_keys must be"):
        config.load(path)


def test_a_key_is_pinned_in_either_form(tmp_path: Path) -> None:
    path, key = tmp_path / "agent.json", tmp_path / "release.key"
    line = signer.create_key(key)
    pem = Path(f"{key}.pub").read_text()
    path.write_text(json.dumps({"server": "http://127.0.0.1:1", "name": "gpu-1", "release_keys": [pem, line]}))
    assert config.load(path).release_keys == (line, line)
    assert ed25519.one_line(pem) == line
