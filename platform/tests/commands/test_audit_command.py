"""`gpuaas-platform audit`, on both engines, beside an open platform: sound chains pass, forged ones are named."""

import asyncio
import contextlib
import io
import resource
import sys
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
import structlog
from gpuaas_platform import main, server
from gpuaas_platform.call import Owner, Site, system_origin
from gpuaas_platform.kit import db
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.record import chain, heads, service, trail, verify
from platform_world import FakeClock

ORG = "org_acme"
ROWS = 12


@dataclass(frozen=True)
class Result:
    returncode: int
    stdout: str
    stderr: str


Forge = Callable[[db.Tx], Awaitable[None]]


async def test_sound_chains_pass_beside_an_open_platform(site: Site) -> None:
    await _fill(site)
    result = await _audit(site.settings, "verify")
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{ORG}: ok, {ROWS} rows, last position {ROWS}, signed up to {ROWS}" in result.stdout
    assert "platform: ok, 1 rows" in result.stdout


async def _edit(tx: db.Tx) -> None:
    await _run(tx, "UPDATE audit SET document = replace(document, 'success', 'failure') WHERE chain = $1", 5)


async def _hide(tx: db.Tx) -> None:
    await _run(tx, "UPDATE audit SET actor_id = 'user_other' WHERE chain = $1", 5)


async def _delete(tx: db.Tx) -> None:
    await _run(tx, "DELETE FROM audit WHERE chain = $1", 5)


async def _swap(tx: db.Tx) -> None:
    for before, after in ((5, -1), (9, 5), (-1, 9)):
        await tx.run("UPDATE audit SET position = $3 WHERE chain = $1 AND position = $2", ORG, before, after)


async def _rewrite(tx: db.Tx) -> None:
    """Do what an attacker who can compute the hashes does: change one row, then every hash after it."""
    await _edit(tx)
    await _run(tx, "UPDATE audit SET result = 'failure' WHERE chain = $1", 5)
    rows = await tx.all("SELECT position, document FROM audit WHERE chain = $1 ORDER BY position", ORG)
    previous = chain.GENESIS
    for position, document in [(row[0], row[1]) for row in rows]:
        hash_ = chain.digest(ORG, position, previous, document.encode())
        await tx.run(
            "UPDATE audit SET previous_hash = $3, hash = $4 WHERE chain = $1 AND position = $2",
            ORG,
            position,
            previous,
            hash_,
        )
        previous = hash_


async def _truncate(tx: db.Tx) -> None:
    await tx.run("DELETE FROM audit WHERE chain = $1 AND position > 9", ORG)


async def _remove_chain(tx: db.Tx) -> None:
    await tx.run("DELETE FROM audit WHERE chain = $1", ORG)


@pytest.mark.parametrize(
    ("forge", "kind", "position"),
    [
        (_edit, "edited", 5),
        (_hide, "edited", 5),
        (_delete, "deleted", 5),
        (_swap, "reordered", 5),
        (_rewrite, "rewritten", 5),
        (_truncate, "truncated", 5),
        (_remove_chain, "truncated", 1),
    ],
)
async def test_what_was_done_to_the_rows_is_named_with_its_position(
    site: Site, forge: Forge, kind: str, position: int
) -> None:
    await _fill(site, head_at=4)
    await site.database.write(forge)
    result = await _audit(site.settings, "verify")
    assert (result.returncode, result.stderr) == (1, "")
    assert f"{kind} at position {position}:" in result.stdout, result.stdout
    assert "platform: ok" in result.stdout


async def test_bytes_that_are_no_text_in_the_embedded_store_are_an_edit_not_a_crash(tmp_path: Path) -> None:
    async with server.open_site(Settings(data_dir=tmp_path)) as site:
        for column in ("target", "document", "hash"):
            await _fill(site)

            async def spoil(tx: db.Tx, column: str = column) -> None:
                await tx.run(
                    f"UPDATE audit SET {column} = CAST(x'ff00' AS TEXT) WHERE chain = $1 AND position = 5", ORG
                )

            await site.database.write(spoil)
            result = await _audit(site.settings, "verify")
            assert (result.returncode, "edited at position 5:" in result.stdout) == (1, True), (
                result.stdout + result.stderr
            )


async def test_a_chain_that_lost_its_past_gets_no_new_head(site: Site) -> None:
    await _fill(site)
    await site.database.write(_truncate)
    await _add(site, 20)
    signed = heads.lines(heads.folder_in(site.settings.data_dir), ORG)
    await server.heads_signer(site).sweep()
    assert heads.lines(heads.folder_in(site.settings.data_dir), ORG) == signed
    result = await _audit(site.settings, "verify", "--org", ORG)
    assert (result.returncode, "rewritten at position" in result.stdout) == (1, True)


async def test_heads_kept_elsewhere_show_what_the_platforms_own_heads_no_longer_can(site: Site, tmp_path: Path) -> None:
    await _fill(site, head_at=4)
    kept = tmp_path / "kept.jsonl"
    kept.write_text((await _audit(site.settings, "head")).stdout)
    assert {msgspec.json.decode(line)["chain"] for line in kept.read_bytes().splitlines()} == {ORG, "platform"}
    assert (await _audit(site.settings, "verify", "--heads", str(kept))).returncode == 0
    await site.database.write(_truncate)
    own = heads.path_of(heads.folder_in(site.settings.data_dir), ORG)
    own.write_bytes(own.read_bytes().splitlines(keepends=True)[0])
    assert (await _audit(site.settings, "verify")).returncode == 0
    result = await _audit(site.settings, "verify", "--heads", str(kept))
    assert (result.returncode, "truncated at position 5:" in result.stdout) == (1, True)


