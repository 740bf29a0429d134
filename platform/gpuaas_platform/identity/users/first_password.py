"""The first admin's password in a file, for a server whose output goes to a log. The first sign-in deletes the file."""

from pathlib import Path

from gpuaas_platform.kit import keys

ADMIN = "admin"
"""Name of the first admin."""


def write(data_dir: Path, password: str) -> Path:
    path = _path(data_dir)
    keys.write_private(path, f"{password}\n".encode())
    return path


def forget(data_dir: Path) -> None:
    _path(data_dir).unlink(missing_ok=True)


def _path(data_dir: Path) -> Path:
    return data_dir / "first-admin-password"
