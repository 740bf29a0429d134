"""The hook of the lab's provisioner: one attempt per id, and answers only for callers with its token."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from gpuaas_lab import errors, provisioner

ORDER = {"attempt_id": "a1", "node_name": "gpu-1", "enrolment": {"token": "enrol_1", "ca_sha256": "f00d"}}


TOKEN = "secret"


class Installer:
    """Reinstalls a machine when the test lets it."""

    def __init__(self) -> None:
        self.started: list[provisioner.Order] = []
        self.outcome: Queue[str] = Queue()
        """What the next installation fails with; empty: it succeeds."""

    def __call__(self, order: provisioner.Order) -> None:
        self.started.append(order)
        if why := self.outcome.get():
            raise errors.LabError(why)


class Caller:
    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, method: str, path: str = "", body: Any = None, token: str = TOKEN) -> tuple[int, Any]:
        content = json.dumps(body).encode() if body is not None else None
        headers = {"Authorization": f"Bearer {token}"}
        request = urllib.request.Request(f"{self.url}{path}", content, headers, method=method)
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())


@pytest.fixture
def installer() -> Installer:
    return Installer()


@pytest.fixture
def call(installer: Installer) -> Iterator[Caller]:
    with provisioner.serve("127.0.0.1", 0, TOKEN, provisioner.Attempts(installer)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Caller(f"http://127.0.0.1:{server.server_address[1]}/hook")
        server.shutdown()
        thread.join()


def ended(call: Caller) -> Any:
    while (answer := call("GET", "/a1")[1])["state"] == "pending":
        pass
    return answer


def test_an_attempt_is_unknown_then_pending_then_done(call: Caller, installer: Installer) -> None:
    assert call("GET", "/a1")[0] == 404
    assert call("POST", "", ORDER) == (202, {"state": "pending"})
    assert call("GET", "/a1") == (200, {"state": "pending"})
    installer.outcome.put("")
    assert ended(call) == {"state": "done"}
    assert installer.started == [provisioner.Order("a1", "gpu-1", "enrol_1", "f00d")]


def test_a_repeated_order_does_not_install_again(call: Caller, installer: Installer) -> None:
    call("POST", "", ORDER)
    installer.outcome.put("")
    assert ended(call) == {"state": "done"}
    assert call("POST", "", {**ORDER, "enrolment": {"token": "enrol_2", "ca_sha256": "f00d"}})[1] == {"state": "done"}
    assert len(installer.started) == 1


def test_a_failure_has_its_reason(call: Caller, installer: Installer) -> None:
    call("POST", "", ORDER)
    installer.outcome.put("lab local has no machine gpu-1")
    assert ended(call) == {"state": "failed", "reason": "lab local has no machine gpu-1"}


def test_a_caller_without_the_token_starts_nothing(call: Caller, installer: Installer) -> None:
    assert call("POST", "", ORDER, token="wrong")[0] == 401
    assert call("GET", "/a1", token="")[0] == 401
    assert installer.started == []


@pytest.mark.parametrize("body", [{}, [], {**ORDER, "enrolment": {}}, {**ORDER, "node_name": 1}])
def test_an_order_that_cannot_be_read_is_refused(call: Caller, installer: Installer, body: Any) -> None:
    assert call("POST", "", body)[0] == 400
    assert installer.started == []


def test_an_address_that_is_in_use_is_named(call: Caller) -> None:
    port = int(call.url.split(":")[2].split("/")[0])
    with pytest.raises(errors.LabError, match=f"cannot listen on 127.0.0.1:{port}"):
        provisioner.serve("127.0.0.1", port, TOKEN, provisioner.Attempts(lambda order: None))


@pytest.mark.parametrize("content", [None, "", " \n"], ids=["missing", "empty", "blank"])
def test_a_file_without_a_token_is_refused_with_a_command_that_makes_one(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "hook.token"
    if content is not None:
        file.write_text(content)
    with pytest.raises(errors.UsageError, match=f"openssl rand -hex 32 > {file}"):
        provisioner.read_token(file)


def test_a_token_has_no_blanks_around_it(tmp_path: Path) -> None:
    (tmp_path / "hook.token").write_text("secret\n")
    assert provisioner.read_token(tmp_path / "hook.token") == "secret"
