"""A proxy in front of the platform that records changes: tests compare what the console sends with what the command
line sends. It refuses the changes, so that nothing is changed, or passes them on."""

import contextlib
import http.server
import json
import shlex
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

_REFUSAL = {
    "type": "about:blank",
    "title": "Conflict",
    "status": 409,
    "code": "conflict",
    "message": "The recorder refuses every change.",
    "correlation_id": "cor_recorded",
    "details": {},
    "retryable": False,
    "fix": "",
}
_KEPT = ("authorization", "content-type", "x-idempotency-key", "if-match", "accept")
ASKING = ("/auth/can-i", "/policy/explain")
"""Requests that change nothing although their method is POST."""


@dataclass(frozen=True)
class Sent:
    method: str
    path: str
    body: Any
    if_match: str


@dataclass
class Recorder:
    url: str
    sent: list[Sent] = field(default_factory=list)

    def take(self) -> Sent:
        """Return the only change that was sent since the last call."""
        assert len(self.sent) == 1, self.sent
        return self.sent.pop()


def assert_same(first: Sent, second: Sent, **names: str) -> None:
    """Compare two requests. `names` has the ids of what one of them may give by its name."""
    assert _named(first.path, names) == _named(second.path, names)
    assert (first.method, first.if_match) == (second.method, second.if_match)
    assert _filled(first.body) == _filled(second.body)


def _named(path: str, names: Mapping[str, str]) -> str:
    for name, identity in names.items():
        path = path.replace(identity, name)
    return path.removesuffix("?wait_s=20.0")


def _filled(body: Any) -> Any:
    """Leave out what has the value of an empty field: a client may send or omit it."""
    return {name: value for name, value in (body or {}).items() if value not in (None, "", [], {}, False)}


def words_of(line: str) -> tuple[list[str], str]:
    """Return the words after `gpuaas` of a command line that the console shows, and what the command reads."""
    words, given = shlex.split(line), ""
    if words[0] == "printf":
        given, words = words[2], words[4:]
    return words[1:], given


@contextlib.contextmanager
def recording(server: str, *, refuses: bool = True) -> Iterator[Recorder]:
    sent: list[Sent] = []
    with httpx.Client(base_url=server, timeout=60, trust_env=False) as client:

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                content = self.rfile.read(int(self.headers.get("content-length") or 0))
                is_change = self.command != "GET" and "dry_run=true" not in self.path
                if is_change and not self.path.endswith(ASKING):
                    body = json.loads(content) if content else None
                    sent.append(Sent(self.command, self.path, body, self.headers.get("if-match") or ""))
                    if refuses:
                        self._answer(409, {"content-type": "application/problem+json"}, json.dumps(_REFUSAL).encode())
                        return
                headers = {name: self.headers[name] for name in _KEPT if name in self.headers}
                answer = client.request(self.command, self.path, content=content, headers=headers)
                kept = {name: answer.headers[name] for name in ("content-type", "etag") if name in answer.headers}
                self._answer(answer.status_code, kept, answer.content)

            do_GET = do_POST = do_PUT = do_DELETE = _serve

            def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
                self.send_response(status)
                for name, value in {**headers, "content-length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        proxy.daemon_threads = True
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        try:
            yield Recorder(f"http://127.0.0.1:{proxy.server_address[1]}", sent)
        finally:
            proxy.shutdown()
            thread.join()
            proxy.server_close()
