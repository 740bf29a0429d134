"""Make a bundle: the Debian packages of one version with their dependencies, in one file with an index."""

import hashlib
import io
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from gpuaas_sdk.installs import bundle
from gpuaas_sdk.installs.bundles import resolver
from gpuaas_sdk.installs.footprint import Footprint

BASE_RELEASE = "trixie"
"""The Debian release of the machines. Other releases only give newer packages of the software."""
BASE = ("?priority(required)", "apt", "systemd-sysv", "openssh-server", "python3", "sudo")
"""What every machine has that the platform manages. A bundle contains what the roles need beside it."""

Show = Callable[[str], None]


class Wanted(msgspec.Struct, frozen=True):
    """What to make a bundle of.

    Wanted(KV, "forky", "http://mirror.example/debian")"""

    footprint: Footprint
    release: str
    mirror: str
    security: str = ""
    architecture: str = "amd64"
    more: tuple[str, ...] = ()
    """Packages that some instances need beside those of the roles."""


def make(wanted: Wanted, out: Path, show: Show) -> bundle.Index:
    """Download the packages, write the bundle and return its index.

    index = make.make(Wanted(KV, "forky", mirror), Path("kv.tar"), print)"""
    with tempfile.TemporaryDirectory(prefix=f"gpuaas-{wanted.footprint.app}-bundle-") as folder:
        apt = resolver.Apt(Path(folder), wanted.architecture)
        chosen = _download(apt, wanted, show)
        debs = {deb.name: deb for deb in sorted(apt.archives.glob("*.deb"))}
        index = index_of(wanted, [deb for deb in debs.values() if _identity(deb) in chosen])
        write(wanted.footprint, index, apt.archives, out)
    return index


def sources(wanted: Wanted, *releases: str) -> list[str]:
    """Return the lines of sources.list for these releases. Security updates are those of the machines' release.

    make.sources(wanted, "trixie")"""
    options = f"[signed-by={resolver.KEYRING}]"
    lines = [f"deb {options} {wanted.mirror} {release} main" for release in releases]
    security = [f"deb {options} {wanted.security} {BASE_RELEASE}-security main"] if wanted.security else []
    return lines + security


def _download(apt: resolver.Apt, wanted: Wanted, show: Show) -> set[resolver.Package]:
    """Download what the roles need from the release of the machines, then what newer software replaces or adds."""
    names = (*wanted.footprint.packages, *wanted.more)
    show(f"reading the package lists of {wanted.mirror}")
    apt.use(sources(wanted, BASE_RELEASE))
    apt.note_installed(apt.resolve(BASE))
    chosen = {package.name: package for package in apt.resolve(names)}
    show(f"downloading {len(chosen)} packages")
    apt.download(names)
    apt.note_installed(tuple(chosen.values()))
    if wanted.release != BASE_RELEASE:
        apt.use(sources(wanted, BASE_RELEASE, wanted.release))
        newer = wanted.footprint.software.packages
        replaced = apt.resolve(newer, wanted.release)
        show(f"downloading {len(replaced)} packages of {wanted.release}")
        apt.download(newer, wanted.release)
        chosen |= {package.name: package for package in replaced}
    return set(chosen.values())


def _identity(deb: Path) -> resolver.Package:
    return resolver.Package(*_fields(deb, "Package", "Version"))


def _fields(deb: Path, *names: str) -> list[str]:
    return [_control(deb, name).strip() for name in names]


def _control(deb: Path, *fields: str) -> str:
    return subprocess.run(["dpkg-deb", "-f", str(deb), *fields], capture_output=True, text=True, check=True).stdout


def index_of(wanted: Wanted, debs: Sequence[Path]) -> bundle.Index:
    """Return the index of these packages.

    index = make.index_of(wanted, sorted(folder.glob("*.deb")))"""
    files = []
    for deb in debs:
        name, version = _fields(deb, "Package", "Version")
        content = deb.read_bytes()
        files.append(
            bundle.File(name, version, deb.name.replace("%3a", "_"), len(content), hashlib.sha256(content).hexdigest())
        )
    software = wanted.footprint.software
    version = software.version({file.name: file.version for file in files})
    if not version:
        raise resolver.CannotMake(f"{wanted.mirror} has no package {software.packages[0]}. Name another --mirror.")
    return bundle.Index(version, wanted.release, wanted.architecture, tuple(sorted(files, key=lambda file: file.name)))


def write(footprint: Footprint, index: bundle.Index, archives: Path, out: Path) -> None:
    """Write the tar file. The same packages give the same bytes.

    make.write(KV, index, folder, Path("kv.tar"))"""
    present = {deb.name.replace("%3a", "_"): deb for deb in archives.glob("*.deb")}
    entries = "".join(_entry(present[file.file], file) for file in index.files)
    with tarfile.open(out, "w", format=tarfile.USTAR_FORMAT) as archive:
        add(archive, bundle.INDEX_NAME, msgspec.json.format(bundle.encode(footprint, index)) + b"\n")
        add(archive, "Packages", entries.encode())
        add(archive, bundle.SUMS_NAME, "".join(f"{file.sha256}  {file.file}\n" for file in index.files).encode())
        for file in index.files:
            add(archive, file.file, present[file.file].read_bytes())


def _entry(deb: Path, file: bundle.File) -> str:
    return f"{_control(deb).rstrip()}\nFilename: ./{file.file}\nSize: {file.size_bytes}\nSHA256: {file.sha256}\n\n"


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    """Add a file to the archive. It has no time and no owner, so that the same content gives the same bytes.

    make.add(archive, "index.json", content)"""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o644
    archive.addfile(entry, io.BytesIO(content))
