"""An app, a person or a machine puts commands for the terminal into a text, so that the terminal of the operator who
reads it clears its screen, shows a false line, or types for the attacker. The platform refuses such text in requests.
The CLI prints it harmlessly where it was stored before: here a server sends it in every text of every answer."""

import contextlib
import io
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import made_up
import msgspec
import pytest
from gpuaas_cli import kinds, main
from gpuaas_cli.runner import reach, run
from gpuaas_contract import errors, registry
from gpuaas_contract.endpoint import AnyEndpoint
from gpuaas_platform.edge import decode
from gpuaas_sdk.testing import free_port

CHARACTERS = ("\x1b", "\x07", "\x08", "\r", "\x7f", "\x9b", "\u202e", "\u2066")
HOSTILE = "x \x1b[2J\x1b]0;gone\x07 \x9b31m \u202e \r \x7f\nNext\n  y"
ENDPOINTS = [item for item in registry.ENDPOINTS if not item.takes_bytes and item.request.__struct_fields__]

ELSEWHERE = frozenset({"up", "down", "ssh", "events", "login", "logout", "doctor", "explain", "schema"})
"""Commands that start other programs, have no end, or do not show what a server sends."""
NOT_TEXT = frozenset({"usage export", "agent register", "app init", "app conformance", "artifact signature"})
NOT_TEXT |= {"context list", "context use"}
"""Copies a file to a pipe as it is; needs an archive; ask no server."""
REASON = "a reason of ten characters"
DIGEST = f"sha256:{'a' * 64}"
FILE = "FILE"
"""Means the file with a body that the endpoint accepts."""
ARGUMENTS = {
    "agent upgrade": ["1", "--to", "1", "--reason", REASON],
    "artifact publish": ["1", "--media-type", "text/plain", "--url", "http://x", "--size", "1", "--digest", DIGEST],
    "artifact sign": ["1", FILE],
    "binding grant": ["1", "viewer"],
    "break-glass": ["1", "--reason", REASON, "--yes"],
    "can-i": ["apps.instance.create"],
    "entitlement request": ["tiny"],
    "node set": ["1", "--sku", "a", "--reason", REASON],
    "operator set": ["1", "--any", "--reason", REASON],
    "people set": ["1", "--org", "1", "--login", "ada", "--uid", "20001"],
    "reconfigure": ["1", "--previous"],
    "service-account key": ["1", "--key-file", "-"],
    "service-account rotate-key": ["1", "1", "--key-file", "-"],
}
"""Of commands that need more than what they require."""
PLATFORM = [sys.executable, "-m", "gpuaas_platform.main"]


@pytest.mark.parametrize("char", CHARACTERS, ids=lambda char: f"U+{ord(char):04X}")
def test_every_request_with_such_text_is_refused_by_the_name_of_its_field(char: str) -> None:
    tried = 0
    for endpoint in ENDPOINTS:
        if endpoint.audience != "node" and _has_text(endpoint, char):
            document = msgspec.json.encode(made_up.of(msgspec.inspect.type_info(endpoint.request), f"a{char}b"))
            for form in (document, json.dumps(json.loads(document)).encode()):
                with pytest.raises(errors.ValidationFailed, match=f"control character U\\+{ord(char):04X}") as refused:
                    decode.body_reader(endpoint)(form)
                assert refused.value.message.isprintable(), endpoint.name
                assert refused.value.details["field"], endpoint.name
            tried += 1
    assert tried > 50


def test_what_a_node_reports_is_accepted_and_harmless() -> None:
    """The text comes from programs on the machine. A refused result would be a task that never ends."""
    for endpoint in ENDPOINTS:
        if endpoint.audience == "node":
            document = made_up.of(msgspec.inspect.type_info(endpoint.request), HOSTILE)
            stored = msgspec.json.encode(decode.body_reader(endpoint)(msgspec.json.encode(document))).decode()
            assert not [char for char in CHARACTERS if char in stored], endpoint.name


def test_a_real_server_refuses_such_text_and_takes_secrets_as_they_are(tmp_path: Path) -> None:
    with _platform(tmp_path) as (url, password), httpx.Client(base_url=url) as client:
        token = client.post("/api/v1/auth/login", json={"name": "admin", "password": password}).json()["access_token"]
        client.headers["Authorization"] = f"Bearer {token}"
        body = b'{"name":"ada","password":"correct \\u001b[2J \xc2\x9b horse"}'
        assert _post(client, "/api/v1/admin/users", body).status_code == 201
        for name in (b"a\\u001b[2J", b"a\xc2\x9b2J", b"a\xe2\x80\xae"):
            answer = _post(client, "/api/v1/orgs", b'{"first_admin":"admin","name":"%b"}' % name)
            assert (answer.status_code, answer.json()["details"]["field"]) == (400, "name")
            assert answer.text.isprintable()
        for query in ("name=%1b[2J", "name=%c2%9b"):
            answer = client.get(f"/api/v1/projects?{query}")
            assert (answer.status_code, answer.json()["details"]["field"]) == (400, "name")
        assert client.get("/api/v1/projects/a%1b").status_code == 400


