"""Peers without a token that send requests without end: what it costs the others."""

import contextlib
import multiprocessing
import os
import socket
import statistics
import time
from collections.abc import Iterator

from gpuaas_contract import identity

from bench.badday.load import OPTIONS, load_on
from bench.badday.parts import Cloud, ServerProcess
from bench.badday.result import Place, Result

SENDERS = 4
RATIO_MAX = 2.0
_REQUESTS = 1000
_START = b"GET /livez HTTP/1.1\r\nHost: platform\r\nX-Endless: "
_PART = b"a" * 65536


async def heads(place: Place) -> Result:
    """Four connections each send one header that never ends, and connect again when they are closed.

    Counted is what that does to the median time of a small request of another client. The senders are on the core of
    this process and yield to it: they stand for other machines."""
    options, data = OPTIONS, place.folder / "data"
    with ServerProcess(data, place.database_url, options=options) as server:
        os.sched_setaffinity(server.pid, {0})
        async with load_on(server) as load:
            with on_core(max(os.sched_getaffinity(0))):
                quiet_ms = await median_ms(load.cloud)
                with senders(server.port):
                    flooded_ms = await median_ms(load.cloud)
            ratio = flooded_ms / quiet_ms
            result = await load.count(server, f"{SENDERS} endless heads: GET /me x {ratio:.2f}")
    if ratio > RATIO_MAX:
        result.wrong.append(f"the median of GET /me went from {quiet_ms:.2f} ms to {flooded_ms:.2f} ms")
    return result


async def median_ms(cloud: Cloud) -> float:
    took_ms = []
    for _ in range(_REQUESTS):
        started_s = time.perf_counter()
        await cloud.call(identity.ME)
        took_ms.append((time.perf_counter() - started_s) * 1000)
    return statistics.median(took_ms)


@contextlib.contextmanager
def on_core(core: int) -> Iterator[None]:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


@contextlib.contextmanager
def senders(port: int) -> Iterator[None]:
    """Processes that send endless heads while the block runs."""
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_send, args=(port,), daemon=True) for _ in range(SENDERS)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def _send(port: int) -> None:
    os.nice(19)
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 60) as connection:
            connection.sendall(_START)
            while True:
                connection.sendall(_PART)
