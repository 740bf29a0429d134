"""Bundles of packages: the index, the signature, the app version that installs one, and how a machine verifies it."""

import hashlib
import subprocess
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract.catalog import Manifest
from gpuaas_sdk import signatures
from gpuaas_sdk.failures import Permanent
from gpuaas_sdk.installs import bundle
from gpuaas_sdk.installs.bundles import command, make, resolver
from gpuaas_sdk.machine import Machine, Ran
from gpuaas_sdk.testing.machines import FakeHost
from kv_footprint import KV
from securesystemslib import dsse
from securesystemslib.signer import CryptoSigner

MANIFEST = Manifest(
    slug="kv",
    display_name="KV",
    version="1.2.3",
    runtime_backend="systemd",
    operating_modes=["managed"],
    control_plane_scopes=["project"],
    roles=[],
    topologies={},
    deploy_form={},
)


def deb(folder: Path, name: str, version: str) -> Path:
    """Build a Debian package without files."""
    control = folder / name / "DEBIAN" / "control"
    control.parent.mkdir(parents=True)
    control.write_text(
        f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: a test <a@example.org>\nDescription: a\n"
    )
    file = folder / f"{name}_{version.replace(':', '%3a')}_all.deb"
    subprocess.run(["dpkg-deb", "-b", str(control.parent.parent), str(file)], check=True, capture_output=True)
    return file


def made(tmp_path: Path) -> tuple[Path, bundle.Index]:
    archives = tmp_path / "archives"
    archives.mkdir()
    debs = [deb(archives, "kv-server", "26.05.5-1"), deb(archives, "database", "1:11.8.6-0")]
    index = make.index_of(make.Wanted(KV, "forky", "http://mirror.example/debian"), debs)
    make.write(KV, index, archives, tmp_path / "bundle.tar")
    return tmp_path / "bundle.tar", index


def digest_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def unpacked(file: Path, digest: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the script that machines run."""
    bash = ["bash", "-seuo", "pipefail", "--", str(file), digest, str(folder)]
    return subprocess.run(bash, input=bundle.UNPACK, text=True, capture_output=True, check=False)


def test_the_index_names_each_package_with_its_size_and_digest(tmp_path: Path) -> None:
    file, index = made(tmp_path)
    assert (index.version, [entry.name for entry in index.files]) == ("26.05.5-1", ["database", "kv-server"])
    assert index.versions["database"] == "1:11.8.6-0"
    ran = unpacked(file, digest_of(file), tmp_path / "machine" / "one")
    assert bundle.decode(KV, ran.stdout) == index
    folder = tmp_path / "machine" / "one"
    assert f"deb [trusted=yes] file:{folder} ./" in (folder / "sources.list").read_text()
    assert "Filename: ./kv-server_26.05.5-1_all.deb" in (folder / "Packages").read_text()
    assert all(digest_of(folder / entry.file) == entry.sha256 for entry in index.files)


def test_the_index_has_the_name_of_the_app_at_its_version_and_that_of_another_app_is_refused() -> None:
    index = bundle.Index("3.5-1", "forky", "amd64", ())
    content = bundle.encode(KV, index)
    assert content == b'{"kv_version":"3.5-1","release":"forky","architecture":"amd64","files":[]}'
    assert bundle.decode(KV, content) == index
    with pytest.raises(msgspec.DecodeError):
        bundle.decode(KV, content.replace(b"kv_version", b"other_version"))


def test_the_same_packages_give_the_same_bundle(tmp_path: Path) -> None:
    file, index = made(tmp_path)
    make.write(KV, index, tmp_path / "archives", tmp_path / "again.tar")
    assert digest_of(tmp_path / "again.tar") == digest_of(file)


def test_a_bundle_that_was_changed_is_not_unpacked(tmp_path: Path) -> None:
    file, _ = made(tmp_path)
    digest = digest_of(file)
    file.write_bytes(file.read_bytes()[:-600] + b"x" * 600)
    ran = unpacked(file, digest, tmp_path / "machine" / "one")
    assert (ran.returncode, (tmp_path / "machine" / "one").exists()) == (bundle.DAMAGED_STATUS, False)


def test_a_package_that_differs_from_the_list_in_the_bundle_is_not_used(tmp_path: Path) -> None:
    file, index = made(tmp_path)
    other = tuple(msgspec.structs.replace(entry, sha256="0" * 64) for entry in index.files)
    make.write(KV, msgspec.structs.replace(index, files=other), tmp_path / "archives", file)
    ran = unpacked(file, digest_of(file), tmp_path / "machine" / "one")
    assert (ran.returncode, (tmp_path / "machine" / "one").exists()) == (bundle.DAMAGED_STATUS, False)


async def test_a_damaged_bundle_is_reported_with_what_to_do() -> None:
    machine = Machine(FakeHost("gpu-1", lambda argv: Ran(bundle.DAMAGED_STATUS, "", "")))
    with pytest.raises(Permanent, match="does not have its digest; nothing was installed from it") as error:
        await bundle.unpack(machine, KV, "/var/lib/gpuaas/artifacts/a/sha256/0123")
    assert "sudo rm /var/lib/gpuaas/artifacts/a/sha256/0123" in error.value.fix


def test_the_signature_is_one_that_the_platform_accepts() -> None:
    key = Ed25519PrivateKey.generate()
    content = signatures.envelope(KV.bundle_artifact, "ab" * 32, key)
    envelope = dsse.Envelope.from_dict(msgspec.json.decode(content))
    signer = CryptoSigner(key)
    signature = next(iter(envelope.signatures.values()))
    signature.keyid = signer.public_key.keyid
    envelope.signatures = {signature.keyid: signature}
    assert envelope.verify([signer.public_key], 1)
    statement = msgspec.json.decode(envelope.payload)
    assert statement["subject"][0]["digest"] == {"sha256": "ab" * 32}


def test_the_app_version_of_a_bundle_names_it_by_digest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, _ = made(tmp_path)
    assert command.main(["manifest", str(file)], MANIFEST, KV) == 0
    manifest = msgspec.json.decode(capsys.readouterr().out)
    assert manifest["version"] == "1.2.3+kv26.05.5"
    assert manifest["artifacts"]["kv-packages"]["digest"] == f"sha256:{digest_of(file)}"


def test_a_file_that_is_no_bundle_is_refused_with_the_next_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other").write_text("text")
    assert command.main(["manifest", str(tmp_path / "other")], MANIFEST, KV) == command.EXIT_USAGE
    assert "is not a bundle" in capsys.readouterr().err


def test_a_wrong_key_is_refused_before_anything_is_downloaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "key.pem"
    key.write_text("no key")
    argv = ["make", "--release", "forky", "--out", str(tmp_path / "out.tar"), "--key", str(key)]
    assert command.main(argv, MANIFEST, KV) == command.EXIT_USAGE
    assert "openssl genpkey -algorithm ed25519" in capsys.readouterr().err
    assert not (tmp_path / "out.tar").exists()


def test_a_key_of_openssl_can_sign(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    read = signatures.read_key(text)
    assert isinstance(read, Ed25519PrivateKey)
    assert read.private_bytes_raw() == key.private_bytes_raw()


def test_packages_of_the_machines_release_are_never_taken_from_a_newer_one() -> None:
    wanted = make.Wanted(KV, "forky", "http://mirror.example/debian", "http://mirror.example/security")
    assert make.sources(wanted, "trixie") == [
        f"deb [signed-by={resolver.KEYRING}] http://mirror.example/debian trixie main",
        f"deb [signed-by={resolver.KEYRING}] http://mirror.example/security trixie-security main",
    ]
