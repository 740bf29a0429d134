"""Resolve and download Debian packages in a folder of its own: the host's packages and lists are neither read nor
changed. Used by `make`."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


class CannotMake(Exception):
    """A bundle cannot be made. The message is one line: what failed, why, and what to do.

    raise CannotMake("the mirror has no package kv-server. Name another --mirror.")"""


class Package(msgspec.Struct, frozen=True):
    """A package of an archive.

    Package("kv-server", "3.5-1")"""

    name: str
    version: str


class Apt:
    """An apt with its own lists, sources and list of installed packages. Proxies and keys are those of the host.

    apt = Apt(Path("work"), "amd64")
    apt.use(["deb http://mirror.example/debian trixie main"])
    apt.resolve(["kv-server"])"""

    def __init__(self, folder: Path, architecture: str) -> None:
        self.archives = folder / "archives"
        for part in ("archives/partial", "lists/partial", "cache"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        self._sources = folder / "sources.list"
        self._status = folder / "status"
        self._status.write_text("")
        self._options = [
            f"-oDir::State::status={self._status}",
            f"-oDir::State::extended_states={folder / 'extended_states'}",
            f"-oDir::State::lists={folder / 'lists'}",
            f"-oDir::Cache={folder / 'cache'}",
            f"-oDir::Cache::archives={self.archives}",
            f"-oDir::Etc::sourcelist={self._sources}",
            "-oDir::Etc::sourceparts=/dev/null",
            "-oDir::Etc::preferences=/dev/null",
            "-oDir::Etc::preferencesparts=/dev/null",
            f"-oAPT::Architecture={architecture}",
            f"-oAPT::Architectures={architecture}",
            "-oAPT::Sandbox::User=root",
            "-oAcquire::Languages=none",
        ]

    def use(self, sources: Sequence[str]) -> None:
        """Read the package lists of these sources, and use no others."""
        self._sources.write_text("".join(f"{line}\n" for line in sources))
        self._run("apt-get", "-q", "update")

    def resolve(self, names: Sequence[str], release: str = "") -> list[Package]:
        """Return the packages that an installation would add or replace; with a release, preferably from that one."""
        text = self._run("apt-get", "-q", *_install(release), "--simulate", *names)
        return [Package(*match) for match in re.findall(r"^Inst (\S+) (?:\[\S+\] )?\((\S+)", text, re.MULTILINE)]

    def download(self, names: Sequence[str], release: str = "") -> None:
        """Download these packages and what they need to the folder `archives`."""
        self._run("apt-get", "-q", *_install(release), "--download-only", *names)

    def note_installed(self, packages: Sequence[Package]) -> None:
        """Count these packages as installed from now on."""
        shown = self._run("apt-cache", "show", *(f"{package.name}={package.version}" for package in packages))
        entries = {_field(entry, "Package"): entry for entry in shown.strip().split("\n\n")}
        known = {_field(entry, "Package"): entry for entry in self._status.read_text().strip().split("\n\n") if entry}
        installed = {name: _with_status(entry) for name, entry in entries.items()}
        self._status.write_text("\n\n".join((known | installed).values()) + "\n")

    def _run(self, program: str, *arguments: str) -> str:
        command = [program, *self._options, *arguments]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
        if ran.returncode != 0:
            error = " ".join((ran.stderr or ran.stdout).split())[-800:]
            raise CannotMake(f"{program} {' '.join(arguments[:6])} failed: {error}. Check --mirror and the network.")
        return ran.stdout


def host_mirror() -> tuple[str, str]:
    """Return the main and the security archive of this host's package sources; empty if it has none.

    main, security = resolver.host_mirror()"""
    listed = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    ran = subprocess.run(listed, capture_output=True, text=True, check=False, env=_environment())
    archives = list(dict.fromkeys(ran.stdout.split()))
    main = next((uri for uri in archives if "security" not in uri), "")
    return main, next((uri for uri in archives if "security" in uri), "")


def _install(release: str) -> tuple[str, ...]:
    return ("-y", "--no-install-recommends", *(("-t", release) if release else ()), "install")


def _environment() -> dict[str, str]:
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}


def _field(entry: str, name: str) -> str:
    match = re.search(rf"^{name}: (.+)$", entry, re.MULTILINE)
    return match[1] if match else ""


def _with_status(entry: str) -> str:
    first, _, rest = entry.partition("\n")
    return f"{first}\nStatus: install ok installed\n{rest}"
