"""The command itself: a first start that prints what to do, a clean stop, data that stays, and mistakes in one line."""

import asyncio
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import httpx
import preloaded
import pytest
from gpuaas_contract import identity
from gpuaas_sdk.testing import free_port
from server_process import Cloud, ServerProcess, readyz

COMMAND = [sys.executable, "-m", "gpuaas_platform.main"]
READY_S_MAX = 60.0


class Started:
    """`gpuaas-platform server` with its output in a file."""

    def __init__(self, data: Path, database_url: str, log: Path, *more: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        self.password_file = data / "first-admin-password"
        store = ["--data", str(data), *(["--database", database_url] if database_url else [])]
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [*COMMAND, "server", *store, "--listen", f"127.0.0.1:{self.port}", *more], stdout=file, stderr=file
            )

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_S_MAX
        while not _is_ready(self.url):
            assert time.monotonic() < deadline, self.log.read_text()
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.02)

    def password(self) -> str:
        return self.password_file.read_text().strip()

    def interrupt(self) -> int:
        os.kill(self.process.pid, signal.SIGINT)
        return self.process.wait(60)


@pytest.fixture
def started(tmp_path: Path, database_url: str) -> Iterator[Started]:
    server = Started(tmp_path / "cloud", database_url, tmp_path / "first.log")
    yield server
    server.process.kill()
    server.process.wait(60)


def test_a_first_start_prints_the_address_and_how_to_sign_in(started: Started) -> None:
    started.wait_until_ready()
    output = started.log.read_text()
    assert f"at {started.url}" in output
    assert f"gpuaas login --server {started.url} --name admin" in output
    assert f"  {started.password_file}\n" in output
    answer = httpx.post(
        f"{started.url}{identity.LOGIN.path}", json={"name": "admin", "password": started.password()}, timeout=60
    )
    assert answer.status_code == 200
    assert not started.password_file.exists()
    assert "Traceback" not in output


def test_a_first_start_in_a_terminal_shows_the_password_and_stores_it_nowhere(tmp_path: Path) -> None:
    data, (terminal, theirs) = tmp_path / "cloud", pty.openpty()
    command = [*COMMAND, "server", "--data", str(data), "--listen", f"127.0.0.1:{free_port()}"]
    process = subprocess.Popen(command, stderr=theirs)
    shown = b""
    try:
        while b"Ctrl-C" not in shown:
            shown += os.read(terminal, 4096)
    finally:
        process.kill()
        process.wait(60)
        os.close(theirs)
        os.close(terminal)
    assert re.search(rb"^  gpuaas_admin_\w+\r$", shown, re.MULTILINE)
    assert not (data / "first-admin-password").exists()


def test_ctrl_c_ends_long_polls_and_exits_with_0(started: Started) -> None:
    started.wait_until_ready()
    assert asyncio.run(_interrupt_while_waiting(started, started.password())) == 0
    assert "Traceback" not in started.log.read_text()


async def _interrupt_while_waiting(started: Started, password: str) -> int:
    async with httpx.AsyncClient(base_url=started.url, timeout=40) as client:
        cloud = Cloud(client)
        await cloud.sign_in(password)
        await cloud.make_project()
        path = f"/api/v1/projects/{cloud.project_id}/events?wait_s=30&after=0&correlation_id=of-no-event"
        waiting = asyncio.create_task(client.get(path, headers={"Authorization": f"Bearer {cloud.token}"}))
        async with asyncio.timeout(60):
            while "gpuaas_long_polls_waiting 1.0" not in (await client.get("/metrics")).text:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        status = await asyncio.to_thread(started.interrupt)
        assert (await waiting).json()["items"] == []
        return status


def test_a_second_start_keeps_everything_and_shows_no_password(
    started: Started, tmp_path: Path, database_url: str
) -> None:
    started.wait_until_ready()
    password = started.password()
    assert started.interrupt() == 0
    again = Started(tmp_path / "cloud", database_url, tmp_path / "second.log")
    try:
        again.wait_until_ready()
        output = again.log.read_text()
        assert "gpuaas_admin_" not in output
        assert f'"url":"{again.url}"' in output
        answer = httpx.post(
            f"{again.url}{identity.LOGIN.path}", json={"name": "admin", "password": password}, timeout=60
        )
        assert answer.status_code == 200
    finally:
        again.process.kill()
        again.process.wait(60)


def test_a_key_sent_again_after_a_kill_gets_the_answer_given_before(tmp_path: Path, database_url: str) -> None:
    with ServerProcess(tmp_path / "cloud", database_url) as server:
        password = server.admin_password()
        first = asyncio.run(_create(server.url, password))
        server.kill()
        server.start()
        assert asyncio.run(_create(server.url, password)) == first


async def _create(url: str, password: str) -> tuple[int, bytes, int]:
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        cloud = Cloud(client)
        await cloud.sign_in(password)
        sent = [cloud.send(identity.ORG_CREATE, {"name": "once"}, key="the-same") for _ in range(200)]
        answers = await asyncio.gather(*sent)
        refused = {answer.json()["code"] for answer in answers if answer.status_code == 409}
        assert refused <= {"request_in_flight"}
        ((status, content),) = {(answer.status_code, answer.content) for answer in answers if answer.status_code != 409}
        listed = await cloud.call(identity.ORG_LIST)
        return status, content, len(listed.items)


