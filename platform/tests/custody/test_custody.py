"""Custody on both engines: values are encrypted, moved rows do not open, a rotation may die at any step."""

import asyncio
import contextlib
import stat
from pathlib import Path
from typing import Any

import platform_command
import pytest
from gpuaas_platform import main
from gpuaas_platform.call import Site
from gpuaas_platform.custody import envelope
from gpuaas_platform.custody import port as custody
from gpuaas_platform.custody.embedded import EmbeddedCustody
from gpuaas_platform.custody.key_files import PLAIN as FILE
from gpuaas_platform.custody.key_files import KeyRing, PlainFile
from gpuaas_platform.kit import db
from gpuaas_platform.kit.settings import Settings

VALUES = {"sec_one": b"first", "sec_two": b"\x00\xff binary", "sec_three": b"x" * 10_000}


@pytest.fixture
async def kept(site: Site) -> EmbeddedCustody:
    custody_with_values = _open_again(site)
    for ref, value in VALUES.items():
        assert await custody_with_values.put(ref, value) == 1
    return custody_with_values


def _open_again(site: Site) -> EmbeddedCustody:
    """Open custody like a process that has just started. A batch of one makes every row a step of its own."""
    return EmbeddedCustody(site.database, _ring(site.settings.data_dir), batch=1)


def _ring(folder: Path) -> KeyRing:
    return KeyRing(PlainFile(folder / FILE))


async def test_a_value_can_be_read_back_in_another_process_too(site: Site, kept: EmbeddedCustody) -> None:
    for reader in (kept, _open_again(site)):
        assert {ref: await reader.get(ref, 1) for ref in VALUES} == VALUES


async def test_each_put_makes_a_version_and_a_delete_removes_all_of_them(kept: EmbeddedCustody) -> None:
    assert await kept.put("sec_one", b"second") == 2
    assert (await kept.get("sec_one", 1), await kept.get("sec_one", 2)) == (b"first", b"second")
    for _ in range(2):
        await kept.delete("sec_one")
    with pytest.raises(custody.SecretMissing):
        await kept.get("sec_one", 2)


async def test_puts_that_race_for_one_ref_get_versions_of_their_own(kept: EmbeddedCustody) -> None:
    versions = await asyncio.gather(*(kept.put("sec_race", str(number).encode()) for number in range(20)))
    assert sorted(versions) == list(range(1, 21))
    assert [await kept.get("sec_race", version) for version in versions] == [str(n).encode() for n in range(20)]


async def test_the_key_is_a_private_file_outside_the_database(site: Site, kept: EmbeddedCustody) -> None:
    path = site.settings.data_dir / FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    rows = await site.database.reader.all("SELECT ref, key_id, wrapped_key, ciphertext FROM custody")
    assert {row["key_id"] for row in rows} == set(_ring(site.settings.data_dir).key_ids())
    assert len({row["wrapped_key"] for row in rows}) == len(VALUES)


@pytest.mark.parametrize("column", ["ref", "version", "key_id", "wrapped_key", "ciphertext"])
async def test_a_row_that_was_tampered_with_does_not_open(site: Site, kept: EmbeddedCustody, column: str) -> None:
    await kept.put("sec_one", b"second")
    moved = {
        "ref": "UPDATE custody SET ref = 'sec_four' WHERE ref = 'sec_one' AND version = 1",
        "version": "UPDATE custody SET version = 7 WHERE ref = 'sec_one' AND version = 1",
        "key_id": "UPDATE custody SET key_id = 'kek_other' WHERE ref = 'sec_one' AND version = 1",
        "wrapped_key": """UPDATE custody SET wrapped_key = (SELECT wrapped_key FROM custody WHERE ref = 'sec_two')
                          WHERE ref = 'sec_one' AND version = 1""",
        "ciphertext": """UPDATE custody SET ciphertext = (SELECT ciphertext FROM custody WHERE ref = 'sec_one'
                         AND version = 2) WHERE ref = 'sec_one' AND version = 1""",
    }
    await site.database.write(lambda tx: tx.run(moved[column]))
    ref, version = ("sec_four", 1) if column == "ref" else ("sec_one", 7 if column == "version" else 1)
    with pytest.raises(custody.Unreadable):
        await kept.get(ref, version)


async def test_a_lost_key_file_is_reported_and_never_replaced_by_a_new_key(site: Site, kept: EmbeddedCustody) -> None:
    path = site.settings.data_dir / FILE
    path.rename(path.with_suffix(".lost"))
    restarted = _open_again(site)
    with pytest.raises(custody.Unreadable, match="put the file back"):
        await restarted.get("sec_one", 1)
    with pytest.raises(custody.Unreadable, match="put the file back"):
        await restarted.put("sec_new", b"value")
    assert not path.exists()
    path.with_suffix(".lost").rename(path)
    assert await restarted.get("sec_one", 1) == b"first"


