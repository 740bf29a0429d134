"""The file of a backup: a tar archive that is encrypted in the `age` format while it is written.

A thread encrypts or decrypts, connected by a pipe. So nothing is unencrypted on disk, and the memory that is used does
not depend on the size. Without this program, an operator can read it by: age -d -i IDENTITY FILE | tar -x
"""

import contextlib
import io
import os
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyrage

from gpuaas_platform.backup import age
from gpuaas_platform.backup.errors import CannotProceed, NotSound

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Entry:
    name: str
    size: int
    file: IO[bytes]
    """Content of the entry; it can be read until the next entry is taken."""


class Archive:
    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar

    def add(self, name: str, content: bytes) -> None:
        self.copy(name, io.BytesIO(content), len(content))

    def copy(self, name: str, file: IO[bytes], size: int) -> None:
        """Add the next `size` bytes of the file."""
        info = tarfile.TarInfo(name)
        info.size, info.mode = size, 0o600
        self._tar.addfile(info, file)


@contextlib.contextmanager
def written(path: Path, recipients: Sequence[age.Recipient]) -> Iterator[Archive]:
    """Create the file. It gets its name only when it is complete and on disk; an existing file is not replaced."""
    _check_new(path)
    descriptor, draft = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    read_end, write_end = os.pipe()
    try:
        with os.fdopen(descriptor, "wb") as file, ThreadPoolExecutor(1) as thread:
            encrypted = thread.submit(_encrypt, read_end, file, recipients, path)
            try:
                with _pipe(write_end) as sink, tarfile.open(fileobj=sink, mode="w|", bufsize=CHUNK_BYTES) as tar:
                    yield Archive(tar)
            except BrokenPipeError:
                encrypted.result()  # the reason for the broken pipe, such as a full disk
                raise
            encrypted.result()
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    finally:
        os.unlink(draft)


@contextlib.contextmanager
def opened(path: Path, identities: Sequence[age.Identity]) -> Iterator[Iterator[Entry]]:
    """Read the entries in order. Leaving the context raises `NotSound` if any part of the file was changed."""
    read_end, write_end = os.pipe()
    sink = _Sink(write_end, "wb")
    with path.open("rb") as file, ThreadPoolExecutor(1) as thread:
        decrypted = thread.submit(_decrypt, file, sink, identities)
        try:
            with _pipe(read_end, "rb") as source:
                with tarfile.open(fileobj=source, mode="r|", bufsize=CHUNK_BYTES) as tar:
                    yield _entries(tar)
                while source.read(CHUNK_BYTES):
                    pass  # the end of the file is authenticated too
        except Exception as error:
            _raise_cause(path, decrypted, sink, error)
            if isinstance(error, tarfile.TarError):
                raise NotSound(f"{path} is not a backup of this platform: {error}") from error
            raise
        _raise_cause(path, decrypted, sink, None)


def _entries(tar: tarfile.TarFile) -> Iterator[Entry]:
    for info in tar:
        file = tar.extractfile(info)
        if file is None:
            raise NotSound(f"{info.name} in the backup is not a file")
        yield Entry(info.name, info.size, file)


class _Sink(io.FileIO):
    """The end of the pipe that decrypted content is written to."""

    is_abandoned = False
    """Whether the reader stopped. A failure of the writer is then not the cause."""

    def write(self, content: object) -> int:
        try:
            return super().write(content)  # type: ignore[arg-type] # bytes; the base class takes any buffer
        except BrokenPipeError:
            self.is_abandoned = True
            raise


def _encrypt(read_end: int, file: IO[bytes], recipients: Sequence[age.Recipient], path: Path) -> None:
    try:
        with _pipe(read_end, "rb") as source:
            pyrage.encrypt_io(source, file, recipients)
    except pyrage.EncryptError as error:
        fix = f"Free space on the disk, or choose another: df -h {path.parent}"
        raise CannotProceed(f"cannot write {path}: {error}", fix) from error


def _decrypt(file: IO[bytes], sink: _Sink, identities: Sequence[age.Identity]) -> None:
    with sink:
        pyrage.decrypt_io(file, sink, identities)


def _raise_cause(path: Path, decrypted: "Future[None]", sink: _Sink, error: Exception | None) -> None:
    """Raise the failure of the decryption, unless it is only a consequence of `error`."""
    failure = decrypted.exception()
    if failure is None or sink.is_abandoned:
        return
    if "No matching keys" in str(failure):
        fix = "Give the identity of a recipient of this backup: --identity FILE"
        raise CannotProceed(f"this identity does not decrypt {path}", fix) from error
    raise NotSound(f"{path} is damaged or incomplete: {failure}", "Use another backup") from failure


def _pipe(descriptor: int, mode: str = "wb") -> IO[bytes]:
    return os.fdopen(descriptor, mode, CHUNK_BYTES)


def _check_new(path: Path) -> None:
    if path.is_dir():
        raise CannotProceed(f"{path} is a folder", f"Name a new file in it: --to {path / 'cloud.backup'}")
    if path.exists():
        raise CannotProceed(f"{path} exists already", "Choose another name: a backup is never overwritten")
    if not path.parent.is_dir():
        raise CannotProceed(f"there is no folder {path.parent}", f"mkdir -p {path.parent}")
