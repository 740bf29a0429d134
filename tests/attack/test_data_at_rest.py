"""Attack 14, on the files of a server: read them as another user of the machine, remove the file with the last changes,
look for the first password in the log, verify a copy that is read-only."""

import asyncio
import contextlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from gpuaas_platform import server
from gpuaas_platform.kit import sqlite
from gpuaas_platform.kit.settings import Settings
from server_process import Cloud, ServerProcess

PLATFORM = [sys.executable, "-m", "gpuaas_platform.main"]
NO_ONE = 65534


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*PLATFORM, *arguments], capture_output=True, text=True, timeout=120, check=False)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_a_data_folder_that_others_could_read_is_closed_when_it_is_opened(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "data")
    async with server.open_site(settings):
        pass
    settings.data_dir.chmod(0o755)
    settings.sqlite_path.chmod(0o644)
    async with server.open_site(settings):
        files = [settings.sqlite_path, *settings.data_dir.glob("gpuaas.sqlite-*")]
        assert (mode(settings.data_dir), {mode(file) for file in files}) == (0o700, {0o600})
        assert len(files) == 3


def test_an_open_folder_with_files_of_something_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    (folder / "letters.txt").write_text("mine")
    ended = run("server", "--data", str(folder), "--listen", "127.0.0.1:0")
    assert (ended.returncode, "chmod 700" in ended.stderr, "Traceback" in ended.stderr) == (2, True, False)
    assert (mode(folder), os.listdir(folder)) == (0o755, ["letters.txt"])


def test_a_database_without_its_last_changes_does_not_start_until_an_operator_accepts_the_loss(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ServerProcess(data) as process:
        asyncio.run(make_rows(process.url, process.admin_password()))
        assert run("audit", "head", "--data", str(data)).returncode == 0
        process.kill()
        assert (data / "gpuaas.sqlite-wal").stat().st_size > 0
        for name in ("gpuaas.sqlite-wal", "gpuaas.sqlite-shm"):
            (data / name).unlink()
        refused = run("server", "--data", str(data), "--listen", "127.0.0.1:0")
        assert (refused.returncode, "Traceback" in refused.stderr) == (2, False)
        assert "the database is older than its signed heads (2 chains): row " in refused.stderr
        assert "--accept-data-loss" in refused.stderr
        with ServerProcess(data, options=["--accept-data-loss"]) as accepted:
            assert httpx.get(f"{accepted.url}/readyz").status_code == 200
            accepted.stop()
        process.start()
    (aside,) = [path for path in (data / "audit-heads").iterdir() if path.is_dir()]
    assert len(list(aside.glob("*.jsonl"))) == 2
    assert "all sound" in run("audit", "verify", "--data", str(data)).stdout


async def make_rows(url: str, password: str) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        cloud = Cloud(client)
        await cloud.sign_in(password)
        await cloud.make_project()


def test_the_first_password_is_in_no_log_but_in_a_private_file_until_the_first_sign_in(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ServerProcess(data) as process:
        file, log = data / "first-admin-password", (tmp_path / "data-server.log").read_text()
        assert (mode(file), str(file) in log, "gpuaas_admin_" in log) == (0o600, True, False)
        asyncio.run(make_rows(process.url, file.read_text().strip()))
        assert not file.exists()


@pytest.fixture
def as_no_one() -> Iterator[Path]:
    """A folder that the user of this process may read but not write: as root, of a user without rights."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        folder = Path(name) / "copy"
        yield folder
        folder.chmod(0o700)


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    for path in [*folder.rglob("*"), folder]:
        path.chmod(0o500 if path.is_dir() else 0o400)
        if os.geteuid() == 0:
            os.chown(path, NO_ONE, NO_ONE)
    user = os.geteuid()
    if user == 0:
        os.seteuid(NO_ONE)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("has_wal", [True, False], ids=["with its last changes", "after a clean stop"])
async def test_a_read_only_copy_of_a_database_can_be_read_completely(
    tmp_path: Path, as_no_one: Path, has_wal: bool
) -> None:
    settings = Settings(data_dir=tmp_path / "data")
    ignored = shutil.ignore_patterns("*-shm")
    async with server.open_site(settings) as site:
        await site.database.write(lambda tx: tx.run("DELETE FROM migrations WHERE number = 31"))
        if has_wal:
            shutil.copytree(settings.data_dir, as_no_one, ignore=ignored)
    if not has_wal:
        shutil.copytree(settings.data_dir, as_no_one, ignore=ignored)
    assert (as_no_one / "gpuaas.sqlite-wal").exists() == has_wal
    with read_only(as_no_one), sqlite.read_only(as_no_one / "gpuaas.sqlite") as connection:
        assert connection.execute("SELECT count(*) FROM migrations WHERE number >= 30").fetchone()[0] >= 1
        assert connection.execute("SELECT count(*) FROM migrations WHERE number = 31").fetchone()[0] == 0
