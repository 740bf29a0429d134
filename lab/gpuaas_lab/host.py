"""What the host must offer: root, packages, apt configuration. Asked before anything is made."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from gpuaas_lab import apt_sources, errors, plan, shell

INOTIFY_INSTANCES = 4096
LOCKS = Path("/run/gpuaas-lab")
"""Lab names, links and subnets are the host's, whatever state folder a lab uses, so their locks are too."""

_PACKAGE_OF_COMMAND = {
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
    "ip": "iproute2",
    "nsenter": "util-linux",
}
_KEYRING_FOLDER = Path("/usr/share/keyrings")


def require_root() -> None:
    """Go on as root: for anybody else the same command starts again through sudo, which is never left to ask."""
    if os.geteuid() == 0:
        return
    if not _sudo_works():
        raise errors.HostNotUsable(
            "machines need root, and sudo is not there or asks for a password", "sudo -v, then the same command again"
        )
    argv = plan.as_root(sys.executable, sys.argv[1:], os.environ)
    os.execvp(argv[0], argv)  # noqa: S606 - sudo takes over terminal, signals and exit code


def require_packages() -> None:
    """Install the host packages that are missing, saying so."""
    missing = sorted(package for command, package in _PACKAGE_OF_COMMAND.items() if shutil.which(command) is None)
    if missing:
        _install(missing)


def make_private(folder: Path) -> None:
    """Only root may enter: the set-uid programs below, made by whoever is root in a machine, work on the host too."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)


def require_keyring() -> None:
    """Make sure the host knows the keys that sign the lab's suite; older keyring packages end one release earlier."""
    if not _has_suite_keys():
        _install(["debian-archive-keyring"])
    if not _has_suite_keys():
        raise errors.HostNotUsable(
            f"the host's debian-archive-keyring does not hold the keys of Debian {apt_sources.SUITE}",
            "install a newer debian-archive-keyring package, then repeat",
        )


def allow_many_machines() -> None:
    """Each systemd needs a few inotify instances; with the usual 128 the 25th machine has no sshd."""
    setting = Path("/proc/sys/fs/inotify/max_user_instances")
    if int(setting.read_text()) < INOTIFY_INSTANCES:
        setting.write_text(f"{INOTIFY_INSTANCES}\n")
        shell.say(f"raised fs.inotify.max_user_instances to {INOTIFY_INSTANCES} until the next reboot")


def lab_sources(folder: Path = Path("/etc/apt")) -> list[apt_sources.Source]:
    """The host's Debian archives for the lab's suite; empty when it names none."""
    found: list[apt_sources.Source] = []
    for path in [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]:
        if path.is_file() and path.suffix in (".list", ".sources"):
            parse = apt_sources.parse_deb822 if path.suffix == ".sources" else apt_sources.parse_one_line
            found += parse(path.read_text(errors="replace"))
    return apt_sources.for_lab(found)


def apt_options() -> list[str]:
    return apt_sources.passed_options(shell.run(["apt-config", "dump"]))


def mounts_under(folder: Path) -> list[str]:
    """Mount points in or below a folder, innermost last mounted first."""
    return [point for point, _ in _mounts() if point == str(folder) or point.startswith(f"{folder}/")]


def mounts_from(source: str) -> list[str]:
    """Mount points of what was mounted under this name."""
    return [point for point, mounted in _mounts() if mounted == source]


def unmount(points: Iterable[str]) -> None:
    for point in points:
        shell.run(["umount", point])


def remove_tree(folder: Path) -> None:
    """Delete a folder; mounts that an interrupted run left in it are taken off first, never deleted through."""
    unmount(mounts_under(folder))
    if folder.exists():
        shell.run(["rm", "-rf", "--one-file-system", str(folder)])


def _sudo_works() -> bool:
    try:
        asked = subprocess.run(
            ["sudo", "-n", "true"], check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=10
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


def _mounts() -> list[tuple[str, str]]:
    """Mount point and source of each mount this process sees, the last one first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    fields = [(line.split()[4], line.partition(" - ")[2].split()[1]) for line in reversed(lines)]
    return [(point.replace("\\040", " "), source) for point, source in fields]


def _has_suite_keys() -> bool:
    return any(_KEYRING_FOLDER.glob(f"debian-archive-{apt_sources.SUITE}-stable.*"))


def _install(packages: list[str]) -> None:
    if shutil.which("apt-get") is None:
        raise errors.HostNotUsable(
            f"this host lacks {', '.join(packages)} and has no apt-get to install it",
            "run the lab on a Debian or Ubuntu host, or install these by hand",
        )
    shell.say(f"installing host packages: {' '.join(packages)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    shell.run(["apt-get", "-qq", "update"], environment=environment)
    shell.run(
        ["apt-get", "-qq", "-y", "-o", "DPkg::Lock::Timeout=300", "--no-install-recommends", "install", *packages],
        environment=environment,
    )
