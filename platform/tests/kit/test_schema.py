"""Migrations and the schema they make: golden on both engines, split properly, refused if newer, names unique."""

import re
import sqlite3
from pathlib import Path

import asyncpg
import msgspec
import old_store
import pytest
from gpuaas_contract import capacity, errors
from gpuaas_platform import main, server
from gpuaas_platform.call import Site
from gpuaas_platform.commands import schema as schema_command
from gpuaas_platform.instances import store as instances_store
from gpuaas_platform.kit import db, keys, migrate
from gpuaas_platform.kit.settings import Settings
from platform_world import World

PACKAGE = Path(server.__file__).parent
WRITES = r"(?:INSERT INTO|UPDATE|DELETE FROM) {0}\b|\bTable\(\s*\"{0}\""
NEWER = "INSERT INTO migrations (number) VALUES (9999)"


async def test_all_migrations_together_make_the_golden_schema(settings: Settings) -> None:
    if settings.database_url:
        made, golden = await schema_command.postgres_schema(settings.database_url), schema_command.golden("postgres")
    else:
        made, golden = schema_command.sqlite_schema(), schema_command.golden("sqlite")
    assert made == golden.read_text(), "renew it: python -m gpuaas_platform.commands.schema --write [--database URL]"


OWNERS = [(name, table["owner"]) for name, table in schema_command.descriptions().items()]


@pytest.mark.parametrize(("table", "owner"), OWNERS)
def test_only_its_owner_writes_a_table(table: str, owner: str) -> None:
    statement = re.compile(WRITES.format(table))
    writers = {
        path.relative_to(PACKAGE).parts[0] for path in PACKAGE.rglob("*.py") if statement.search(path.read_text())
    }
    assert writers <= {owner}


def test_a_script_is_split_at_the_ends_of_statements_only() -> None:
    script = """
    -- one; two
    INSERT INTO words VALUES ('a;b', "c;d"); UPDATE words SET word = 'it''s; fine' -- a comment;
    WHERE word = 'a;b';
    DELETE FROM words
    -- the end;
    """
    statements = migrate.statements_of(script)
    assert [statement.split("\n")[-1].split()[0] for statement in statements] == ["INSERT", "WHERE", "--"]
    assert statements[0].endswith("""VALUES ('a;b', "c;d");""")


def test_a_comment_alone_is_no_statement() -> None:
    assert migrate.statements_of("-- nothing; here\n;\n") == []


def test_two_migrations_with_the_same_number_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "migrations").mkdir()
    for name in ("0001_first.sql", "0001_second.sql"):
        (tmp_path / "migrations" / name).write_text("SELECT 1;")
    monkeypatch.setattr("gpuaas_platform.kit.migrate.resources.files", lambda _: tmp_path)
    with pytest.raises(ValueError, match="two migrations have the number 1"):
        list(migrate.files("sqlite"))


async def test_the_columns_of_nodes_are_filled_from_their_documents(settings: Settings) -> None:
    document = '{"allocation_id":"alloc_1","facts":{"gpus":[{},{}],"cpus":8,"memory_mb":2000}}'
    row = f"""INSERT INTO nodes (node_id, name, status, admin_state, region, sku, last_seen_at, document)
              VALUES ('node_1', 'n1', 'ready', 'active', 'eu', 'big', 0, '{document}')"""
    settings.data_dir.mkdir()
    await old_store.schema_before(26, settings.sqlite_path, settings.database_url, row)
    async with server.open_site(settings) as site:
        columns = await site.database.reader.one("SELECT allocation_id, gpus, cpus, memory_mb FROM nodes")
    assert columns is not None
    assert [columns[position] for position in range(4)] == ["alloc_1", 2, 8, 2000]


async def make_newer(settings: Settings) -> None:
    """A database that a later release has migrated."""
    async with server.open_site(settings):
        pass
    if settings.database_url:
        connection = await asyncpg.connect(settings.database_url)
        await connection.execute(NEWER)
        await connection.close()
        return
    store = sqlite3.connect(settings.sqlite_path)
    with store:
        store.execute(NEWER)
    store.close()


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


async def test_a_newer_database_is_refused_before_anything_is_changed(settings: Settings) -> None:
    await make_newer(settings)
    for key in (settings.data_dir / "keys").iterdir():
        key.unlink()
    before = content(settings.data_dir)
    with pytest.raises(server.CannotStart, match="a newer release changed the database") as refused:
        async with server.open_site(settings):
            pass
    assert "newer release of gpuaas-platform" in refused.value.fix
    assert content(settings.data_dir) == before


@pytest.mark.parametrize("command", ["audit verify", "audit head", "custody status", "custody rotate", "custody seal"])
def test_commands_refuse_a_newer_database_too(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "gpuaas.sqlite"
    migrate.migrate_sqlite(path)
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / keys.AUDIT_FILE).write_bytes(b"key")
    store = sqlite3.connect(path)
    with store:
        store.execute(NEWER)
    store.close()
    before = content(tmp_path)
    monkeypatch.setattr("sys.argv", ["gpuaas-platform", *command.split(), "--data", str(tmp_path), "--database", ""])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 2
    assert "a newer release changed the database" in capsys.readouterr().err
    assert content(tmp_path) == before


async def test_the_store_refuses_a_second_live_instance_of_the_same_name(world: World) -> None:
    await world.entitled_app()
    deployed = await world.deploy("one")
    second = msgspec.structs.replace(deployed.instance, instance_id="inst_second")
    with pytest.raises(db.Duplicate) as refused:
        await world.site.database.write(lambda tx: instances_store.INSTANCES.insert(tx, second))
    assert isinstance(refused.value, errors.Conflict)


async def test_after_a_duplicate_the_other_writers_of_the_group_are_kept(site: Site) -> None:
    async def add(tx: db.Tx) -> None:
        await tx.run("INSERT INTO access_bundles (instance_id, document) VALUES ('one', '')")

    await site.database.write(add)
    with pytest.raises(db.Duplicate):
        await site.database.write(add)
    await site.database.write(lambda tx: tx.run("DELETE FROM access_bundles"))


async def test_a_retired_node_gives_its_name_back(world: World) -> None:
    node = await world.node("n1")
    await world.call(capacity.NODE_RETIRE, {"reason": "sold"}, node_id=node.node_id)
    assert (await world.node("n1")).node_id != node.node_id
