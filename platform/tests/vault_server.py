"""The part of Vault's HTTP API that custody uses, as its documentation describes it: KV version 2, tokens, the seal.

Written against the published API, not against a running Vault: none was at hand. It keeps what the tests need to be
honest: versions that count up per path, data that is gone after its metadata was deleted, answers in Vault's form."""

import contextlib
import http.server
import json
import threading
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

MOUNT = "secret"


@dataclass
class VaultServer:
    token: str = "s.first"
    sealed: bool = False
    kept: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Path -> its versions, the first first."""
    url: str = ""

    def answer(self, method: str, path: str, query: dict[str, str], token: str, body: Any) -> tuple[int, Any]:
        if path == "/v1/sys/seal-status":
            return 200, {"sealed": self.sealed, "type": "shamir", "t": 3, "n": 5, "progress": 0}
        if self.sealed:
            return 503, {"errors": ["Vault is sealed"]}
        if token != self.token:
            return 403, {"errors": ["permission denied"]}
        _, _, mount, kind, name = path.split("/", 4)
        if mount != MOUNT:
            return 404, {"errors": [f"no handler for route {path}"]}
        return self._kv(method, kind, name, query, body)

    def _kv(self, method: str, kind: str, name: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        if (method, kind) == ("DELETE", "metadata"):
            self.kept.pop(name, None)
            return 204, None
        if (method, kind) == ("POST", "data"):
            versions = self.kept.setdefault(name, [])
            versions.append(body["data"])
            return 200, {"data": _metadata(len(versions))}
        if (method, kind) == ("GET", "data"):
            versions = self.kept.get(name, [])
            number = int(query.get("version", len(versions)))
            if not 0 < number <= len(versions):
                return 404, {"errors": []}
            return 200, {"data": {"data": versions[number - 1], "metadata": _metadata(number)}}
        return 405, {"errors": ["unsupported operation"]}


@contextlib.contextmanager
def running() -> Iterator[VaultServer]:
    vault = VaultServer()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(vault))
    server.daemon_threads = True
    vault.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield vault
    finally:
        server.shutdown()
        server.server_close()
        thread.join(60)


def _metadata(version: int) -> dict[str, Any]:
    return {"version": version, "created_time": "2026-01-01T00:00:00Z", "deletion_time": "", "destroyed": False}


def _handler_of(vault: VaultServer) -> type[http.server.BaseHTTPRequestHandler]:
    lock = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        def _respond(self) -> None:
            url = urllib.parse.urlsplit(self.path)
            query = dict(urllib.parse.parse_qsl(url.query))
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = json.loads(content) if content else None
            token = self.headers.get("X-Vault-Token", "")
            with lock:
                status, answer = vault.answer(self.command, url.path, query, token, body)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            if answer is not None:
                self.wfile.write(json.dumps(answer).encode())

        do_GET = do_POST = do_PUT = do_DELETE = _respond

        def log_message(self, format: str, *arguments: object) -> None:
            """The tests look at what is kept."""

    return Handler
