"""The store on both engines: groups, savepoints, dry runs, migrations, and what survives a kill."""

import asyncio
import contextlib
import functools
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest
from gpuaas_contract import identity
from gpuaas_platform import server
from gpuaas_platform.call import Site
from gpuaas_platform.kit import db, groups, migrate, sqlite
from gpuaas_platform.kit.settings import Settings
from platform_world import World

_INSERT = "INSERT INTO access_bundles (instance_id, document) VALUES ($1, '')"


async def test_a_writer_that_fails_does_not_fail_the_others(site: Site) -> None:
    async def good(name: str, tx: db.Tx) -> None:
        await tx.run(_INSERT, name)

    async def bad(tx: db.Tx) -> None:
        await tx.run(_INSERT, "half")
        raise ValueError("no")

    writes = [site.database.write(functools.partial(good, name)) for name in "abc"]
    results = await asyncio.gather(*writes, site.database.write(bad), return_exceptions=True)
    assert [type(result) for result in results] == [type(None)] * 3 + [ValueError]
    assert await _names(site) == ["a", "b", "c"]


async def test_a_writer_that_fails_alone_leaves_no_trace_and_the_next_one_runs(site: Site) -> None:
    async def bad(tx: db.Tx) -> None:
        await tx.run(_INSERT, "half")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await site.database.write(bad)
    await site.database.write(functools.partial(_add, "whole"))
    assert await _names(site) == ["whole"]


async def test_what_a_writer_reports_as_done_is_stored_even_if_it_ignored_a_failed_statement(site: Site) -> None:
    async def ignores(tx: db.Tx) -> None:
        await tx.run(_INSERT, "a")
        with contextlib.suppress(db.Duplicate):
            await tx.run(_INSERT, "a")

    try:
        await site.database.write(ignores)
        is_done = True
    except RuntimeError:
        is_done = False
    assert await _names(site) == (["a"] if is_done else [])
    await site.database.write(functools.partial(_add, "b"))


async def test_a_use_case_sees_what_earlier_ones_in_its_group_did(site: Site) -> None:
    async def count_and_add(tx: db.Tx) -> int:
        row = await tx.one("SELECT count(*) FROM access_bundles")
        assert row is not None
        await tx.run(_INSERT, str(row[0]))
        return int(row[0])

    assert await asyncio.gather(*(site.database.write(count_and_add) for _ in range(20))) == list(range(20))


async def test_a_write_that_is_not_kept_leaves_no_trace_and_wakes_no_listener(site: Site) -> None:
    async def use_case(tx: db.Tx) -> str:
        await tx.run(_INSERT, "gone")
        tx.wake("topic")
        return "result"

    with site.hub.listen("topic") as listener:
        assert await site.database.write(use_case, keep=False) == "result"
        assert not await listener.wait(0)
        await site.database.write(use_case)
        assert await listener.wait(0)
    assert await _names(site) == ["gone"]


async def test_migrations_run_twice_change_nothing(site: Site, settings: Settings) -> None:
    if settings.database_url:
        await migrate.migrate_postgres(settings.database_url)
    else:
        migrate.migrate_sqlite(settings.data_dir / "gpuaas.sqlite")
    rows = await site.database.reader.all("SELECT number FROM migrations ORDER BY number")
    assert [row[0] for row in rows] == [number for number, _ in migrate.files("sqlite")]


async def test_on_the_embedded_store_a_use_case_that_awaits_something_else_is_refused(tmp_path: Path) -> None:
    async def lazy(tx: db.Tx) -> None:
        await asyncio.sleep(0)

    async with server.open_site(Settings(data_dir=tmp_path)) as site:
        with pytest.raises(RuntimeError, match="other than its transaction"):
            await site.database.write(lazy)