def test_an_address_in_use_is_reported_in_one_line_with_an_alternative(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = _run("server", "--data", str(tmp_path / "cloud"), "--listen", f"127.0.0.1:{port}")
    assert ended.returncode == 2
    first, second = ended.stderr.splitlines()
    assert first == f"gpuaas-platform: cannot listen on 127.0.0.1:{port}: Address already in use"
    assert f"--listen 127.0.0.1:{port + 1}" in second
    assert not (tmp_path / "cloud").exists()


@pytest.mark.parametrize(
    ("url", "exit_code"),
    [
        ("postgresql://me:pass-word@127.0.0.1:1/gpuaas", 75),
        ("mysql://me:pass-word@host/x", 2),
        ("postgresql://me:pass-word@", 75),
    ],
    ids=["nothing listens: a service manager may try again", "another database", "no host"],
)
def test_a_database_that_cannot_be_opened_is_reported_without_its_password(
    tmp_path: Path, url: str, exit_code: int
) -> None:
    ended = _run("server", "--data", str(tmp_path / "cloud"), "--database", url, "--listen", "127.0.0.1:0")
    assert ended.returncode == exit_code, ended.stderr
    assert ended.stderr.startswith("gpuaas-platform: cannot open the store ")
    assert "--database" in ended.stderr
    assert "pass-word" not in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_data_folder_with_other_content_is_reported_without_a_traceback(tmp_path: Path) -> None:
    folder = tmp_path / "cloud"
    folder.mkdir()
    (folder / "gpuaas.sqlite").write_bytes(b"this is no database" * 100)
    ended = _run("server", "--data", str(folder), "--listen", "127.0.0.1:0")
    assert ended.returncode == 2
    assert "file is not a database" in ended.stderr
    file = tmp_path / "file"
    file.write_text("")
    ended = _run("admin", "--data", str(file))
    assert (ended.returncode, "Traceback" in ended.stderr) == (2, False)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--listen", "nowhere"),
        ("--listen", "127.0.0.1:99999"),
        ("--rate-limit-per-s", "nan"),
        ("--artifact-kept-s", "1h"),
        ("--log-level", "loud"),
        ("--task-ttl-s", "9"),
        ("--oidc-issuer", "https://login.example"),
        ("--tls-key-file", "/absent.pem"),
        ("--vault-address", "https://vault.example"),
        ("--sanitise-url", "https://provisioner.example"),
    ],
)
def test_a_wrong_option_is_reported_by_its_name(tmp_path: Path, option: str, value: str) -> None:
    """The exit code is the one with which systemd leaves the service down."""
    ended = _run("server", "--data", str(tmp_path / "cloud"), option, value)
    assert (ended.returncode, option in ended.stderr) == (2, True), ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "cloud").exists()


@pytest.mark.parametrize(
    ("present", "missing"),
    [
        (["--tls-certificate-file", "--tls-key-file"], "--tls-authority-file"),
        (["--sanitise-url=https://provisioner.example"], "--sanitise-token-file"),
    ],
)
def test_a_file_that_does_not_exist_is_named_before_the_start(tmp_path: Path, present: list[str], missing: str) -> None:
    file = tmp_path / "file"
    file.write_text("content")
    given = [word if "=" in word else f"{word}={file}" for word in present]
    ended = _run("server", "--data", str(tmp_path / "cloud"), *given, f"{missing}=/absent/{missing[2:]}")
    assert ended.returncode == 2, ended.stderr
    assert f"there is no file /absent/{missing[2:]}" in ended.stderr
    assert missing in ended.stderr


def test_an_address_of_another_machine_is_not_called_in_use(tmp_path: Path) -> None:
    ended = _run("server", "--data", str(tmp_path / "cloud"), "--listen", "192.0.2.1:7443")
    assert (ended.returncode, "192.0.2.1:7443: Cannot assign" in ended.stderr) == (2, True), ended.stderr
    assert "ip -brief address" in ended.stderr
    assert "Stop the process" not in ended.stderr


def test_the_command_prints_its_release() -> None:
    assert _run("--version").stdout == f"gpuaas-platform {metadata.version('gpuaas-platform')}\n"


def test_the_log_level_leaves_out_what_is_less_important(tmp_path: Path) -> None:
    started = Started(tmp_path / "cloud", "", tmp_path / "log", "--log-level", "error")
    try:
        started.wait_until_ready()
        httpx.get(f"{started.url}/nowhere")
        assert started.interrupt() == 0
        assert '"event"' not in started.log.read_text()
    finally:
        started.process.kill()
        started.process.wait(60)


def _run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return preloaded.run(preloaded.PLATFORM, arguments)


def _is_ready(url: str) -> bool:
    return readyz(int(url.rpartition(":")[2])) == 200
