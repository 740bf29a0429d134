"""Bundles of two Slurm versions, published as the page on packages describes, for machines without a package source.

Made once and kept where the lab keeps its packages."""

import fcntl
import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import machine_state
from cloud_in_use import BIN, Cloud
from gpuaas_app_slurm.controller import app
from gpuaas_sdk.installs import bundles

PAGE = Path(__file__).parents[2] / "apps/slurm/docs/packages.md"
CACHE = Path(os.environ.get("GPUAAS_LAB_STATE", "/var/lib/gpuaas/lab")) / "bundles"
RELEASES = {"old": "trixie", "new": "forky"}
SHOWN_FILE, SHOWN_VERSION = "slurm-26.05.tar", "0.1.0+slurm26.05.5"
"""What the page names. The newest packages may have another number."""
CLUSTER, WORKERS = "lab", "gpu-2,gpu-3"
"""The inputs of the deploy that the page shows."""
PLACED = re.compile(r"file /var/lib/gpuaas(/artifacts(/[^/\s]+(/sha256(/(?P<digest>\w+))?)?)?)?: ")
NO_SOURCE = r"""
umount /srv/packages; rm -f /etc/apt/sources.list; rm -rf /var/lib/apt/lists/*
! apt-get -s install slurmctld >/dev/null 2>&1
"""


@contextmanager
def air_gapped(lab: str, port: str, nodes: int) -> Iterator[tuple[Cloud, dict[str, str]]]:
    """A cloud whose machines have no package source, and its app versions: `old` and `new`."""
    with tempfile.TemporaryDirectory(prefix=f"gpuaas-{lab}-") as folder:
        cloud = Cloud(Path(folder), lab, port)
        cloud.gpuaas("lab", "down", "--lab", lab, "--purge")
        try:
            cloud.gpuaas("up", "--lab", lab, "--port", port, "--nodes", str(nodes), "--no-deploy", timeout_s=1200)
            _cut_package_sources(cloud, nodes)
            yield cloud, publish(cloud)
        finally:
            cloud.gpuaas("down", "--lab", lab, "--purge")


def publish(cloud: Cloud) -> dict[str, str]:
    """Publish both bundles by the commands of the page. Return the app versions that install them."""
    key, per_version, _ = _blocks(PAGE.read_text())
    folder = _linked(cached(), cloud.home / "bundles")
    _run(cloud, folder, [line for line in key if "genpkey" not in line])
    versions = {}
    for name, release in RELEASES.items():
        file = f"{release}.tar"
        versions[name] = version_of(folder / file)
        lines = [line.replace(SHOWN_FILE, file).replace(SHOWN_VERSION, versions[name]) for line in per_version]
        _run(cloud, folder, [line for line in lines if "bundle make" not in line])
    return versions


def _linked(kept: Path, folder: Path) -> Path:
    """Return a folder of this cloud with the key and the bundles. The commands of the page write files beside them, and
    another test may publish the same bundles at the same time."""
    folder.mkdir()
    for file in (kept / "signing.pem", *kept.glob("*.tar"), *kept.glob("*.dsse")):
        (folder / file.name).symlink_to(file)
    return folder


def deploy(cloud: Cloud, version: str, *, workers: str = WORKERS, **more: str) -> None:
    """Deploy the app version by the command of the page, with further inputs."""
    [command_line] = _blocks(PAGE.read_text())[2]
    words = command_line.replace(SHOWN_VERSION, version).replace(WORKERS, workers).split()[1:]
    cloud.gpuaas(*words, *(word for name, value in more.items() for word in ("--set", f"{name}={value}")))


def traces(lab: str, node: str, before: dict[str, Any]) -> list[str]:
    """What differs from before. A removal deletes the bundles of the present and the previous version of the instance.
    After a rollback there is no previous version, so the new bundle may stay until the allocation is released."""
    changes = machine_state.traces(lab, node, before)
    digest = hashlib.sha256((cached() / f"{RELEASES['new']}.tar").read_bytes()).hexdigest()
    return [f"{node}: {change}" for change in changes if not _is_of_bundle(change, digest)]


def _is_of_bundle(change: str, digest: str) -> bool:
    """Return whether the change is the bundle with this digest, or a folder above it."""
    placed = PLACED.match(change)
    return placed is not None and placed["digest"] in (None, digest)


def _cut_package_sources(cloud: Cloud, nodes: int) -> None:
    """Leave the machines without any package source: apt finds no Slurm afterwards."""
    for number in range(1, nodes + 1):
        cloud.on(f"gpu-{number}", NO_SOURCE)


def slurm_version(app_version: str) -> str:
    return app_version.partition("+slurm")[2]


def cached() -> Path:
    """Return the folder with the key, the bundles and their signatures; make what is missing."""
    programs = sorted(Path(bundles.__file__).parent.glob("*.py"))
    recipe = "".join([*app.packages, *(program.read_text() for program in programs)])
    folder = CACHE / hashlib.sha256(recipe.encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        key, per_version, _ = _blocks(PAGE.read_text())
        if not (folder / "signing.pem").exists():
            _shell(folder, key[:1])
        for release in RELEASES.values():
            file = f"{release}.tar"
            if not (folder / f"{file}.dsse").exists():  # the signature is written last
                _shell(folder, [per_version[0].replace(SHOWN_FILE, file).replace("forky", release)])
    return folder


def version_of(file: Path) -> str:
    """Return the app version that installs this bundle."""
    command = [str(BIN / "gpuaas-slurm"), "bundle", "manifest", str(file)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return str(json.loads(printed)["version"])


def _blocks(page: str) -> list[list[str]]:
    """Return the commands that the page shows: those for the key, those for each version, and the deploy."""
    shown = re.findall(r"(?:^    .+\n)+", page, re.MULTILINE)
    blocks = [[line.strip() for line in block.splitlines()] for block in shown]
    assert [word in block[0] for word, block in zip(("genpkey", "bundle make", "deploy"), blocks, strict=True)] == [
        True
    ] * 3
    return blocks


def _run(cloud: Cloud, folder: Path, lines: list[str]) -> None:
    _shell(folder, lines, cloud.environment())


def _shell(folder: Path, lines: list[str], environment: dict[str, str] | None = None) -> None:
    known = environment or {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    script = "\n".join(["set -e", *lines])
    done = subprocess.run(["bash", "-c", script], cwd=folder, env=known, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"{script}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
