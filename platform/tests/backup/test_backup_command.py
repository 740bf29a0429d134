"""`gpuaas-platform backup`, `verify` and `restore` on both engines, beside an open platform that is written to."""

import asyncio
import dataclasses
import io
import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import platform_command
import postgres_server
import pytest
from backup_lab import Backups, digests
from gpuaas_platform import server
from gpuaas_platform.artifacts.blobs import Blobs
from gpuaas_platform.backup import age, archive, check, manifest, restore, tables
from gpuaas_platform.backup.errors import NotSound
from gpuaas_platform.call import Owner, Site, system_origin
from gpuaas_platform.custody import key_files
from gpuaas_platform.kit import db, ids, keys, migrate
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.record import service as record
from gpuaas_sdk.testing import free_port
from platform_world import World

CHANGED_BY_FENCES = {
    "audit",
    "enrolment_tokens",
    "events",
    "node_revocations",
    "operations",
    "posix_numbers",
    "restores",
    "ssh_authority",
    "tokens",
}


async def test_a_backup_has_the_digest_of_every_table_and_a_restore_has_the_same_rows(
    world: World, backups: Backups
) -> None:
    await world.entitled_app()
    await world.running_instance(await world.service_account())
    made = await backups.make()
    assert made.returncode == 0, made.text
    present = await digests(backups.source)
    assert backups.manifest().tables == present
    restored = await backups.restore()
    assert (restored.returncode, "Every table equals the backup" in restored.stdout) == (0, True), restored.text
    after = await digests(backups.target)
    assert after.keys() == present.keys()
    assert present["tokens"].count > 0 == after["tokens"].count
    assert {name for name in present if after[name] != present[name]} <= CHANGED_BY_FENCES


async def test_a_backup_while_a_writer_commits_is_one_moment_of_the_platform(site: Site, backups: Backups) -> None:
    """Each use case writes one row to two chains. A moment between the two writes does not exist."""
    stop = asyncio.Event()

    async def use_case(tx: db.Tx) -> None:
        for org_id in ("org_one", "org_two"):
            await record.audit(tx, system_origin(site.clock()), "apps.instance.create", "inst", Owner(org_id))

    async def write() -> int:
        count = 0
        while not stop.is_set():
            await site.database.write(use_case)
            count += 1
            if count % 50 == 0:
                await server.heads_signer(site).sweep()
        return count

    await site.database.write(use_case)
    writer = asyncio.create_task(write())
    made = await backups.make()
    stop.set()
    written = await writer
    assert made.returncode == 0, made.text
    verified, restored = await backups.verify(), await backups.restore()
    assert (verified.returncode, restored.returncode) == (0, 0), verified.text + restored.text
    async with server.open_site(backups.target) as copy:
        sql = "SELECT chain, count(*) FROM audit WHERE chain LIKE 'org%' GROUP BY chain"
        counts = {row[0]: row[1] for row in await copy.database.reader.all(sql)}
    assert counts["org_one"] == counts["org_two"]
    assert 0 < counts["org_one"] <= written + 1
    whole = await platform_command.run("audit", "verify", on=backups.target)
    assert whole.returncode == 0, whole.text


async def test_keys_heads_and_artifacts_are_restored_and_only_their_owner_can_read_them(
    site: Site, backups: Backups
) -> None:
    await Blobs(backups.source.data_dir).take(_content(b"model"), _digest(b"model"), 5)
    await server.heads_signer(site).sweep()
    assert (await backups.make()).returncode == 0
    assert (await backups.restore()).returncode == 0
    for name in ("keys/tasks.pem", "keys/audit.pem", "keys/tls-authority.pem", "keys/tls-authority.crt"):
        before, after = backups.source.data_dir / name, backups.target.data_dir / name
        assert (after.read_bytes(), after.stat().st_mode & 0o777) == (before.read_bytes(), 0o600)
    await Blobs(backups.target.data_dir).check(_digest(b"model"), 5)
    assert backups.target.data_dir.stat().st_mode & 0o777 == 0o700
    assert backups.file.stat().st_mode & 0o777 == 0o600


async def test_nothing_of_the_platform_can_be_read_in_the_file(world: World, backups: Backups) -> None:
    assert (await backups.make()).returncode == 0
    content = backups.file.read_bytes()
    assert content.startswith(b"age-encryption.org/v1")
    assert b"PRIVATE KEY" not in content
    assert world.project_id.encode() not in content


