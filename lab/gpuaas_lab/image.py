"""The base image: a small Debian with systemd and sshd, built once per recipe. Called by `lab.py`."""

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gpuaas_lab import apt_sources, host, plan, shell

PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "openssh-server", "iproute2", "iputils-ping", "procps", "sudo", "openssl"),
    *("ca-certificates", "curl", "python3", "less"),
    # Machines have the clock of the host. With this library, programs of one machine get another time.
    "libfaketime",
)
TOOLCHAIN = ("gcc", "libc6-dev", "make", "git", "openmpi-bin", "libopenmpi-dev", "python3-pip", "python3-venv")
"""What people need to compile and to install Python packages on machines, which have no route to the internet."""
MASKED_UNITS = (
    *("console-getty.service", "getty@.service", "systemd-logind.service", "dev-hugepages.mount"),
    *("e2scrub_reap.service", "e2scrub_all.timer", "apt-daily.timer", "apt-daily-upgrade.timer"),
    *("dpkg-db-backup.timer", "fstrim.timer"),
)
APT_OPTIONS = ['APT::Install-Recommends "false";', 'Acquire::Languages "none";']
DPKG_OPTIONS = [
    "force-unsafe-io",
    *(f"path-exclude=/usr/share/{folder}/*" for folder in ("man", "doc", "locale", "info")),
]
SOURCES_RECORD = "usr/share/gpuaas-lab/sources.list"
FILES = {
    "etc/ssh/sshd_config.d/gpuaas-lab.conf": (
        "PermitRootLogin prohibit-password\nPasswordAuthentication no\nUseDNS no\n"
        "MaxStartups 100:30:200\nMaxSessions 50\n"
        # All clients connect from the gateway address, so a wrong key of one client must not block the others.
        "PerSourcePenalties no\n"
    ),
    "etc/systemd/journald.conf.d/gpuaas-lab.conf": "[Journal]\nStorage=persistent\nSystemMaxUse=32M\n",
    # Machines have no route to the internet, so their only archive is the one that the lab mounts read-only.
    "etc/apt/sources.list": "deb [trusted=yes] file:/srv/packages ./\n",
    "etc/machine-id": "",
    "etc/hostname": "",
    "etc/hosts": "",
    "etc/resolv.conf": "",
}


def packages(*, toolchain: bool) -> tuple[str, ...]:
    return (*PACKAGES, *TOOLCHAIN) if toolchain else PACKAGES


def key(*, toolchain: bool = False) -> str:
    """Return the digest of the recipe. Existing machines keep the image of the recipe that they were made with."""
    settings = [f"{name}={content}" for name, content in FILES.items()]
    installed = packages(toolchain=toolchain)
    return plan.recipe_key(apt_sources.SUITE, *installed, *MASKED_UNITS, *APT_OPTIONS, *DPKG_OPTIONS, *settings)


def ensure(state: Path, *, toolchain: bool = False) -> str:
    """Build the image unless it exists; return its key."""
    name = key(toolchain=toolchain)
    host.make_private(state / "images")
    if path(state, name).exists():
        return name
    with locked(state):
        if not path(state, name).exists():
            _build(state, name, packages(toolchain=toolchain))
    return name


def path(state: Path, name: str) -> Path:
    return state / "images" / name


def downloads(state: Path) -> Path:
    """Return the folder of downloaded packages, which the next build uses after an interrupted one."""
    return state / "downloads"


@contextmanager
def locked(state: Path) -> Iterator[None]:
    """Hold the lock on the machine images: one process at a time may build or delete images and package
    repositories."""
    with shell.locked(state / "images.lock", "the image"):
        yield


def sources(root: Path) -> list[apt_sources.Source]:
    """Return the package archives that an image was built from."""
    return apt_sources.parse_one_line((root / SOURCES_RECORD).read_text())


def _build(state: Path, name: str, installed: Sequence[str]) -> None:
    for stale in (state / "images").glob("building-*"):
        host.remove_tree(stale)
    draft = state / "images" / f"building-{name}"
    shell.progress(f"building the machine image (Debian {apt_sources.SUITE}, once; about a minute)")
    shell.run_with_progress(
        [*shell.KILLED_WITH_PARENT, *_bootstrap_command(draft, downloads(state), installed)], shown=r"I: (.+\.\.\.)$"
    )
    _configure(draft)
    # Only a complete image gets its final name. The next build removes the folder of an interrupted one.
    os.sync()
    draft.rename(path(state, name))
    host.remove_tree(downloads(state))
    shell.progress("machine image ready")


def _bootstrap_command(target: Path, fetched: Path, installed: Sequence[str]) -> list[str]:
    archives = host.lab_sources()
    if not all(apt_sources.brings_own_keys(archive) for archive in archives) or not archives:
        host.require_keyring()
    options = [f"--aptopt={option}" for option in (*host.apt_options(), *APT_OPTIONS)]
    options += [f"--dpkgopt={option}" for option in DPKG_OPTIONS]
    options += _keep_downloads(fetched)
    command = ["mmdebstrap", "--mode=root", "--variant=minbase", f"--include={','.join(installed)}", *options]
    return [*command, apt_sources.SUITE, str(target), *(archive.line() for archive in archives)]


def _keep_downloads(fetched: Path) -> list[str]:
    """Return options that make apt download into a folder that is kept after an interrupted build.

    apt verifies the files in it again."""
    kept, cache = shlex.quote(str(fetched)), '"$1/var/cache/apt/archives"'
    return [
        f"--setup-hook=mkdir -p {kept}/partial {cache} && mount --bind {kept} {cache}",
        f"--customize-hook=umount {cache}",
        "--skip=essential/unlink",
    ]


def _configure(root: Path) -> None:
    for host_key in (root / "etc/ssh").glob("ssh_host_*"):
        host_key.unlink()
    record = root / SOURCES_RECORD
    record.parent.mkdir(parents=True)
    record.write_text("".join(f"{archive.line()}\n" for archive in host.lab_sources(root / "etc/apt")))
    for name, content in FILES.items():
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        target.write_text(content)
    for unit in MASKED_UNITS:
        link = root / "etc/systemd/system" / unit
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")
    default = root / "etc/systemd/system/default.target"
    default.unlink(missing_ok=True)
    default.symlink_to("/usr/lib/systemd/system/multi-user.target")
    # This removes the proxy and download settings of the host, which were for the build only.
    (root / "etc/apt/apt.conf.d/99mmdebstrap").write_text("\n".join(APT_OPTIONS) + "\n")
    for folder in ("srv/packages", "etc/gpuaas/facts.d", "opt/gpuaas"):
        (root / folder).mkdir(parents=True, exist_ok=True)