@pytest.mark.parametrize("form", ["table", "json", "refusal"])
def test_no_command_prints_them(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "body.json"
    with _hostile_server(refuses=form == "refusal") as (url, calls):
        for name, value in {"HOME": tmp_path, "SERVER": url, "TOKEN": "t", "PROJECT": "p"}.items():
            monkeypatch.setenv(f"GPUAAS_{name}", str(value))
        for line in _lines(file):
            monkeypatch.setattr(sys, "stdin", io.StringIO("a secret\na secret\n"))
            calls.clear()
            main.run([*line, "-o", "table" if form == "refusal" else form])
            printed = "".join(capsys.readouterr())
            assert calls, f"{line} did not ask the server: {printed}"
            assert printed, line
            assert not [char for char in printed if not char.isprintable() and char not in "\n\t"], line


def _lines(file: Path) -> Iterator[list[str]]:
    """Yield a line for every command that shows what a server sends, and for every kind of `get`."""
    for _, words, command in reach.leaves():
        if words == "get":
            yield from (["get", kind.plural, *(["1"] if kind.of_instance else [])] for kind in kinds.KINDS)
        elif words.split()[0] not in ELSEWHERE and words not in NOT_TEXT:
            if endpoints := run.endpoints_of(command.callback)[0]:
                file.write_bytes(msgspec.json.encode(made_up.of(msgspec.inspect.type_info(endpoints[0].request), "a")))
            chosen = [str(file) if word == FILE else word for word in ARGUMENTS.get(words, ())]
            yield [*words.split(), *(chosen or _arguments(command, file))]


def _has_text(endpoint: AnyEndpoint, char: str) -> bool:
    """Return whether the request has a text that is no secret value."""
    fields = getattr(msgspec.inspect.type_info(endpoint.request), "fields", ())
    kinds = [field.type for field in fields if not (getattr(field.type, "extra", None) or {}).get("secret")]
    return any(char in text for kind in kinds for text in _texts(made_up.of(kind, char)))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from _texts(inner)


def _post(client: httpx.Client, path: str, body: bytes) -> httpx.Response:
    headers = {"Content-Type": "application/json", "X-Idempotency-Key": str(hash(body))}
    return client.post(path, content=body, headers=headers)


def _arguments(command: Any, file: Path) -> list[str]:
    """Return arguments that the command line accepts: the server does not look at them. Confirms what must be."""
    words = ["--yes"] if any("--yes" in parameter.opts for parameter in command.params) else []
    for parameter in command.params:
        if not parameter.required:
            continue
        metavar = parameter.metavar or ""
        value = str(file) if "FILE" in metavar or metavar in ("MANIFEST", "BUILD") else "1"
        if parameter.opts[0] == "--reason":
            value = REASON
        if re.fullmatch(r"[a-z-]+(\|[a-z-]+)+", metavar):
            value = metavar.partition("|")[0]
        words += [value] if parameter.param_type_name == "argument" else [parameter.opts[0], value]
    return words


@contextlib.contextmanager
def _platform(folder: Path) -> Iterator[tuple[str, str]]:
    data, port = ["--data", str(folder / "data")], free_port()
    password = subprocess.run([*PLATFORM, "admin", *data], capture_output=True, text=True, check=True).stdout.strip()
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [*PLATFORM, "server", *data, "--listen", f"127.0.0.1:{port}"], stdout=log, stderr=log
        )
    try:
        url = f"http://127.0.0.1:{port}"
        with httpx.Client(transport=httpx.HTTPTransport(retries=8)) as client:  # it waits longer each time
            assert client.get(f"{url}/livez").status_code == 200, (folder / "log").read_text()
        yield url, password
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def _hostile_server(*, refuses: bool) -> Iterator[tuple[str, list[str]]]:
    """Yield the address of a server whose answers have hostile text everywhere, and the endpoints that were called."""
    calls: list[str] = []
    routes = [(item, re.compile(re.sub(r"{\w+}", "[^/]+", item.path))) for item in registry.ENDPOINTS]

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            path = self.path.partition("?")[0]
            endpoint = next(item for item, route in routes if item.method == self.command and route.fullmatch(path))
            calls.append(endpoint.name)
            status, content = (409, _problem()) if refuses else (200, _answer(endpoint))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), "ETag": '"1"'}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = handle_any

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", calls
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _problem() -> bytes:
    problem: dict[str, Any] = made_up.of(msgspec.inspect.type_info(errors.Problem), HOSTILE)
    return msgspec.json.encode({**problem, "code": "conflict", "status": 409, "retryable": False})


def _answer(endpoint: AnyEndpoint) -> bytes:
    if endpoint.media_type != "application/json":
        return HOSTILE.encode()
    answer = made_up.of(msgspec.inspect.type_info(endpoint.response), HOSTILE)
    return msgspec.json.encode({**answer, "next_page_token": None} if "next_page_token" in answer else answer)
