"""The command `bundle` of an app: make a bundle, and print the manifest of an app version that installs it."""

import argparse
import hashlib
import sys
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec
from gpuaas_contract.catalog import Manifest

from gpuaas_sdk import signatures
from gpuaas_sdk.installs import bundle
from gpuaas_sdk.installs.bundles import make, resolver
from gpuaas_sdk.installs.footprint import Footprint

EXIT_FAILED = 1
EXIT_USAGE = 64
MEDIA_TYPE = "application/x-tar"


def main(argv: Sequence[str], manifest: Manifest, footprint: Footprint, more: tuple[str, ...] = ()) -> int:
    """Run the command and return its exit status. `more` are packages that some instances need beside the roles'.

    AppCommand("make a bundle of packages", lambda argv: command.main(argv, app.manifest, KV))"""
    try:
        options = _parse(argv, footprint)
        run: Callable[[argparse.Namespace], str] = {
            "make": lambda given: _make(given, footprint, more),
            "manifest": lambda given: _manifest(given, manifest, footprint),
        }[options.command]
        sys.stdout.write(run(options))
    except _Usage as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_USAGE
    except (resolver.CannotMake, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_FAILED
    return 0


def version_manifest(
    manifest: Manifest, footprint: Footprint, index: bundle.Index, digest: str, version: str
) -> Manifest:
    """Return the manifest of the app version that installs this bundle. Pure.

    version_manifest(manifest, KV, index, "sha256:00…", "1.0.0+kv3.5").artifacts"""
    values = msgspec.to_builtins(manifest)
    values["version"] = version or default_version(manifest, footprint, index)
    values["summary"] = f"{manifest.summary} {footprint.name} {index.version}."
    values["artifacts"] = {footprint.bundle_artifact: {"digest": digest, "media_type": MEDIA_TYPE}}
    return msgspec.convert(values, Manifest)


def default_version(manifest: Manifest, footprint: Footprint, index: bundle.Index) -> str:
    """Return the app version with the version of the software: `0.1.0+kv3.5`. Pure.

    default_version(manifest, KV, index)"""
    return f"{manifest.version}+{footprint.app}{index.version.split(':')[-1].split('-')[0]}"


def _make(options: argparse.Namespace, footprint: Footprint, more: tuple[str, ...]) -> str:
    key = _key(options.key)
    main_archive, security = resolver.host_mirror() if not options.mirror else (options.mirror, options.security)
    if not main_archive:
        raise _Usage("This host has no package source of Debian. Name one: --mirror URL")
    wanted = make.Wanted(footprint, options.release, main_archive, security, options.architecture, more)
    index = make.make(wanted, options.out, lambda text: _show(f"{text}\n"))
    digest = _digest(options.out)
    artifact = footprint.bundle_artifact
    lines = [
        f"{footprint.name} {index.version}: {len(index.files)} packages, {options.out.stat().st_size:,} bytes",
        f"sha256:{digest} {options.out}",
    ]
    signature = Path(f"{options.out}.dsse")
    if key is not None:
        content = signatures.envelope(artifact, digest, key, **{f"{footprint.app}_version": index.version})
        signature.write_bytes(content)
        lines.append(f"signature: {signature}")
    signed = f" --signature {signature}" if key is not None else ""
    publish = f"gpuaas artifact publish {artifact} --file {options.out} --media-type {MEDIA_TYPE}{signed}"
    return "\n".join([*lines, f"Next: {publish}", f"Then: {_prog(footprint)} manifest {options.out}"]) + "\n"


def _manifest(options: argparse.Namespace, manifest: Manifest, footprint: Footprint) -> str:
    index = _read_index(options.file, footprint)
    made = version_manifest(manifest, footprint, index, f"sha256:{_digest(options.file)}", options.version)
    return msgspec.json.format(msgspec.json.encode(made), indent=2).decode() + "\n"


def _read_index(file: Path, footprint: Footprint) -> bundle.Index:
    try:
        with tarfile.open(file) as archive:
            entry = archive.extractfile(bundle.INDEX_NAME)
            return bundle.decode(footprint, entry.read() if entry else b"")
    except (tarfile.TarError, KeyError, msgspec.DecodeError) as error:
        raise _Usage(f"{file} is not a bundle: {error}. Make one: {_prog(footprint)} make --help") from error


def _prog(footprint: Footprint) -> str:
    return f"gpuaas-{footprint.app} bundle"


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _key(file: Path | None) -> signatures.SigningKey | None:
    if file is None:
        return None
    try:
        return signatures.read_key(file.read_bytes())
    except (OSError, ValueError) as error:
        made = f"openssl genpkey -algorithm ed25519 -out {file}"
        raise _Usage(f"--key {file} cannot be used: {error}. Make a key: {made}") from error


def _show(text: str) -> None:
    sys.stderr.write(text)


class _Usage(Exception):
    pass


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Usage(f"{message}. See: {self.prog} --help")


def _parse(argv: Sequence[str], footprint: Footprint) -> argparse.Namespace:
    prog, name = _prog(footprint), footprint.name
    about = f"Packages of one {name} version in one file, for machines without a package source."
    root = _Parser(prog=prog, description=about)
    commands = root.add_subparsers(dest="command", required=True, parser_class=_Parser)
    making = commands.add_parser(
        "make",
        help=f"download the packages of a {name} version and write a bundle",
        description=f"Download {name} and what it needs beside a minimal Debian 13. Nothing is installed here.",
        epilog=f"Example: {prog} make --release forky --out {footprint.app}.tar --key signing.pem",
    )
    making.add_argument("--release", required=True, help=f"Debian release whose {name} is taken: trixie, forky or sid")
    making.add_argument("--out", required=True, type=Path, metavar="FILE", help="file to write")
    making.add_argument("--key", type=Path, metavar="FILE", help="Ed25519 private key (PEM) that signs the bundle")
    making.add_argument("--mirror", metavar="URL", default="", help="Debian archive; default: that of this host")
    making.add_argument("--security", metavar="URL", default="", help="archive of security updates, beside --mirror")
    making.add_argument("--architecture", default="amd64", help="default: %(default)s")
    printing = commands.add_parser(
        "manifest",
        help="print the manifest of an app version that installs this bundle",
        epilog=f"Example: {prog} manifest {footprint.app}.tar > version.json; gpuaas app register version.json",
    )
    printing.add_argument("file", type=Path, metavar="FILE")
    printing.add_argument("--version", default="", help=f"app version; default: this app's version and that of {name}")
    return root.parse_args(argv)