async def test_on_the_embedded_store_a_writer_that_waits_for_another_process_does_not_block_readers(
    tmp_path: Path,
) -> None:
    async with server.open_site(Settings(data_dir=tmp_path)) as site:
        other = sqlite3.connect(tmp_path / "gpuaas.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        writing = asyncio.create_task(site.database.write(functools.partial(_add, "late")))
        for _ in range(10):
            assert await _names(site) == []
            await asyncio.sleep(0)
        assert not writing.done()
        other.execute("COMMIT")
        await writing
        other.close()
        assert await _names(site) == ["late"]


async def test_what_waits_when_the_store_closes_is_still_written(settings: Settings) -> None:
    async with server.open_site(settings) as site:
        writes = [asyncio.create_task(site.database.write(functools.partial(_add, str(n)))) for n in range(200)]
        await asyncio.sleep(0)
    await asyncio.gather(*writes)
    async with server.open_site(settings) as site:
        assert len(await _names(site)) == 200


async def test_on_the_embedded_store_a_full_disk_is_reported_and_writes_succeed_when_there_is_room(
    tmp_path: Path,
) -> None:
    async def add_much(tx: db.Tx) -> None:
        await tx.run("INSERT INTO access_bundles (instance_id, document) VALUES ('much', $1)", "x" * 1_000_000)

    async with server.open_site(Settings(data_dir=tmp_path)) as site:
        assert isinstance(site.database, sqlite.SqliteDatabase)
        pages = "PRAGMA max_page_count={}".format
        (room,) = site.database._write_connection.execute(pages(1)).fetchone()
        with pytest.raises(db.Unavailable, match="full") as full:
            await site.database.write(add_much)
        assert full.value.reason == "disk_full"
        site.database._write_connection.execute(pages(room + 1000))
        await site.database.write(add_much)
        assert await _names(site) == ["much"]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_write_to_the_embedded_store_needs_no_new_descriptor(world: World) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    last = os.dup(0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (last + 1, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            os.dup(0)
        await world.call(identity.ORG_CREATE, {"name": "second"})
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        os.close(last)


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
@pytest.mark.parametrize(
    ("sqlstate", "reason"), [("53100", "disk_full"), ("58030", "disk_failed"), ("25006", "read_only")]
)
async def test_an_error_of_the_disk_of_postgres_means_that_the_store_is_unavailable(
    site: Site, sqlstate: str, reason: str
) -> None:
    async def fails(tx: db.Tx) -> None:
        await tx.run(f"DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{sqlstate}'; END $$")

    with pytest.raises(db.Unavailable) as failed:
        await site.database.write(fails)
    assert failed.value.reason == reason


async def test_a_wrong_statement_is_not_reported_as_an_unavailable_store(site: Site) -> None:
    with pytest.raises((sqlite3.OperationalError, asyncpg.UndefinedTableError)):
        await site.database.reader.one("SELECT 1 FROM nowhere")


async def test_more_writers_than_fit_one_group_are_all_answered_in_order(site: Site) -> None:
    sizes: list[int] = []
    site.database.on_group = lambda size, _: sizes.append(size)
    names = [f"{number:03}" for number in range(3 * groups.GROUP_MAX + 1)]
    await asyncio.gather(*(site.database.write(functools.partial(_add, name)) for name in names))
    assert max(sizes) <= groups.GROUP_MAX
    assert sum(sizes) == len(names)
    assert await _names(site) == names


async def test_a_group_that_fails_is_answered_and_the_next_one_runs(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(_: object) -> None:
        raise db.Unavailable("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(site.database, "_run_group", fails)
        with pytest.raises(db.Unavailable, match="disk full"):
            await site.database.write(functools.partial(_add, "a"))
    await site.database.write(functools.partial(_add, "b"))
    assert await _names(site) == ["b"]


async def test_the_version_changes_with_every_commit_of_any_process(settings: Settings) -> None:
    """Only SQLite has a version; it is read once per turn of the event loop."""
    async with server.open_site(settings) as here, server.open_site(settings) as there:
        seen = [here.database.version()]
        for number, writer in enumerate((here, there, here)):
            await writer.database.write(functools.partial(_add, str(number)))
            seen.append(here.database.version())
        assert len(set(seen)) == (1 if settings.database_url else 4)


_WRITER = """
import asyncio, sys
from pathlib import Path
from gpuaas_platform import server
from gpuaas_platform.kit.settings import Settings

async def main():
    async with server.open_site(Settings(data_dir=Path(sys.argv[1]), database_url=sys.argv[2])) as site:
        async def write(number):
            async def use_case(tx):
                await tx.run("INSERT INTO access_bundles (instance_id, document) VALUES ($1, '')", str(number))
            await site.database.write(use_case)
            sys.stdout.write(f"{number}\\n")
            sys.stdout.flush()
        for start in range(0, 1_000_000, 16):
            await asyncio.gather(*(write(start + offset) for offset in range(16)))

asyncio.run(main())
"""


async def test_an_answered_write_survives_kill_9(settings: Settings) -> None:
    command = [sys.executable, "-c", _WRITER, str(settings.data_dir), settings.database_url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: ASYNC220 - nothing else runs
        assert process.stdout is not None
        answered = [process.stdout.readline().strip() for _ in range(500)]
        os.kill(process.pid, signal.SIGKILL)
        answered += [line.strip() for line in process.stdout if line.endswith("\n")]
    async with server.open_site(settings) as site:
        assert set(answered) <= set(await _names(site))


async def _add(name: str, tx: db.Tx) -> None:
    await tx.run(_INSERT, name)


async def _names(site: Site) -> list[str]:
    rows = await site.database.reader.all("SELECT instance_id FROM access_bundles ORDER BY instance_id")
    return [row[0] for row in rows]
