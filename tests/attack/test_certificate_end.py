"""Attack 4: wait. The server's certificate lives for 90 days and was made only at start, so agents were cut off on day
91. Here the clock of a real server moves by 61 days: new connections must get a new certificate, and a connection that
is open stays."""

import datetime
import http.client
import json
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from gpuaas_sdk.testing import free_port

SERVER = Path(__file__).with_name("served_with_clock.py")
START_S_MAX = 60.0


@dataclass
class Served:
    process: "subprocess.Popen[bytes]"
    data: Path
    port: int

    def connection(self) -> http.client.HTTPSConnection:
        """Connect as an agent does: it trusts only the authority that it pinned."""
        trusted = ssl.create_default_context(cafile=self.data / "keys" / "tls-authority.crt")
        connection = http.client.HTTPSConnection("localhost", self.port, context=trusted, timeout=60)
        connection.connect()
        return connection

    def new_serial(self) -> int:
        connection = self.connection()
        try:
            return serial(connection)
        finally:
            connection.close()

    def until_other_than(self, number: int) -> int:
        deadline = time.monotonic() + START_S_MAX
        while (shown := self.new_serial()) == number:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return shown


def serial(connection: http.client.HTTPSConnection) -> int:
    der = connection.sock.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der).serial_number


def get(connection: http.client.HTTPSConnection, path: str) -> tuple[int, str]:
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    data, port = tmp_path / "data", free_port()
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, SERVER, "past", str(data), str(port)], stdout=log, stderr=log)
    server = Served(process, data, port)
    deadline = time.monotonic() + START_S_MAX
    while True:
        try:
            server.connection().close()
            break
        except OSError:
            assert process.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.02)
    yield server
    process.kill()
    process.wait(60)


def test_new_connections_get_a_new_certificate_after_two_thirds_of_its_life_and_open_ones_stay(
    served: Served, tmp_path: Path
) -> None:
    files, old = sorted((served.data / "keys").iterdir()), served.connection()
    assert get(old, "/livez") == (200, "ok\n")
    first = served.new_serial()
    served.process.send_signal(signal.SIGUSR1)
    second = served.until_other_than(first)
    assert get(old, "/livez") == (200, "ok\n")
    assert (serial(old), served.new_serial()) == (first, second)
    assert 'gpuaas_tls_certificate_expires_in_seconds{address="127.0.0.1"} 7.77' in get(old, "/metrics")[1]
    old.close()
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(60) == 0
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    (renewed,) = [line for line in lines if line["event"] == "tls.certificate_renewed"]
    left = datetime.datetime.fromisoformat(renewed["ends_at"]) - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(days=89) < left < datetime.timedelta(days=90)
    assert sorted((served.data / "keys").iterdir()) == files
