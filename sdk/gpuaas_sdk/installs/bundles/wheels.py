"""The command `bundle` of an app in Python: make one file of wheels, and print the manifest of an app version that
installs it. `installs.wheels` installs it on a machine."""

import argparse
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
from gpuaas_contract.catalog import Manifest

from gpuaas_sdk import signatures
from gpuaas_sdk.installs import wheels
from gpuaas_sdk.installs.bundles import make

EXIT_FAILED = 1
MEDIA_TYPE = "application/x-tar"
PYTHON = "3.13"
"""The Python of the machines: that of Debian 13."""
_PLATFORMS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")


class CannotMake(Exception):
    """The wheels cannot be downloaded, or the file is not one of wheels. The message has the reason."""


def main(argv: Sequence[str], manifest: Manifest, requirement: str) -> int:
    """Run the command and return its exit status. `requirement` is the software as pip takes it, without a version.

    AppCommand("make a file of wheels", lambda argv: wheels.main(argv, app.manifest, "kv[server]"))"""
    options = _parse(argv, manifest, requirement)
    try:
        sys.stdout.write(_make(options, manifest) if options.command == "make" else _manifest(options, manifest))
    except (CannotMake, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_FAILED
    return 0


def version_manifest(manifest: Manifest, requirement: str, digest: str, version: str = "") -> Manifest:
    """Return the manifest of the app version that installs this file. Pure.

    version_manifest(manifest, "kv==3.5", "sha256:00…").version  # 1.0.0+kv3.5"""
    name, _, software = requirement.partition("==")
    values = msgspec.to_builtins(manifest)
    values["version"] = version or f"{manifest.version}+{name.partition('[')[0]}{software}"
    values["summary"] = f"{manifest.summary} {manifest.display_name} {software}."
    values["artifacts"] = {wheels.artifact(manifest.slug): {"digest": digest, "media_type": MEDIA_TYPE}}
    return msgspec.convert(values, Manifest)


def write(folder: Path, requirement: str, out: Path) -> None:
    """Write the wheels of a folder into one file. The same wheels give the same bytes.

    wheels.write(Path("downloaded"), "kv==3.5", Path("kv.tar"))"""
    contents = {file.name: file.read_bytes() for file in sorted(folder.glob("*.whl"))}
    contents = {wheels.REQUIREMENTS_NAME: f"{requirement}\n".encode()} | contents
    sums = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in contents.items())
    # The name of a wheel can be longer than the older format of tar allows.
    with tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as archive:
        for name, content in ({wheels.SUMS_NAME: sums.encode()} | contents).items():
            make.add(archive, name, content)


def read(file: Path) -> tuple[str, str]:
    """Return the requirement that a file of wheels installs, and the digest of the file.

    requirement, digest = wheels.read(Path("kv.tar"))"""
    try:
        with tarfile.open(file) as archive:
            entry = archive.extractfile(wheels.REQUIREMENTS_NAME)
            requirement = entry.read().decode().strip() if entry else ""
    except (tarfile.TarError, KeyError) as error:
        raise CannotMake(f"{file} is not a file of wheels: {error}") from error
    with file.open("rb") as content:
        return requirement, f"sha256:{hashlib.file_digest(content, 'sha256').hexdigest()}"


def _make(options: argparse.Namespace, manifest: Manifest) -> str:
    requirement = f"{options.requirement}=={options.software}"
    with tempfile.TemporaryDirectory(prefix=f"gpuaas-{manifest.slug}-wheels-") as folder:
        sys.stderr.write(f"downloading {requirement} for Python {options.python}\n")
        _download(Path(folder), requirement, options.python, options.architecture)
        write(Path(folder), requirement, options.out)
        total = len(list(Path(folder).glob("*.whl")))
    artifact, (_, digest) = wheels.artifact(manifest.slug), read(options.out)
    signed = ""
    if options.key is not None:
        signature = Path(f"{options.out}.dsse")
        signature.write_bytes(signatures.envelope(artifact, digest.removeprefix("sha256:"), _key(options.key)))
        signed = f" --signature {signature}"
    return (
        f"{requirement}: {total} wheels, {options.out.stat().st_size:,} bytes\n{digest} {options.out}\n"
        f"Next: gpuaas artifact publish {artifact} --file {options.out} --media-type {MEDIA_TYPE}{signed}\n"
        f"Then: gpuaas-{manifest.slug} bundle manifest {options.out}\n"
    )


def _key(file: Path) -> signatures.SigningKey:
    try:
        return signatures.read_key(file.read_bytes())
    except ValueError as error:
        raise CannotMake(f"--key {file} cannot be used: {error}") from error


def _download(folder: Path, requirement: str, python: str, architecture: str) -> None:
    """Download the wheels for the machines, and pip, which installs them there."""
    platforms = [word for name in _PLATFORMS for word in ("--platform", f"{name}_{architecture}")]
    target = ["--only-binary", ":all:", "--implementation", "cp", "--python-version", python, *platforms]
    command = [sys.executable, "-m", "pip", "download", "-q", "-d", str(folder), *target, requirement, "pip"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotMake(f"pip cannot download {requirement}: {done.stderr.strip()[-1000:]}")


def _manifest(options: argparse.Namespace, manifest: Manifest) -> str:
    made = version_manifest(manifest, *read(options.file), options.version)
    return msgspec.json.format(msgspec.json.encode(made), indent=2).decode() + "\n"


def _parse(argv: Sequence[str], manifest: Manifest, requirement: str) -> argparse.Namespace:
    prog, name = f"gpuaas-{manifest.slug} bundle", manifest.display_name
    root = argparse.ArgumentParser(prog=prog, description=f"{name} in one file, for machines without a package source.")
    commands = root.add_subparsers(dest="command", required=True)
    making = commands.add_parser(
        "make",
        help=f"download the wheels of a {name} version and write them into one file",
        epilog=f"Example: {prog} make --software 1.2.3 --out {manifest.slug}.tar",
    )
    making.add_argument("--software", required=True, metavar="VERSION", help=f"version of {name}")
    making.add_argument("--out", required=True, type=Path, metavar="FILE", help="file to write")
    making.add_argument("--key", type=Path, metavar="FILE", help="Ed25519 private key (PEM) that signs the file")
    making.add_argument("--python", default=PYTHON, help="Python of the machines (default: %(default)s)")
    making.add_argument("--architecture", default="x86_64", help="default: %(default)s")
    making.set_defaults(requirement=requirement)
    printing = commands.add_parser(
        "manifest",
        help="print the manifest of an app version that installs this file",
        epilog=f"Example: {prog} manifest {manifest.slug}.tar > version.json; gpuaas app register version.json",
    )
    printing.add_argument("file", type=Path, metavar="FILE")
    printing.add_argument("--version", default="", help=f"app version; default: this app's version and that of {name}")
    return root.parse_args(argv)
