"""Attack: a client that is not signed in sends a request whose head never ends, to fill the memory of the server and to
take its time from all other callers. Four connections were enough."""

import contextlib
import itertools
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from gpuaas_platform.edge import heads
from server_process import ServerProcess

CONNECTIONS = 4
SENT_MAX = 64 * 1024 * 1024
GROWTH_KB_MAX = 48 * 1024
"""Of the memory of the server. Without a limit on heads it grows by more than all connections send: 256 MiB here."""
LONG = b"a" * 65536
REQUEST_LINE = b"GET /api/v1/me HTTP/1.1\r\n"
ENDLESS: dict[str, tuple[bytes, bytes]] = {
    "one endless header": (REQUEST_LINE + b"X-Long: ", LONG),
    "many small headers": (REQUEST_LINE, b"a: b\r\n" * 10_000),
    "an endless name of a header": (REQUEST_LINE, LONG),
    "an endless path": (b"GET /", LONG),
    "empty lines before the request": (b"", b"\r\n" * 32_768),
    "trailers after a body": (
        b"POST /api/v1/auth/login HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n",
        b"a: b\r\n" * 10_000,
    ),
    "one endless trailer": (
        b"POST /api/v1/auth/login HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\nX-Long: ",
        LONG,
    ),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("attacked") / "data") as running:
        yield running


@pytest.mark.parametrize("case", ENDLESS)
def test_a_head_without_an_end_is_refused_and_costs_other_callers_nothing(server: ServerProcess, case: str) -> None:
    before = _peak_memory_kb(server.pid)
    answers = _attack(server.port, *ENDLESS[case])
    assert [answer[:13] for answer in answers] == [b"HTTP/1.1 431 "] * CONNECTIONS
    assert all(b'"code":"head_too_large"' in answer and b"connection: close" in answer for answer in answers)
    assert _peak_memory_kb(server.pid) - before < GROWTH_KB_MAX
    assert httpx.get(f"{server.url}/api/v1/me", timeout=30).json()["code"] == "token_missing"


def test_requests_sent_ahead_without_end_close_the_connection(server: ServerProcess) -> None:
    before = _peak_memory_kb(server.pid)
    _attack(server.port, b"", b"GET /livez HTTP/1.1\r\n\r\n" * 2_000)
    assert _peak_memory_kb(server.pid) - before < GROWTH_KB_MAX


@pytest.mark.parametrize("lines", [heads.HEAD_LINES_MAX, heads.HEAD_LINES_MAX + 1])
def test_a_request_may_have_as_many_headers_as_documented(server: ServerProcess, lines: int) -> None:
    request = b"GET /livez HTTP/1.1\r\n" + b"a: b\r\n" * (lines - 1) + b"Connection: close\r\n\r\n"
    status = b"200" if lines == heads.HEAD_LINES_MAX else b"431"
    assert _answer(server.port, request)[9:12] == status


@pytest.mark.parametrize("size", [heads.HEAD_BYTES_MAX, heads.HEAD_BYTES_MAX + 1])
def test_a_head_may_be_as_long_as_documented(server: ServerProcess, size: int) -> None:
    start, end = b"GET /livez HTTP/1.1\r\nConnection: close\r\nX-Long: ", b"\r\n\r\n"
    request = start + b"a" * (size - len(start) - len(end)) + end
    status = b"200" if size == heads.HEAD_BYTES_MAX else b"431"
    assert _answer(server.port, request)[9:12] == status


def _attack(port: int, start: bytes, repeated: bytes) -> list[bytes]:
    """Send without end on several connections at the same time. Return what the server answered on each."""
    answers: list[bytes] = []

    def send() -> None:
        answers.append(_answer(port, *itertools.chain([start], itertools.repeat(repeated, SENT_MAX // len(repeated)))))

    threads = [threading.Thread(target=send) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def _answer(port: int, *parts: bytes) -> bytes:
    """Send the parts until the server closes the connection. Return all that it sent."""
    received = bytearray()
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        with contextlib.suppress(OSError):  # the server closes the connection
            for part in parts:
                connection.sendall(part)
        with contextlib.suppress(ConnectionResetError):  # the server did not read all that was sent
            while data := connection.recv(65536):
                received += data
    return bytes(received)


def _peak_memory_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
