"""Restore a backup into an empty data folder and an empty database.

The file is checked completely before anything is written. The database is filled in one transaction. A file in the data
folder marks the restore as unfinished until its end; no server starts with it.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import IO

from gpuaas_contract.event_types import PlatformRestored

from gpuaas_platform.artifacts import blobs
from gpuaas_platform.backup import age, archive, fences, files, manifest, tables
from gpuaas_platform.backup.check import Checked
from gpuaas_platform.backup.errors import CannotProceed, NotSound
from gpuaas_platform.kit import clock, keys, migrate, postgres, private
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.record import heads, verify

Progress = Callable[[str], None]


async def check_empty(settings: Settings) -> None:
    """Refuse a target that has anything in it, so that no data is ever overwritten or mixed."""
    folder = settings.data_dir
    if settings.unfinished_restore_path.exists():
        raise CannotProceed(
            f"an earlier restore into {folder} did not finish", f"Remove it and try again: rm -r {folder}"
        )
    if folder.exists() and any(folder.iterdir()):
        raise CannotProceed(f"{folder} is not empty", "Restore into a new folder: --data DATA")
    if settings.database_url:
        async with postgres.connected(settings.database_url) as connection:
            if await tables.PostgresTables(connection).columns():
                name = postgres.shown(settings.database_url)
                raise CannotProceed(
                    f"{name} has tables already", "Create an empty database and name it: --database URL"
                )


async def restore(
    settings: Settings, path: Path, identities: Sequence[age.Identity], checked: Checked, progress: Progress
) -> PlatformRestored:
    """Fill the empty target from a backup that was checked, raise the fences, and sign the end of each audit chain."""
    _begin(settings)
    async with tables.transaction(settings) as target:
        header = checked.manifest.header
        await tables.create(target, header.migrations)
        with archive.opened(path, identities) as entries:
            for entry in entries:
                await _load(settings, target, checked.manifest, entry, progress)
        await _compare(target, checked.manifest, progress)
        await target.run(migrate.missing(target.engine, await tables.applied(target)))
        restored = await fences.apply(target, header, clock.utc_now)
    folder, key = heads.folder_in(settings.data_dir), keys.read(settings.data_dir / files.AUDIT_KEY)
    async with verify.open_source(settings.data_dir, settings.database_url) as source:
        await heads.Signer(source.reader, folder, key, clock.utc_now).sign()
    _finish(settings)
    return restored


async def _load(
    settings: Settings, target: tables.Tables, stated: manifest.Manifest, entry: archive.Entry, progress: Progress
) -> None:
    folder, _, rest = entry.name.partition("/")
    if entry.name in (manifest.HEADER, manifest.MANIFEST, manifest.SIGNATURE):
        return
    if folder == "tables":
        table, _, part = rest.partition("/")
        await target.insert(table, stated.header.columns[table], tables.decoded(entry.file.read()))
        progress(f"{table}, part {int(part.removesuffix('.jsonl')) + 1} loaded")
        return
    files.check_name(entry.name)
    digest = files.blob_digest(entry.name)
    if digest is not None:
        await blobs.Blobs(settings.data_dir).take(_parts(entry.file), digest, entry.size)
    else:
        _write(settings.data_dir / entry.name, entry.file.read(), stated.files.get(entry.name))
    progress(f"{entry.name} restored")


async def _parts(file: IO[bytes]) -> AsyncIterator[bytes]:
    while part := file.read(archive.CHUNK_BYTES):
        yield part


def _write(path: Path, content: bytes, stated: manifest.Digest | None) -> None:
    if manifest.digest_of(content) != stated:
        raise NotSound(f"{path.name} changed while the backup was read", "Run restore again")
    path.parent.mkdir(mode=0o700, exist_ok=True)
    keys.write_private(path, content)


async def _compare(target: tables.Tables, stated: manifest.Manifest, progress: Progress) -> None:
    """Read every table back and compare it with the manifest."""
    present = {}
    for table, columns in stated.header.columns.items():
        present[table] = await tables.digest(target, table, columns)
        progress(f"table {table} compared")
    wrong = manifest.differences(stated.tables, present)
    if wrong:
        raise NotSound(f"the restored tables differ from the backup: {'; '.join(wrong)}", "Run restore again")


def _begin(settings: Settings) -> None:
    """Mark the restore as unfinished before anything else: on an empty database a server would start a new platform."""
    private.open_folder(settings.data_dir, None)
    settings.unfinished_restore_path.touch(mode=0o600)
    blobs.sync_folder(settings.data_dir)
    if not settings.database_url:
        private.open_folder(settings.data_dir, settings.sqlite_path)


def _finish(settings: Settings) -> None:
    blobs.sync_folder(settings.data_dir)
    settings.unfinished_restore_path.unlink()
    blobs.sync_folder(settings.data_dir)
