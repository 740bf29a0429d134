"""What the lab needs from the host: root, packages, apt configuration, mounts."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from gpuaas_lab import apt_sources, errors, plan, shell

INOTIFY_INSTANCES = 4096
LOCKS = Path("/run/gpuaas-lab")
"""One folder for all state folders, because labs share names, links and subnets of the host."""

_PACKAGE_OF_COMMAND = {
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
    "ip": "iproute2",
    "nsenter": "util-linux",
}
_KEYRING_FOLDER = Path("/usr/share/keyrings")


def require_root() -> None:
    """Return if this process is root; otherwise run the same command again through sudo without a password."""
    if os.geteuid() == 0:
        return
    if not _sudo_works():
        raise errors.HostNotUsable(
            "machines need root, and sudo is not installed or asks for a password",
            "run sudo -v, then repeat the command",
        )
    argv = plan.as_root(sys.executable, sys.argv[1:], os.environ)
    os.execvp(argv[0], argv)  # noqa: S606 - sudo gets the terminal and signals, and sets the exit code


def require_packages() -> None:
    """Install the missing packages on the host."""
    missing = sorted(package for command, package in _PACKAGE_OF_COMMAND.items() if shutil.which(command) is None)
    if missing:
        _install(missing)


def make_private(folder: Path) -> None:
    """Make a folder that only root can enter: a set-uid program on a machine's disk would also work on the host."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)


def require_keyring() -> None:
    """Install the keys that sign the lab's suite, if the host's keyring package is older than that suite."""
    if not _has_suite_keys():
        _install(["debian-archive-keyring"])
    if not _has_suite_keys():
        raise errors.HostNotUsable(
            f"the host's debian-archive-keyring has no keys for Debian {apt_sources.SUITE}",
            "install a newer debian-archive-keyring package, then repeat the command",
        )


def allow_many_machines() -> None:
    """Raise the limit of inotify instances: with the default of 128, sshd does not start on the 25th machine."""
    setting = Path("/proc/sys/fs/inotify/max_user_instances")
    if int(setting.read_text()) < INOTIFY_INSTANCES:
        setting.write_text(f"{INOTIFY_INSTANCES}\n")
        shell.progress(f"raised fs.inotify.max_user_instances to {INOTIFY_INSTANCES} until the next reboot")


def lab_sources(folder: Path = Path("/etc/apt")) -> list[apt_sources.Source]:
    """Return the Debian archives of the host, with the Debian release of the lab; empty if the host has none."""
    sources: list[apt_sources.Source] = []
    for path in [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]:
        if path.is_file() and path.suffix in (".list", ".sources"):
            parse = apt_sources.parse_deb822 if path.suffix == ".sources" else apt_sources.parse_one_line
            sources += parse(path.read_text(errors="replace"))
    return apt_sources.for_lab(sources)


def apt_options() -> list[str]:
    return apt_sources.passed_options(shell.run(["apt-config", "dump"]))


def mounts_under(folder: Path) -> list[str]:
    """Return the mount points in or below a folder, the last mounted first."""
    return [point for point, _ in _mounts() if point == str(folder) or point.startswith(f"{folder}/")]


def mounts_from(source: str) -> list[str]:
    """Return the mount points of this source."""
    return [point for point, mounted in _mounts() if mounted == source]


def unmount(points: Iterable[str]) -> None:
    for point in points:
        shell.run(["umount", point])


def remove_tree(folder: Path) -> None:
    """Delete a folder; first unmount what an interrupted run left in it, so that no mounted file is deleted."""
    unmount(mounts_under(folder))
    if folder.exists():
        shell.run(["rm", "-rf", "--one-file-system", str(folder)])


def _sudo_works() -> bool:
    try:
        result = subprocess.run(
            ["sudo", "-n", "true"], check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=10
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False
    return result.returncode == 0


def _mounts() -> list[tuple[str, str]]:
    """Return mount point and source of every visible mount, the last mounted first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    fields = [(line.split()[4], line.partition(" - ")[2].split()[1]) for line in reversed(lines)]
    return [(point.replace("\\040", " "), source) for point, source in fields]


def _has_suite_keys() -> bool:
    return any(_KEYRING_FOLDER.glob(f"debian-archive-{apt_sources.SUITE}-stable.*"))


def _install(packages: list[str]) -> None:
    if shutil.which("apt-get") is None:
        raise errors.HostNotUsable(
            f"this host has no {', '.join(packages)}, and no apt-get to install it",
            "run the lab on a Debian or Ubuntu host, or install the packages by hand",
        )
    shell.progress(f"installing host packages: {' '.join(packages)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    shell.run(["apt-get", "-qq", "update"], environment=environment)
    shell.run(
        ["apt-get", "-qq", "-y", "-o", "DPkg::Lock::Timeout=300", "--no-install-recommends", "install", *packages],
        environment=environment,
    )
