"""A server that runs out of something: a full disk, no file descriptors left."""

import asyncio
import contextlib
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from bench.badday.load import OPTIONS, load_on
from bench.badday.parts import ServerProcess, postgres_server
from bench.badday.result import Place, Result

MIB = 1024**2
DISK_MIB = 512
DESCRIPTORS_MAX, CONNECTIONS = 128, 400
_FULL_S = 2.0


async def full_disk(place: Place) -> Result:
    """Fill the file system of the data folder and of the database, and free it again."""
    with small_disk(place.folder / "disk") as disk:
        async with store_on(disk, place) as (url, postgres):
            options = [*OPTIONS, "--disk-reserve-bytes", str(MIB)]
            with ServerProcess(disk / "data", url, options=options) as server:
                async with load_on(server) as load:
                    async with load.running():
                        for _ in range(place.size.fills):
                            await load.advance()
                            await asyncio.to_thread(_fill, disk / "filler")
                            await load.ready_is(503, "disk_full")
                            await asyncio.sleep(_FULL_S)
                            (disk / "filler").unlink()
                            if postgres is not None:
                                await asyncio.to_thread(_start_again, postgres)
                            await load.ready_is(200)
                    return await load.count(server, f"{place.size.fills} x disk of {DISK_MIB} MiB filled")


async def no_descriptors(place: Place) -> Result:
    """Open more connections than the server has descriptors for, while the writers use theirs."""
    options, data = OPTIONS, place.folder / "data"
    with ServerProcess(data, place.database_url, options=options, descriptors_max=DESCRIPTORS_MAX) as server:
        async with load_on(server) as load:
            async with load.running():
                await load.advance()
                with flood(server.port):
                    await load.ready_is(200)
                    await load.advance()
                    await asyncio.sleep(place.size.flood_s)
                await load.ready_is(200)
                await load.advance()
            done = f"{CONNECTIONS} connections, {DESCRIPTORS_MAX} descriptors"
            return await load.count(server, done)


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m,mode=755", "badday", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@contextlib.asynccontextmanager
async def store_on(disk: Path, place: Place) -> AsyncIterator[tuple[str, Path | None]]:
    """Yield the URL of a database in this folder and the folder of its server; for SQLite neither is needed."""
    if not place.database_url:
        yield "", None
        return
    folder = disk / "pg"
    with postgres_server.running(folder) as url:
        await asyncio.to_thread(postgres_server.create_database, folder, "badday")
        yield url.format(database="badday"), folder


@contextlib.contextmanager
def flood(port: int) -> Iterator[None]:
    """Connections that send nothing; the server closes those over its bound."""
    with contextlib.ExitStack() as stack:
        for _ in range(CONNECTIONS):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), 60))
        yield


def _fill(path: Path) -> None:
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(64 * 1024))


def _start_again(folder: Path) -> None:
    """PostgreSQL ends itself if it cannot write its log; an operator starts it again."""
    pid_file = folder / "data" / "postmaster.pid"
    pid = pid_file.read_text().split()[0] if pid_file.exists() else "none"
    if not Path("/proc", pid).exists():
        postgres_server.start(folder)
