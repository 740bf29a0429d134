"""Signed heads of the audit chains, stored outside the database: one file per chain, one line per head, append-only.
`server` runs the signer as a loop and at shutdown; `commands.audit` runs it on demand and reads the files.
"""

import asyncio
import contextlib
import datetime
import errno
import fcntl
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec
import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gpuaas_platform.kit import clock, db
from gpuaas_platform.record import chain, trail

log = structlog.get_logger()

TOPIC = "audit-heads"
"""Topic that wakes the signer before its next interval."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
_LOOK_MAX = 20_000
_END_BYTES = 8192
_FIX = "Make the folder of the heads writable, with free space. The heads are then written within a minute."


class Signer:
    """Signs the heads of the audit chains. It stores the last cursor that it has read, so that each sweep reads only
    newer rows."""

    def __init__(self, reader: db.Reader, folder: Path, key: Ed25519PrivateKey, now: clock.Clock) -> None:
        self._reader, self._folder, self._key, self._now = reader, folder, key, now
        self._looked: int | None = None
        self._running = asyncio.Lock()

    async def sweep(self) -> None:
        """Sign new heads. If they cannot be written now, for example on a full disk, the next sweep tries again."""
        try:
            await self.sign()
        except (OSError, db.Unavailable) as error:
            log.error("audit.heads_not_written", folder=str(self._folder), error=str(error), fix=_FIX)

    async def sign(self) -> None:
        """Sign a new head for every chain that has new rows since its last head."""
        async with self._running:
            newest = await trail.newest(self._reader)
            names = await self._moved(newest)
            known = await asyncio.to_thread(_last_heads, self._folder, names)
            tips = [tip for name, last in known.items() if (tip := await self._tip(name, last)) is not None]
            await asyncio.to_thread(_append, self._folder, self._key, tips)
            self._looked = newest

    async def _moved(self, newest: int) -> list[str]:
        if self._looked is None:
            return await trail.all_chains(self._reader)
        names: set[str] = set()
        for start in range(self._looked, newest, _LOOK_MAX):
            names.update(await trail.chains_between(self._reader, start, min(start + _LOOK_MAX, newest)))
            await asyncio.sleep(0)
        return sorted(names)

    async def _tip(self, name: str, last: chain.Head | None) -> chain.Head | None:
        """Return the next head, without number and signature; None if there is no new row or `last` does not match."""
        position, hash_ = await trail.tip(self._reader, name)
        if last is not None and await trail.hash_at(self._reader, name, last.position) != last.hash:
            log.error(
                "audit.chain_differs_from_head", chain=name, position=last.position, fix="gpuaas-platform audit verify"
            )
            return None
        if last is not None and position <= last.position:
            return None
        time = self._now().isoformat()
        return chain.Head(chain=name, position=position, hash=hash_, time=time, number=0, previous="", key="")


def folder_in(data_dir: Path) -> Path:
    return data_dir / "audit-heads"


def path_of(folder: Path, name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of a chain")
    return folder / f"{name}.jsonl"


def names(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.jsonl"))


def lines(folder: Path, name: str) -> list[bytes]:
    """Return the complete lines of a heads file. A line that a power failure left incomplete does not count as a
    head."""
    path = path_of(folder, name)
    return path.read_bytes().split(b"\n")[:-1] if path.exists() else []


def last_line(folder: Path, name: str) -> bytes | None:
    try:
        with path_of(folder, name).open("rb") as file:
            return _end(file)[0]
    except FileNotFoundError:
        return None


def last_heads(folder: Path) -> list[chain.Head]:
    """Return the last head of each chain. A chain with a damaged file is left out."""
    return [head for head in _last_heads(folder, names(folder)).values() if head is not None]


def set_aside(folder: Path, names: Sequence[str], now: datetime.datetime) -> Path:
    """Move the heads of chains to another folder, as evidence. The chains then get a new file of heads."""
    aside = folder / f"set-aside-{now:%Y%m%dT%H%M%SZ}"
    aside.mkdir(mode=0o700, exist_ok=True)
    _belongs_to_parent(aside)
    for name in names:
        path_of(folder, name).rename(aside / f"{name}.jsonl")
    return aside


def _end(file: BinaryIO) -> tuple[bytes | None, int]:
    """Return the last complete line and its end position. Heads are short, so only the end of the file is read."""
    size = file.seek(0, os.SEEK_END)
    start = file.seek(max(0, size - _END_BYTES))
    whole, newline, _ = file.read(_END_BYTES).rpartition(b"\n")
    if not newline and start > 0:
        raise ValueError(f"the last {_END_BYTES} bytes hold no line")
    return (whole.rpartition(b"\n")[2], start + len(whole) + 1) if newline else (None, 0)


def _last_heads(folder: Path, names: Sequence[str]) -> dict[str, chain.Head | None]:
    """Return the last head of each chain. A chain with a damaged file is left out: no new head until it is repaired."""
    heads: dict[str, chain.Head | None] = {}
    for name in names:
        try:
            heads[name] = _decode(last_line(folder, name))
        except (msgspec.MsgspecError, ValueError):
            log.exception("audit.heads_file_damaged", chain=name, fix="gpuaas-platform audit verify")
    return heads


def _decode(line: bytes | None) -> chain.Head | None:
    return msgspec.json.decode(line, type=chain.Head) if line is not None else None


def _append(folder: Path, key: Ed25519PrivateKey, tips: Sequence[chain.Head]) -> None:
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        _belongs_to_parent(folder)
    with _locked(folder) as descriptor:
        for tip in tips:
            path = path_of(folder, tip.chain)
            is_new = not path.exists()
            _append_one(path, key, tip)
            if is_new:
                _belongs_to_parent(path)
                os.fsync(descriptor)


def _append_one(path: Path, key: Ed25519PrivateKey, tip: chain.Head) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        line, end = _end(file)
        file.truncate(end)
        last = _decode(line)
        if last is not None and last.position >= tip.position:
            return
        previous = chain.line_digest(line) if line else ""
        head = msgspec.structs.replace(tip, number=last.number + 1 if last else 1, previous=previous)
        file.seek(end)
        signed = msgspec.json.encode(chain.sign(key, head)) + b"\n"
        if file.write(signed) < len(signed):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        os.fsync(file.fileno())


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[int]:
    """Lock the folder: the server and `gpuaas-platform audit head` may sign a head at the same time."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _belongs_to_parent(path: Path) -> None:
    """Give the file the owner of its folder: if root runs the command, the server must still be able to write."""
    if os.geteuid() == 0:
        owner = path.parent.stat()
        os.chown(path, owner.st_uid, owner.st_gid)