def test_of_two_processes_that_make_the_first_key_both_get_the_same(tmp_path: Path) -> None:
    rings = [_ring(tmp_path) for _ in range(2)]
    rings[0].file.create({"kek_a": envelope.new_key()})
    rings[1].file.create({"kek_b": envelope.new_key()})
    assert [ring.first() for ring in rings] == ["kek_a", "kek_a"]
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


async def test_after_a_rotation_the_old_key_opens_nothing_and_every_value_is_there(
    site: Site, kept: EmbeddedCustody
) -> None:
    path = site.settings.data_dir / FILE
    old = path.read_bytes()
    steps = [step async for step in kept.rotate()]
    assert len(steps) == len(VALUES) + 3
    for reader in (kept, _open_again(site)):
        assert {ref: await reader.get(ref, 1) for ref in VALUES} == VALUES
    path.write_bytes(old)
    with pytest.raises(custody.Unreadable):
        await _open_again(site).get("sec_one", 1)


@pytest.mark.parametrize("steps", range(len(VALUES) + 4))
async def test_a_rotation_that_dies_after_any_step_loses_nothing_and_can_be_done_again(
    site: Site, kept: EmbeddedCustody, steps: int
) -> None:
    await _rotate_and_die(kept, steps)
    restarted = _open_again(site)
    assert {ref: await restarted.get(ref, 1) for ref in VALUES} == VALUES
    await restarted.put("sec_between", b"put between two rotations")
    async for _ in restarted.rotate():
        assert await restarted.get("sec_between", 1) == b"put between two rotations"
    again = _open_again(site)
    assert {ref: await again.get(ref, 1) for ref in VALUES} == VALUES
    assert len(_ring(site.settings.data_dir).key_ids()) == 1


async def test_a_process_that_did_not_rotate_continues_with_the_new_key(site: Site, kept: EmbeddedCustody) -> None:
    other = _open_again(site)
    assert await other.get("sec_one", 1) == b"first"
    async for _ in kept.rotate():
        await other.put("sec_other", b"value")
        assert await other.get("sec_one", 1) == b"first"
    assert await kept.get("sec_other", 1) == b"value"
    rows = await site.database.reader.all("SELECT DISTINCT key_id FROM custody")
    assert [row[0] for row in rows] == _ring(site.settings.data_dir).key_ids()


async def test_a_row_that_was_read_just_before_its_rotation_ended_is_read_again(
    site: Site, kept: EmbeddedCustody, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_row = site.database.reader.one

    async def read_row_and_rotate(sql: str, *values: Any) -> db.Row | None:
        row = await read_row(sql, *values)
        monkeypatch.undo()
        async for _ in kept.rotate():
            pass
        return row

    monkeypatch.setattr(site.database.reader, "one", read_row_and_rotate)
    assert await _open_again(site).get("sec_one", 1) == b"first"


async def test_two_rotations_do_not_run_at_once(site: Site, kept: EmbeddedCustody) -> None:
    first = kept.rotate()
    await anext(first)
    with pytest.raises(custody.Unavailable, match="another rotation"):
        await anext(_open_again(site).rotate())
    async for _ in first:
        pass
    assert await kept.get("sec_one", 1) == b"first"


async def _rotate_and_die(embedded: EmbeddedCustody, steps: int) -> None:
    rotation = embedded.rotate()
    with contextlib.suppress(StopAsyncIteration):
        for _ in range(steps):
            await anext(rotation)
    await rotation.aclose()


async def test_the_command_rotates_beside_a_running_server(
    site: Site, kept: EmbeddedCustody, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _ring(site.settings.data_dir).key_ids()
    arguments = ["--data", str(site.settings.data_dir), "--database", site.settings.database_url]
    monkeypatch.setattr("sys.argv", ["gpuaas-platform", "custody", "rotate", *arguments])
    with pytest.raises(SystemExit) as ended:
        await asyncio.to_thread(main.main)
    assert ended.value.code == 0
    (present,) = _ring(site.settings.data_dir).key_ids()
    assert present not in before
    assert capsys.readouterr().out.splitlines()[-1] == f"key {present} is the only one in the file"
    assert {ref: await kept.get(ref, 1) for ref in VALUES} == VALUES


@pytest.mark.parametrize("words", [["custody", "status"], ["custody", "rotate"], ["unseal"]], ids=" ".join)
async def test_a_mistyped_data_folder_is_named_and_not_created(tmp_path: Path, words: list[str]) -> None:
    absent = Settings(data_dir=tmp_path / "absent")
    result = await platform_command.run(*words, on=absent)
    assert (result.returncode, f"there is no platform in {absent.data_dir}" in result.stderr) == (2, True), result.text
    assert not absent.data_dir.exists()


@pytest.mark.parametrize("address", ["http://127.0.0.1:99999", "nowhere", "http://10.0.0.5:7070", "https://:7443"])
async def test_the_passphrase_is_sent_only_to_an_address_that_protects_it(site: Site, address: str) -> None:
    result = await platform_command.run("unseal", "--server", address, on=site.settings)
    assert (result.returncode, "--server takes an https URL" in result.stderr) == (2, True), result.text