async def test_the_place_of_custodys_key_is_printed_and_its_values_can_be_read_after_a_restore(
    world: World, backups: Backups
) -> None:
    credential = await world.credential()
    made = await backups.make("--without-artifacts")
    assert "The key of custody is in the backup." in made.stdout
    assert "WITHOUT the content of artifacts" in made.stdout
    assert (await backups.restore()).returncode == 0
    async with server.open_site(backups.target, world.clock) as site:
        row = await site.database.reader.one(
            "SELECT secret_id FROM credential_keys WHERE credential_id = $1", credential.credential_id
        )
        assert row is not None
        assert (await site.custody.get(row[0], 1)).startswith(b"-----BEGIN OPENSSH")


async def test_a_backup_without_custodys_key_reports_this(world: World, backups: Backups) -> None:
    (backups.source.data_dir / key_files.PLAIN).unlink()
    assert "The key of custody is NOT in the backup" in (await backups.make()).stdout


async def test_a_sealed_key_is_in_the_backup_under_its_passphrase(
    world: World, backups: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("open sesame\n"))
    sealed = await platform_command.run("custody", "seal", on=backups.source)
    assert sealed.returncode == 0, sealed.text
    assert "in the backup under its passphrase" in (await backups.make()).stdout
    assert (await backups.restore()).returncode == 0
    files = [backups.source.data_dir / key_files.SEALED, backups.target.data_dir / key_files.SEALED]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert not (backups.target.data_dir / key_files.PLAIN).exists()