@pytest.mark.parametrize("life", ["a row", "a head of another chain"])
async def test_a_chain_without_any_head_is_not_sound_if_the_platform_worked_long_after_its_first_row(
    site: Site, clock: FakeClock, life: str
) -> None:
    await _add(site, ROWS)
    await _add(site, 1, org_id="")
    clock.forward(verify.HEAD_DUE_S + 1)
    if life == "a row":
        await _add(site, 1, org_id="")
    else:
        await server.heads_signer(site).sweep()
        heads.path_of(heads.folder_in(site.settings.data_dir), ORG).unlink()
    result = await _audit(site.settings, "verify", "--org", ORG)
    assert (result.returncode, "head missing at position 1" in result.stdout) == (1, True)


async def test_a_chain_whose_server_was_killed_before_the_first_head_is_sound_at_any_later_time(site: Site) -> None:
    """The rows are of the clock of the test, which is months behind the clock of the command."""
    await _add(site, ROWS)
    result = await _audit(site.settings, "verify")
    assert (result.returncode, f"{ROWS} rows not signed yet" in result.stdout) == (0, True)


async def test_heads_that_cannot_be_written_are_reported_in_one_line_and_written_later(site: Site) -> None:
    """The limit on the size of files acts as a full disk does."""
    signer, folder = server.heads_signer(site), heads.folder_in(site.settings.data_dir)
    await _add(site, ROWS)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with structlog.testing.capture_logs() as lines:
            await signer.sweep()
        assert (await _audit(site.settings, "head")).returncode == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [line["event"] for line in lines] == ["audit.heads_not_written"]
    assert "exc_info" not in lines[0]
    await signer.sweep()
    signed, findings = chain.check_file(ORG, heads.lines(folder, ORG), site.keys.audit.public_key())
    assert ([head.position for head in signed], findings) == ([ROWS], [])


async def test_input_that_cannot_be_read_is_never_reported_as_sound(site: Site, tmp_path: Path) -> None:
    await _fill(site)
    assert (await _audit(Settings(data_dir=tmp_path / "absent"), "verify")).returncode == 2
    absent = Settings(site.settings.data_dir, database_url="postgresql://postgres@/absent?host=/nowhere")
    assert (await _audit(absent, "verify")).returncode == 2
    junk = tmp_path / "junk"
    junk.write_text("no head\n")
    assert (await _audit(site.settings, "verify", "--heads", str(junk))).returncode == 2


async def test_heads_are_private_grow_only_when_the_chain_moves_and_outlive_a_torn_write(site: Site) -> None:
    signer = server.heads_signer(site)
    folder = heads.folder_in(site.settings.data_dir)
    await _add(site, 2)
    for _ in range(3):
        await signer.sweep()
    path = heads.path_of(folder, ORG)
    assert (len(heads.lines(folder, ORG)), path.stat().st_mode & 0o777) == (1, 0o600)
    with path.open("ab") as file:
        file.write(b'{"chain":"org_acme","posi')
    await _add(site, 3)
    await signer.sweep()
    signed, findings = chain.check_file(ORG, heads.lines(folder, ORG), site.keys.audit.public_key())
    assert ([head.position for head in signed], findings) == ([2, 5], [])


async def test_two_signers_that_start_at_the_same_time_both_sign(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, looked = heads.folder_in(site.settings.data_dir), threading.Barrier(2, timeout=60)
    await _add(site, 2)
    make = Path.mkdir

    def make_together(path: Path, *args: Any, **options: Any) -> None:
        looked.wait()
        make(path, *args, **options)

    monkeypatch.setattr(Path, "mkdir", make_together)
    await asyncio.gather(*(server.heads_signer(site).sweep() for _ in range(2)))
    assert len(heads.lines(folder, ORG)) == 1


async def test_the_server_signs_when_it_starts_and_when_it_stops(site: Site) -> None:
    folder = heads.folder_in(site.settings.data_dir)
    await _add(site, 1)
    async with server.loops(site):
        async with asyncio.timeout(60):
            while not heads.lines(folder, ORG):  # noqa: ASYNC110 - a file wakes no task
                await asyncio.sleep(0.01)
        await _add(site, 1)
    last = heads.last_line(folder, ORG)
    assert last is not None
    assert msgspec.json.decode(last, type=chain.Head).position == 2


async def _fill(site: Site, head_at: int = 0) -> None:
    """Write rows in two chains, a head at `head_at` if it is given, and a head at the end."""
    signer = server.heads_signer(site)
    await _add(site, 1, org_id="")
    if head_at:
        await _add(site, head_at)
        await signer.sweep()
    await _add(site, ROWS - head_at)
    await signer.sweep()


async def _add(site: Site, count: int, org_id: str = ORG) -> None:
    async def use_case(tx: db.Tx) -> None:
        for number in range(count):
            origin = system_origin(site.clock())
            await service.audit(tx, origin, "apps.instance.create", f"inst_{number}", Owner(org_id))

    await site.database.write(use_case)
    assert (await trail.tip(site.database.reader, chain.name_of(org_id)))[0] >= count


async def _run(tx: db.Tx, sql: str, position: int) -> None:
    assert await tx.run(sql + " AND position = $2", ORG, position) == 1


async def _audit(settings: Settings, *arguments: str) -> Result:
    """Run the command in a thread, because it starts its own event loop."""
    command = ["gpuaas-platform", "audit", *arguments]
    command += ["--data", str(settings.data_dir), "--database", settings.database_url]
    return await asyncio.to_thread(_type, command)


def _type(command: list[str]) -> Result:
    stdout, stderr = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", command),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
        pytest.raises(SystemExit) as ended,
    ):
        main.main()
    assert isinstance(ended.value.code, int)
    return Result(ended.value.code, stdout.getvalue(), stderr.getvalue())
