"""Servers of the release before run on a database that a newer server has migrated, until they are upgraded too."""

import re
import shutil
import subprocess
from pathlib import Path

import httpx
from gpuaas_platform.kit import migrate
from releases import THIS, Release
from server_process import Cloud, ServerProcess

ADDS = re.compile(
    r"CREATE TABLE|CREATE (UNIQUE )?INDEX|INSERT INTO|UPDATE"
    r"|ALTER TABLE \w+ ADD COLUMN (?!.*\bNOT NULL\b)"
    r"|ALTER TABLE \w+ ADD COLUMN .*\bDEFAULT\b",
    re.DOTALL,
)
COMMENT = re.compile(r"--[^\n]*\n")
TRY_AGAIN = 75


def next_release(folder: Path, migration: str) -> Release:
    """This release with one more migration."""
    shutil.copytree(THIS.root / "platform" / "gpuaas_platform", folder / "platform" / "gpuaas_platform")
    (folder / "platform" / "gpuaas_platform" / "migrations" / "9999_next.sql").write_text(migration)
    return Release("next", folder, str(folder / "bytecode"))


async def changed_through(server: ServerProcess, cloud: Cloud) -> list[str]:
    """Make a change through this server. Return the correlation ids of all such changes that it reads."""
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        same = Cloud(http, cloud.token, cloud.project_id)
        await same.make_event()
        return [event.correlation_id for event in await same.recorded() if event.correlation_id.startswith("made-")]


def refused(server: ServerProcess) -> tuple[int, str]:
    """Return the exit code and the message of a server that does not start."""
    done = subprocess.run(server.command(), capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


async def test_a_running_server_continues_when_a_newer_one_adds_to_the_database_and_is_refused_once_stopped(
    postgres_url: str, tmp_path: Path
) -> None:
    newer = next_release(tmp_path / "next", "CREATE TABLE future (number INTEGER PRIMARY KEY);")
    server = ServerProcess(tmp_path / "data", postgres_url)
    password = server.admin_password()
    with server, ServerProcess(tmp_path / "data", postgres_url, program=newer.platform) as upgraded:
        async with httpx.AsyncClient(base_url=upgraded.url, timeout=60) as http:
            cloud = Cloud(http)
            await cloud.sign_in(password)
            await cloud.make_project()
        for count, used in enumerate((server, upgraded, server, upgraded), 1):
            assert len(await changed_through(used, cloud)) == count
        server.stop()
        code, message = refused(server)
        assert (code, "a newer release changed the database (migration 9999" in message) == (2, True)
        assert len(await changed_through(upgraded, cloud)) == 5


def test_a_migration_that_older_servers_cannot_run_on_waits_until_they_are_stopped(
    postgres_url: str, tmp_path: Path
) -> None:
    alone = "-- alone: servers before it do not fill this table.\nCREATE TABLE future (number INTEGER PRIMARY KEY);"
    newer = next_release(tmp_path / "next", alone)
    upgraded = ServerProcess(tmp_path / "data", postgres_url, program=newer.platform)
    with ServerProcess(tmp_path / "data", postgres_url) as server:
        code, message = refused(upgraded)
        assert (code, "migration 9999 is not applied while others use the database" in message) == (TRY_AGAIN, True)
        assert httpx.get(f"{server.url}/readyz", timeout=60).status_code == 200
    with upgraded:
        assert httpx.get(f"{upgraded.url}/readyz", timeout=60).status_code == 200


def test_migrations_since_the_release_before_only_add_or_are_applied_alone(previous: Release) -> None:
    files = (previous.root / "platform" / "gpuaas_platform" / "migrations").glob("0*.sql")
    before = {int(file.name[:4]) for file in files} | _alone()
    assert before - _alone()
    added = [(number, statements) for number, statements in migrate.files("postgres") if number not in before]
    without_comments = [(number, COMMENT.sub("", text).strip()) for number, texts in added for text in texts]
    assert [(number, text) for number, text in without_comments if not ADDS.match(text)] == []


def _alone() -> set[int]:
    return migrate.alone(number for number, _ in migrate.files("postgres"))