async def test_a_changed_byte_is_refused_and_nothing_is_restored(site: Site, backups: Backups) -> None:
    assert (await backups.make()).returncode == 0
    content = bytearray(backups.file.read_bytes())
    content[len(content) // 2] ^= 1
    backups.file.write_bytes(content)
    for result in (await backups.verify(), await backups.restore()):
        assert (result.returncode, "is damaged or incomplete" in result.stderr) == (1, True), result.text
    assert not backups.target.data_dir.exists()


@pytest.mark.parametrize("left", [0, 100, 0.5, 0.999])
async def test_a_shortened_backup_is_refused(site: Site, backups: Backups, left: float) -> None:
    assert (await backups.make()).returncode == 0
    content = backups.file.read_bytes()
    backups.file.write_bytes(content[: int(left if left >= 1 else len(content) * left)])
    assert (await backups.verify()).returncode == 1


async def test_another_identity_is_refused(site: Site, backups: Backups, tmp_path: Path) -> None:
    assert (await backups.make()).returncode == 0
    await platform_command.run("backup", "--new-identity", tmp_path / "other")
    for result in (
        await backups.verify(identity=tmp_path / "other"),
        await backups.restore(identity=tmp_path / "other"),
    ):
        assert (result.returncode, "this identity does not decrypt" in result.stderr) == (2, True), result.text


async def test_a_forged_backup_is_refused_by_an_operator_with_the_platforms_key(site: Site, backups: Backups) -> None:
    """Anyone with the recipient can encrypt a file to it. Only the platform can sign it."""
    made = await backups.make()
    signed_by = made.stdout.split("Signed by ")[1].strip()
    assert (await backups.verify("--signed-by", signed_by)).returncode == 0
    other = await backups.verify("--signed-by", "c29tZW9uZSBlbHNl")
    assert (other.returncode, "is signed by" in other.stderr) == (1, True)


async def test_a_manifest_that_does_not_fit_its_signature_is_refused(site: Site, backups: Backups) -> None:
    assert (await backups.make()).returncode == 0
    identities = age.identities(backups.identity)
    with archive.opened(backups.file, identities) as entries:
        content = [(entry.name, entry.file.read()) for entry in entries]
    backups.file.unlink()
    with archive.written(backups.file, age.recipients([backups.recipient])) as forged:
        for name, data in content:
            forged.add(name, data.replace(b'"release":"', b'"release":"9') if name == manifest.MANIFEST else data)
    result = await backups.verify()
    assert (result.returncode, "signature" in result.stderr) == (1, True), result.text


async def test_a_path_that_leads_out_of_the_data_folder_is_refused(site: Site, backups: Backups) -> None:
    assert (await backups.make()).returncode == 0
    with archive.opened(backups.file, age.identities(backups.identity)) as entries:
        content = [(entry.name, entry.file.read()) for entry in entries]
    backups.file.unlink()
    with archive.written(backups.file, age.recipients([backups.recipient])) as forged:
        forged.add(*content[0])
        forged.add("keys/../../escaped.pem", b"")
        for name, data in content[1:]:
            forged.add(name, data)
    result = await backups.restore()
    assert (result.returncode, "unknown file" in result.stderr) == (1, True), result.text


async def test_a_tampered_audit_trail_is_noticed_by_verify(site: Site, backups: Backups) -> None:
    async def add(tx: db.Tx) -> None:
        for _ in range(5):
            await record.audit(tx, system_origin(site.clock()), "apps.instance.create", "inst", Owner("org_one"))

    await site.database.write(add)
    await server.heads_signer(site).sweep()
    await site.database.write(lambda tx: tx.run("DELETE FROM audit WHERE chain = 'org_one' AND position > 3"))
    assert (await backups.make()).returncode == 0
    result = await backups.verify()
    assert (result.returncode, "audit chain org_one" in result.stderr) == (1, True), result.text


async def test_tables_of_other_programs_are_left_out(site: Site, backups: Backups) -> None:
    """A program that copies the database continuously has a table of its own in it."""
    await site.database.write(lambda tx: tx.run("CREATE TABLE _litestream_lock (id INTEGER)"))
    made, restored = await backups.make(), await backups.restore()
    assert (made.returncode, restored.returncode) == (0, 0), made.text + restored.text
    assert "_litestream_lock" not in await digests(backups.target)


async def test_a_target_that_is_not_empty_is_refused(site: Site, backups: Backups) -> None:
    assert (await backups.make()).returncode == 0
    into_itself = await backups.restore(into=backups.source)
    assert (into_itself.returncode, "is not empty" in into_itself.stderr) == (2, True)
    if backups.source.database_url:
        beside = dataclasses.replace(backups.target, database_url=backups.source.database_url)
        result = await backups.restore(into=beside)
        assert (result.returncode, "has tables already" in result.stderr) == (2, True)


async def test_an_existing_backup_is_not_overwritten(site: Site, backups: Backups) -> None:
    backups.file.write_text("precious")
    result = await backups.make()
    assert (result.returncode, backups.file.read_text()) == (2, "precious")
    assert [path.name for path in backups.file.parent.glob("backup*")] == ["backup"]


async def test_a_backup_needs_a_recipient(site: Site, backups: Backups) -> None:
    for recipient in ("", "age1nonsense", "/absent/file"):
        options = ["--recipient", recipient] if recipient else []
        result = await platform_command.run("backup", "--to", backups.file, *options, on=backups.source)
        assert (result.returncode, "--new-identity" in result.stderr) == (2, True), result.text


async def test_a_backup_of_one_engine_is_restored_on_the_other(
    world: World, backups: Backups, postgres_folder: Path, tmp_path: Path
) -> None:
    """The restore itself compares every table, whose rows are in the same order on both."""
    await world.entitled_app()
    await world.running_instance(await world.service_account())
    name = ids.new("db")
    postgres_server.create_database(postgres_folder, name)
    url = "" if backups.source.database_url else f"postgresql://postgres@/{name}?host={postgres_folder}"
    other = Settings(data_dir=tmp_path / "other", database_url=url)
    assert (await backups.make()).returncode == 0
    result = await backups.restore(into=other)
    assert result.returncode == 0, result.text
    assert (await digests(other))["users"] == (await digests(backups.source))["users"]
    async with server.open_site(other, world.clock) as site:
        assert len(await site.database.reader.all("SELECT 1 FROM members")) == 2
    postgres_server.drop_database(postgres_folder, name)


async def test_a_backup_of_an_older_release_is_migrated_by_the_restore(settings: Settings, backups: Backups) -> None:
    old = {number for number, _ in migrate.files("sqlite") if number < 30}
    keys.load(settings.data_dir / "keys")
    async with tables.transaction(settings) as store:
        await tables.create(store, old)
        await store.insert("migrations", ["number"], [(number,) for number in sorted(old)])
    made, restored = await backups.make(), await backups.restore()
    assert (made.returncode, restored.returncode) == (0, 0), made.text + restored.text
    assert "Custody has no values yet" in restored.stdout
    async with server.open_site(backups.target) as site:
        assert len(await site.database.reader.all("SELECT 1 FROM restores")) == 1


async def test_a_row_that_is_lost_while_it_is_loaded_is_noticed(
    world: World, backups: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = tables.decoded
    assert (await backups.make()).returncode == 0
    checked = check.check(backups.file, age.identities(backups.identity), "", lambda _: None)
    monkeypatch.setattr(tables, "decoded", lambda content: decoded(content)[:-1])
    with pytest.raises(NotSound, match="the restored tables differ from the backup"):
        await restore.restore(backups.target, backups.file, age.identities(backups.identity), checked, lambda _: None)


_KILLED = """
import os, signal, sys
from gpuaas_platform import main
from gpuaas_platform.backup import {module}

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

{module}.{function} = die
sys.argv = ["gpuaas-platform", *sys.argv[1:]]
main.main()
"""


@pytest.mark.parametrize(
    ("module", "function"),
    [("restore", "keys.write_private"), ("fences", "apply"), ("restore", "_compare"), ("restore", "_finish")],
)
async def test_no_server_starts_on_a_restore_that_was_killed(
    site: Site, backups: Backups, module: str, function: str
) -> None:
    assert (await backups.make()).returncode == 0
    target = backups.target
    store = ["--data", str(target.data_dir), "--database", target.database_url]
    script = _KILLED.format(module=module, function=function)
    command = [
        sys.executable,
        "-c",
        script,
        "restore",
        "--from",
        str(backups.file),
        "--identity",
        str(backups.identity),
    ]
    killed = await asyncio.to_thread(subprocess.run, [*command, *store], capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    command = [sys.executable, "-m", "gpuaas_platform.main", "server", "--listen", f"127.0.0.1:{free_port()}"]
    started = await asyncio.to_thread(subprocess.run, [*command, *store], capture_output=True, text=True)
    assert (started.returncode, "did not finish" in started.stderr) == (2, True), started.stderr
    again = await backups.restore()
    assert (again.returncode, "rm -r" in again.stderr) == (2, True), again.text


async def test_a_failed_backup_leaves_no_file(site: Site, backups: Backups, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    result = await backups.make()
    assert (result.returncode, "No space left" in result.stderr) == (2, True), result.text
    assert list(backups.file.parent.glob("backup*")) == []


async def test_a_disk_that_fills_while_the_backup_is_encrypted_is_reported(site: Site, backups: Backups) -> None:
    """The limit on the size of files acts as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16_384, hard))
    try:
        result = await backups.make()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (result.returncode, f"cannot write {backups.file}" in result.stderr) == (2, True), result.text
    assert "Free space" in result.stderr
    assert list(backups.file.parent.glob("backup*")) == []


async def test_a_folder_is_not_a_name_for_a_backup(site: Site, backups: Backups, tmp_path: Path) -> None:
    result = await platform_command.run("backup", "--to", tmp_path, "--recipient", backups.recipient, on=backups.source)
    assert (result.returncode, f"{tmp_path} is a folder" in result.stderr) == (2, True), result.text


@pytest.mark.parametrize("content", [None, b"\x80"], ids=["missing", "not text"])
async def test_an_identity_that_cannot_be_read_is_not_answered_with_a_new_key_pair(
    site: Site, backups: Backups, tmp_path: Path, content: bytes | None
) -> None:
    """A new key pair does not decrypt a backup that exists."""
    assert (await backups.make()).returncode == 0
    identity = tmp_path / "other.identity"
    if content is not None:
        identity.write_bytes(content)
    result = await backups.verify(identity=identity)
    assert (result.returncode, "--identity FILE" in result.stderr) == (2, True), result.text
    assert "--new-identity" not in result.stderr


async def test_a_new_identity_needs_a_folder_that_exists(tmp_path: Path) -> None:
    result = await platform_command.run("backup", "--new-identity", tmp_path / "absent" / "identity")
    assert (result.returncode, f"mkdir -p {tmp_path / 'absent'}" in result.stderr) == (2, True), result.text


async def test_a_folder_without_a_platform_is_named(backups: Backups, tmp_path: Path) -> None:
    absent = Settings(data_dir=tmp_path / "absent")
    arguments = ("backup", "--to", backups.file, "--recipient", backups.recipient)
    result = await platform_command.run(*arguments, on=absent)
    assert (result.returncode, f"there is no platform in {absent.data_dir}" in result.stderr) == (2, True), result.text
    assert not absent.data_dir.exists()


async def test_the_lock_of_a_backup_is_private_and_of_the_owner_of_the_folder(site: Site, backups: Backups) -> None:
    """Root may make a backup. Afterwards the user of the server must be able to make one too."""
    folder = site.settings.data_dir
    (folder / "custody.lock").unlink(missing_ok=True)
    if os.geteuid() == 0:
        os.chown(folder, 65534, 65534)
    assert (await backups.make()).returncode == 0
    lock, owner = (folder / "custody.lock").stat(), folder.stat()
    assert (lock.st_uid, lock.st_gid, stat.S_IMODE(lock.st_mode)) == (owner.st_uid, owner.st_gid, 0o600)


async def _content(content: bytes):  # type: ignore[no-untyped-def]
    yield content


def _digest(content: bytes) -> str:
    return f"sha256:{manifest.digest_of(content).sha256}"
