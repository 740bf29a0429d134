"""The offline apt repository: packages and their dependencies, fetched and verified once by the host's apt.

Called by `lab.py`. A repository is one flat folder; machines see a folder with hard links to its files.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from gpuaas_lab import apt_sources, errors, host, image, plan, shell


def ensure(state: Path, image_key: str, packages: Sequence[str]) -> str:
    """Fetch the packages unless they were fetched before; return the repository's key."""
    name = plan.recipe_key(image_key, *packages)
    if path(state, name).exists():
        return name
    with image.locked(state):
        if not path(state, name).exists():
            _build(state, name, image_key, packages)
    return name


def path(state: Path, name: str) -> Path:
    return state / "repos" / name


def publish(source: Path | None, shown: Path) -> None:
    """Replace the packages in the folder `shown` by those of `source`. Running machines have `shown` mounted."""
    shown.mkdir(parents=True, exist_ok=True)
    wanted = {entry.name: entry for entry in source.glob("*.deb")} if source else {}
    for name, entry in wanted.items():
        if not (shown / name).exists():
            os.link(entry, shown / name)
    index = (source / "Packages").read_text() if source else ""
    if not (shown / "Packages").exists() or (shown / "Packages").read_text() != index:
        shell.write_atomically(shown / "Packages", index)
    for entry in shown.glob("*.deb"):
        if entry.name not in wanted:
            entry.unlink()


def _build(state: Path, name: str, image_key: str, packages: Sequence[str]) -> None:
    draft = state / "repos" / f"building-{name}"
    for stale in (state / "repos").glob("building-*"):
        if stale != draft:
            host.remove_tree(stale)
    archives = draft / "cache/archives"
    for folder in (archives, draft / "lists"):
        # The folders may contain files of an interrupted run, which apt uses.
        (folder / "partial").mkdir(parents=True, exist_ok=True)
    shell.progress(f"fetching {len(packages)} packages and their dependencies for the offline repository")
    _download(draft, image.path(state, image_key), packages)
    complete = draft / "whole"
    host.remove_tree(complete)
    complete.mkdir()
    debs = sorted(archives.glob("*.deb"))
    for deb in debs:
        # apt writes the colon of a version as %3a in file names, which the index would have to escape again.
        os.link(deb, complete / deb.name.replace("%3a", "_"))
    (complete / "Packages").write_text("".join(_index_entry(deb) for deb in sorted(complete.glob("*.deb"))))
    complete.rename(path(state, name))
    host.remove_tree(draft)
    shell.progress(f"offline repository ready: {len(debs)} packages")


def _download(draft: Path, root: Path, packages: Sequence[str]) -> None:
    sources = host.lab_sources() or image.sources(root)
    (draft / "sources.list").write_text("".join(f"{source.line()}\n" for source in sources))
    apt_get = [*shell.KILLED_WITH_PARENT, "apt-get", "-q", *_apt_settings(draft, root)]
    shell.run_with_progress([*apt_get, "update"], shown=r"(Get:.+)")
    try:
        fetch = ["--yes", "--no-install-recommends", "--download-only", "install", *packages]
        shell.run_with_progress([*apt_get, *fetch], shown=r"(Get:.+)")
    except errors.CommandFailed as failure:
        raise errors.LabError(
            f"could not fetch packages for Debian {apt_sources.SUITE}: {failure}", "check the names in the package list"
        ) from failure


def _apt_settings(draft: Path, root: Path) -> list[str]:
    """Return options with which apt of the host, with its proxies and keys, resolves packages for the image."""
    settings = {
        "Dir::State::status": root / "var/lib/dpkg/status",
        "Dir::State::extended_states": draft / "extended_states",
        "Dir::State::lists": draft / "lists",
        "Dir::Cache": draft / "cache",
        "Dir::Cache::archives": draft / "cache/archives",
        "Dir::Etc::sourcelist": draft / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferences": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "APT::Architectures": shell.run(["dpkg", "--print-architecture"]).strip(),
        # The user that apt downloads with cannot enter this folder, which only root may enter.
        "APT::Sandbox::User": "root",
    }
    return [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]


def _index_entry(deb: Path) -> str:
    digest = hashlib.sha256(deb.read_bytes()).hexdigest()
    control = shell.run(["dpkg-deb", "--field", str(deb)]).rstrip("\n")
    return f"{control}\nFilename: ./{deb.name}\nSize: {deb.stat().st_size}\nSHA256: {digest}\n\n"
