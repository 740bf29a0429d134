"""Make a backup beside a running server: one snapshot of the database, and the files that belong to it."""

import contextlib
import hashlib
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

import msgspec

from gpuaas_platform.backup import age, archive, files, manifest, tables
from gpuaas_platform.kit import clock, keys, migrate
from gpuaas_platform.kit.settings import Settings

Progress = Callable[[str], None]


async def make(
    settings: Settings, path: Path, recipients: Sequence[age.Recipient], progress: Progress, *, with_artifacts: bool
) -> tuple[manifest.Manifest, str]:
    """Write the backup. Return its manifest and the public key that signed it."""
    await migrate.check_not_newer(settings.sqlite_path, settings.database_url)
    async with contextlib.AsyncExitStack() as stack:
        with files.custody_unchanged(settings):
            small, heads = files.small(settings.data_dir), files.heads_files(settings.data_dir)
            cut_at = clock.utc_now()
            source = await stack.enter_async_context(tables.snapshot(settings))
        header = manifest.Header(
            format=manifest.FORMAT,
            release=metadata.version("gpuaas-platform"),
            engine=source.engine,
            cut_at=cut_at,
            migrations=sorted(await tables.applied(source)),
            columns=await tables.own_columns(source),
            sequences=await source.sequences(),
            has_artifacts=with_artifacts,
        )
        output = _Output(stack.enter_context(archive.written(path, recipients)), progress)
        output.archive.add(manifest.HEADER, msgspec.json.encode(header))
        for name, content in small.items():
            output.add_file(name, content)
        for heads_file in heads:
            output.copy_file(heads_file.name, heads_file.path, heads_file.size)
        for table, columns in header.columns.items():
            await output.add_table(source, table, columns)
        for name, blob in files.blobs(settings.data_dir) if with_artifacts else ():
            output.copy_blob(name, blob)
        return output.finish(header, small[files.AUDIT_KEY])


class _Output:
    """Adds content to the archive and records its digest."""

    def __init__(self, output: archive.Archive, progress: Progress) -> None:
        self.archive, self._progress = output, progress
        self._tables: dict[str, manifest.Digest] = {}
        self._files: dict[str, manifest.Digest] = {}

    def add_file(self, name: str, content: bytes) -> None:
        self.archive.add(name, content)
        self._files[name] = manifest.digest_of(content)

    def copy_file(self, name: str, path: Path, size: int) -> None:
        with path.open("rb") as file:
            reading = _Reading(file.read)
            self.archive.copy(name, reading, size)  # type: ignore[arg-type] # only read is used
        self._files[name] = manifest.Digest(size, reading.sha256.hexdigest())

    def copy_blob(self, name: str, path: Path) -> None:
        """Add the content of an artifact. If it was deleted since the cut, no artifact needed it at the cut."""
        with contextlib.suppress(FileNotFoundError):
            self.copy_file(name, path, path.stat().st_size)
            self._progress(f"{len(self._files)} files")

    async def add_table(self, source: tables.Tables, table: str, columns: Sequence[str]) -> None:
        running, number = manifest.Running(), 0
        async for content, count in tables.chunks(source, table, columns):
            self.archive.add(f"tables/{table}/{number:06}.jsonl", content)
            running.add(content, count)
            number += 1
            self._progress(f"table {table}: {running.digest().count} rows")
        self._tables[table] = running.digest()

    def finish(self, header: manifest.Header, audit_key: bytes) -> tuple[manifest.Manifest, str]:
        custody = files.custody_of(self._files, self._tables)
        made = manifest.Manifest(header=header, custody=custody, tables=self._tables, files=self._files)
        content = msgspec.json.encode(made)
        signature = manifest.sign(keys.parse(audit_key, files.AUDIT_KEY), content)
        self.archive.add(manifest.MANIFEST, content)
        self.archive.add(manifest.SIGNATURE, signature)
        return made, msgspec.json.decode(signature, type=manifest.Signature).key


class _Reading:
    """A file whose digest is computed while it is read."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read, self.sha256 = read, hashlib.sha256()

    def read(self, size: int) -> bytes:
        content = self._read(size)
        self.sha256.update(content)
        return content
