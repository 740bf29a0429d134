"""The store of artifact content: one file per digest in the data folder. A file in it is complete and correct.

A file is first written to another folder. It is moved here after its size and digest were checked and it was synced.
Content leaves a reserve of free space, so that the store can still commit when uploads have filled the disk.
"""

import asyncio
import contextlib
import errno
import hashlib
import os
import tempfile
import time
from collections.abc import AsyncIterable, Iterator
from io import BufferedReader
from pathlib import Path

from gpuaas_contract import errors

from gpuaas_platform.call import CutOff
from gpuaas_platform.kit import disk

_CHUNK_BYTES = 1 << 18
_FULL = (errno.ENOSPC, errno.EDQUOT)
_ABANDONED_S = 3600
"""A draft that is unchanged for this long has no writer any more, because uploads time out much earlier."""


class WrongContent(CutOff):
    """The stored content differs from what was published."""

    def __init__(self, refusal: errors.ArtifactRefused) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class Blobs:
    def __init__(self, data_dir: Path, reserve_bytes: int | None = None) -> None:
        self._data_dir, self._reserve_bytes = data_dir, reserve_bytes
        self._folder = data_dir / "blobs" / "sha256"
        self._drafts = data_dir / "blobs" / "drafts"
        self._aside = data_dir / "blobs" / "aside"

    def path(self, digest: str) -> Path:
        value = digest.removeprefix("sha256:")
        return self._folder / value[:2] / value

    async def take(self, chunks: AsyncIterable[bytes], digest: str, size_bytes: int, *, keep: bool = True) -> None:
        """Store the content in one step if it is complete and correct; otherwise store nothing."""
        with _full_disk_refused():
            self._check_space(size_bytes)
            draft = _Draft(self._drafts)  # not in a thread: a cancellation would leave its file behind
            try:
                async for chunk in chunks:
                    if draft.size_bytes + len(chunk) > size_bytes:
                        raise errors.ArtifactTooLarge(
                            f"The content is larger than the {size_bytes} bytes that were published."
                        )
                    self._check_space(len(chunk))
                    await asyncio.to_thread(draft.write, chunk)
                _check(draft.size_bytes, draft.digest(), digest, size_bytes)
                if keep:
                    await asyncio.to_thread(draft.publish, self.path(digest))
            finally:
                draft.discard()

    async def check(self, digest: str, size_bytes: int, *, whole: bool = True) -> None:
        """Check the size of the stored file and, if `whole`, its digest."""
        await asyncio.to_thread(self._check_file, digest, size_bytes, whole)

    async def read(self, digest: str, size_bytes: int) -> "Reading":
        return Reading(self._open(digest), digest, size_bytes)  # not in a thread: a cancellation would leave it open

    def drop_abandoned_drafts(self) -> None:
        """Delete the drafts of processes that were killed during an upload."""
        before = time.time() - _ABANDONED_S
        for draft in self._drafts.glob("*"):
            with contextlib.suppress(FileNotFoundError):
                if draft.stat().st_mtime < before:
                    draft.unlink()

    def digests(self) -> list[str]:
        """Return the digests of all stored content."""
        return [f"sha256:{path.name}" for path in self._folder.glob("??/*")]

    def set_aside(self, digest: str) -> None:
        """Move the file to another folder, where `drop_aside` deletes it. Open readers can still read it."""
        self._aside.mkdir(mode=0o700, exist_ok=True)
        place = self.path(digest)
        with contextlib.suppress(FileNotFoundError):
            place.rename(self._aside / place.name)

    def drop_aside(self) -> None:
        """Delete all files that were set aside, including those of processes that were killed."""
        for path in self._aside.glob("*"):
            path.unlink(missing_ok=True)

    def _check_space(self, size_bytes: int) -> None:
        """Refuse content that would use the reserve. Checked again for each chunk, because others write too."""
        space = disk.space(self._data_dir)
        reserve_bytes = disk.reserve_bytes(space.total_bytes, self._reserve_bytes)
        if space.free_bytes - size_bytes < reserve_bytes:
            raise errors.InsufficientStorage(
                f"The platform's disk has {space.free_bytes} bytes free, of which {reserve_bytes} are reserved.",
                details={"free_bytes": space.free_bytes, "reserve_bytes": reserve_bytes},
            )

    def _check_file(self, digest: str, size_bytes: int, whole: bool) -> None:
        with self._open(digest) as file:
            size = os.fstat(file.fileno()).st_size
            if size != size_bytes:
                raise errors.ArtifactDigestMismatch(f"The stored file has {size} bytes, not {size_bytes}.")
            if whole:
                _check(size, f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}", digest, size_bytes)

    def _open(self, digest: str) -> BufferedReader:
        try:
            return self.path(digest).open("rb")
        except FileNotFoundError as error:
            raise errors.ArtifactContentMissing(f"There is no content {digest} in the store.") from error


class Reading:
    """A stored file as a source for the HTTP edge. The last chunk is returned only after the whole file was checked, so
    that a client never receives a wrong file completely."""

    def __init__(self, file: BufferedReader, digest: str, size_bytes: int) -> None:
        self._file, self._digest, self._size_bytes = file, digest, size_bytes
        self._seen, self._taken, self._held = hashlib.sha256(), 0, b""
        self._is_cut = False

    async def next(self) -> bytes:
        if self._is_cut:
            raise CutOff("the caller may no longer download the artifact")
        chunk = self._held or await asyncio.to_thread(self._read)
        self._held = await asyncio.to_thread(self._read)
        if chunk and not self._held:
            try:
                _check(self._taken, f"sha256:{self._seen.hexdigest()}", self._digest, self._size_bytes)
            except errors.ArtifactRefused as refusal:
                raise WrongContent(refusal) from refusal
        return chunk

    def end(self) -> None:
        self._is_cut = True

    def close(self) -> None:
        self._file.close()

    def _read(self) -> bytes:
        chunk = self._file.read(_CHUNK_BYTES)
        self._seen.update(chunk)
        self._taken += len(chunk)
        return chunk


class _Draft:
    """A file that is being written, with a random name. It is not read before it is complete."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=folder)
        self._file, self._path = os.fdopen(descriptor, "wb"), Path(name)
        self._seen = hashlib.sha256()
        self.size_bytes = 0

    def write(self, chunk: bytes) -> None:
        self._file.write(chunk)
        self._seen.update(chunk)
        self.size_bytes += len(chunk)

    def digest(self) -> str:
        return f"sha256:{self._seen.hexdigest()}"

    def publish(self, place: Path) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path.rename(place)
        for folder in (place.parent, place.parent.parent):
            sync_folder(folder)

    def discard(self) -> None:
        self._path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # `close` writes what is in the buffer, which fails again on a full disk
            self._file.close()


@contextlib.contextmanager
def _full_disk_refused() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise errors.InsufficientStorage("The platform's disk is full.") from error


def _check(size_found: int, digest_found: str, digest: str, size_bytes: int) -> None:
    if size_found < size_bytes:
        raise errors.ArtifactTruncated(
            f"The content has only {size_found} of the {size_bytes} bytes that were published."
        )
    if size_found > size_bytes:
        raise errors.ArtifactTooLarge(f"The content is larger than the {size_bytes} bytes that were published.")
    if digest_found != digest:
        raise errors.ArtifactDigestMismatch(f"The content has the digest {digest_found}, not the published {digest}.")


def sync_folder(folder: Path) -> None:
    """Sync the folder, because a rename is durable only after that."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
