"""Attack: a peer opens as many connections as it can, until the server has no descriptors left for files.

The server has a low limit of open files. Connections over its bound must be closed at once, before a TLS handshake, and
the open connections must be served as before: their writes, uploads and reads need descriptors too.
"""

import contextlib
import hashlib
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from gpuaas_contract import artifacts
from gpuaas_sdk.testing import free_port
from server_process import Cloud, ServerProcess

LIMIT, BOUND = 128, 96
ATTEMPTS = 300
CONTENT = bytes(200_000)


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "half-open TLS"])
async def test_open_connections_are_served_while_hundreds_of_others_are_attempted(
    tmp_path: Path, encrypted: bool
) -> None:
    tls_port = free_port()
    options = ["--listen", f"0.0.0.0:{tls_port}"]
    with ServerProcess(tmp_path / "data", options=options, descriptors_max=LIMIT) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            cloud = Cloud(client)
            await cloud.sign_in(server.admin_password())
            await cloud.make_project()
            with connections(tls_port if encrypted else server.port) as left_open:
                assert 0 < left_open < BOUND
                for _ in range(50):
                    await cloud.make_event()
                await _upload(cloud)
                assert (await client.get("/readyz")).status_code == 200
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as later:
            assert (await later.get("/readyz")).status_code == 200, "there is room again"
        assert "server.connections_refused" in server.log_text()


def test_the_limit_of_open_files_is_raised_and_a_low_one_is_reported(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", descriptors_max=LIMIT) as server:
        [line] = [line for line in server.log_text().splitlines() if "server.open_files_limit" in line]
    assert '"warning"' in line
    assert f'"limit": {LIMIT}' in line or f'"limit":{LIMIT}' in line


@contextlib.contextmanager
def connections(port: int) -> Iterator[int]:
    """Open many connections and send nothing; yield how many of them the server left open."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 60)) for _ in range(ATTEMPTS)]
        assert _is_closed(sockets[-1]), "the server accepts in order, so it has decided about all of them now"
        for connection in sockets:
            connection.setblocking(False)
        yield sum(not _is_closed(connection) for connection in sockets)


def _is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


async def _upload(cloud: Cloud) -> None:
    body = {
        "name": "file",
        "digest": f"sha256:{hashlib.sha256(CONTENT).hexdigest()}",
        "size_bytes": len(CONTENT),
        "media_type": "application/octet-stream",
        "source": {"kind": "local"},
    }
    artifact = await cloud.call(artifacts.PUBLISH, body)
    path = artifacts.CONTENT_PUT.path.format(project_id=cloud.project_id, artifact_id=artifact.artifact_id)
    sent = await cloud.http.put(path, content=CONTENT, headers={"Authorization": f"Bearer {cloud.token}"})
    assert sent.status_code == 200, sent.text
