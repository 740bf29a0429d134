"""`gpuaas-lab provisioner`: an HTTP hook through which the platform has machines reinstalled between projects.

`POST /` starts an attempt and `GET /ATTEMPT_ID` returns its state, as docs/how-to/connect-a-provisioner.md describes.
Attempts are in memory: after a restart the platform sends its orders again, and the machines are reinstalled again.
"""

import hmac
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from gpuaas_lab import errors, shell

_BODY_BYTES_MAX = 65_536
_MAKE_ONE = "openssl rand -hex 32 > {file}"
Answer = dict[str, str]
"""`state` (pending, done or failed) and, for a failure, the `reason`."""


@dataclass(frozen=True)
class Order:
    """The fields of a request that the lab needs."""

    attempt_id: str
    name: str
    token: str
    ca_sha256: str


class Attempts:
    """The attempts since the start. One machine is reinstalled at a time, because the lab has one lock."""

    def __init__(self, reinstall: Callable[[Order], None]) -> None:
        self._reinstall = reinstall
        self._lock = threading.Lock()
        self._answers: dict[str, Answer] = {}

    def begin(self, order: Order) -> Answer:
        """Start the attempt in the background. A repeat changes nothing: the first token of an attempt works too."""
        with self._lock:
            if order.attempt_id not in self._answers:
                self._answers[order.attempt_id] = {"state": "pending"}
                threading.Thread(target=self._run, args=(order,), daemon=True).start()
            return self._answers[order.attempt_id]

    def state(self, attempt_id: str) -> Answer | None:
        with self._lock:
            return self._answers.get(attempt_id)

    def _run(self, order: Order) -> None:
        try:
            self._reinstall(order)
            answer = {"state": "done"}
        except Exception as reason:  # noqa: BLE001 - the platform must get an answer for every failure
            shell.progress(f"cannot reinstall {order.name}: {reason}")
            answer = {"state": "failed", "reason": str(reason)}
        with self._lock:
            self._answers[order.attempt_id] = answer


def serve(host: str, port: int, token: str, attempts: Attempts) -> ThreadingHTTPServer:
    """Return a server that is bound to the address. The caller runs `serve_forever`."""

    class Hook(_Hook):
        secret, work = token, attempts

    try:
        return ThreadingHTTPServer((host, port), Hook)
    except OSError as reason:
        fix = "gpuaas-lab provisioner --listen 127.0.0.1:PORT"
        raise errors.LabError(f"cannot listen on {host}:{port}: {reason.strerror}", fix) from reason


class _Hook(BaseHTTPRequestHandler):
    secret: str
    work: Attempts

    def do_POST(self) -> None:
        if self._is_allowed():
            try:
                size = min(int(self.headers.get("Content-Length", "0")), _BODY_BYTES_MAX)
                self._answer(202, self.work.begin(_order(json.loads(self.rfile.read(size)))))
            except (ValueError, KeyError, TypeError) as reason:
                self._answer(400, {"error": f"the order cannot be read: {reason!r}"})

    def do_GET(self) -> None:
        if self._is_allowed():
            answer = self.work.state(self.path.rpartition("/")[2])
            self._answer(200 if answer else 404, answer or {"error": "no such attempt"})

    def log_message(self, *_: object) -> None:
        """Log nothing per request: the platform polls every few seconds."""

    def _is_allowed(self) -> bool:
        given, wanted = self.headers.get("Authorization", ""), f"Bearer {self.secret}"
        allowed = hmac.compare_digest(given.encode(), wanted.encode())
        if not allowed:
            self._answer(401, {"error": "the bearer token is wrong"})
        return allowed

    def _answer(self, status: int, content: Answer) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _order(content: dict[str, Any]) -> Order:
    enrolment = content["enrolment"]
    texts = (content["attempt_id"], content["node_name"], enrolment["token"], enrolment["ca_sha256"])
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a field is not a text")
    return Order(*texts)


def read_token(file: Path) -> str:
    try:
        token = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise errors.UsageError(f"--token-file {file} cannot be read: {why}", _MAKE_ONE.format(file=file)) from error
    if not token:
        raise errors.UsageError(f"--token-file {file} is empty", _MAKE_ONE.format(file=file))
    return token


def parse_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise errors.UsageError(f"--listen takes HOST:PORT, not {text!r}", "gpuaas-lab provisioner --help")
    return host.strip("[]"), int(port)
