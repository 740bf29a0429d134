"""A fake platform for the node API: it enrols nodes, verifies signatures and delivers signed tasks."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import http.server
import json
import secrets
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gpuaas_agent import ed25519, identity
from gpuaas_agent.testing import openssl

CALL_TIMEOUT_S = 60.0
"""Time limit of a wait in a test, so that a failing test does not hang."""
_RESERVED: list[socket.socket] = []


def poll(condition: Callable[[], bool], timeout_s: float = CALL_TIMEOUT_S) -> None:
    """Wait until the condition is true. For conditions on requests, use `Platform.until`."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"the condition was not true within {timeout_s} s"
        time.sleep(0.02)


@dataclasses.dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


@dataclasses.dataclass(frozen=True)
class Queued:
    task_id: str
    envelope: dict[str, str]
    is_urgent: bool


class Problem(Exception):
    """An error with which the fake platform answers a request."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code


class Platform:
    """A fake platform that can be stopped and started again on the same port, with its data."""

    def __init__(
        self,
        directory: Path,
        tls: tuple[Path, Path] | None = None,
        ca_pem: str = "",
        address: str = "127.0.0.1",
    ) -> None:
        self.task_key = openssl.make_key(directory / "task.key")
        self.enrolment_token = "gpe_" + secrets.token_hex(8)
        self.ca_pem = ca_pem
        self.token_life_s = 600.0
        self.heartbeat_interval_s = 30.0
        self.requests: list[Request] = []
        self.nodes: dict[str, str] = {}
        self.public_keys: dict[str, str] = {}
        self.access_tokens: dict[str, str] = {}
        self.results: list[tuple[str, dict[str, Any]]] = []
        self.artifacts: dict[str, bytes] = {}
        """The content of each placement id."""
        self.artifact_refusal: Problem | None = None
        self.agent_releases: dict[str, bytes] = {}
        """The content for each requested digest; tests may store content that has another digest."""
        self.release_signatures: dict[str, dict[str, str]] = {}
        """The version and the signature that are sent for each digest; none: the answer has neither."""
        self.before_answer: Callable[[Request], None] = lambda request: None
        self.refuse_result: Callable[[], int | None] = lambda: None
        self.keeps_connections = True
        self.connections_made = 0
        self._directory = directory
        self._tls = tls
        self._address = address
        self._port = _reserved_port(address)
        self._queue: list[Queued] = []
        self._changed = threading.Condition()
        self._open: set[socket.socket] = set()
        self._server: http.server.ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{self._address}:{self._port}"

    def start(self) -> None:
        server = http.server.ThreadingHTTPServer((self._address, self._port), _handler_of(self))
        server.daemon_threads = True
        if self._tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*(str(path) for path in self._tls))
            # Each connection does its handshake in its own thread: a client that disconnects must not stop this server.
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        self._server = server
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self) -> None:
        server, self._server = self._server, None
        with self._changed:
            self._changed.notify_all()
        if server is not None:
            server.shutdown()
            server.server_close()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                # The shutdown of TLS would wait for the client, so only the socket is shut down.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    @contextlib.contextmanager
    def serving(self, connection: socket.socket) -> Iterator[None]:
        self.connections_made += 1
        self._open.add(connection)
        try:
            yield
        finally:
            self._open.discard(connection)

    def until(self, condition: Callable[[], bool], timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Wait until the condition is true. It is checked after every request."""
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            while not condition():
                left_s = deadline_s - time.monotonic()
                last = [f"{request.method} {request.path}" for request in self.requests[-10:]]
                assert left_s > 0, (
                    f"the condition was not true within {timeout_s} s; last requests: {last}, results: {self.results}"
                )
                self._changed.wait(min(left_s, 0.1))

    def seen(self, method: str = "", path: str = "") -> list[Request]:
        return [request for request in self.requests if request.method.startswith(method) and path in request.path]

    def sign(self, payload: str) -> dict[str, str]:
        signature = base64.b64encode(ed25519.sign(self.task_key, payload.encode())).decode()
        return {"payload": payload, "signature": signature}

    def task(self, node_id: str, task_type: str, params: Any = None, **changes: Any) -> dict[str, str]:
        """Return a signed task; `changes` replace fields of its payload."""
        now_s = int(time.time())
        payload: dict[str, Any] = {"task_id": "task_" + secrets.token_hex(6), "node_id": node_id, "type": task_type}
        payload.update(params=params or {}, issued_at_s=now_s, expires_at_s=now_s + 300, correlation_id="corr-1")
        payload.update(changes)
        return self.sign(json.dumps(payload))

    def deliver(self, envelope: dict[str, str], *, is_urgent: bool = False) -> None:
        with self._changed:
            self._queue.append(Queued(json.loads(envelope["payload"])["task_id"], envelope, is_urgent))
            self._changed.notify_all()

    def forget_access_tokens(self) -> None:
        self.access_tokens.clear()

    def answer(self, request: Request) -> dict[str, Any] | bytes:
        self.requests.append(request)
        answer = self._route(request)
        self.before_answer(request)
        return answer

    def announce(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _route(self, request: Request) -> dict[str, Any] | bytes:
        path = urllib.parse.urlsplit(request.path).path
        public = {"/node/v1/trust": self._trust, "/node/v1/enrol": self._enrol, "/node/v1/token": self._token}
        if path in public:
            return public[path](request)
        if self._caller(request) is None:
            raise Problem(401, "unauthenticated")
        if path == "/node/v1/status":
            task = self._next_task(request) if "wait_s=" in request.path else {}
            return {"heartbeat_interval_s": self.heartbeat_interval_s, **task}
        if path == "/node/v1/tasks":
            return self._next_task(request)
        if path.startswith("/node/v1/artifact-content/"):
            return self._artifact(path.split("/")[-1])
        if path.startswith("/node/v1/agent-releases/"):
            return self._agent_release(path.split("/")[-1])
        return self._result(path.split("/")[-2], request)

    def _trust(self, _request: Request) -> dict[str, Any]:
        return {"ca_pem": self.ca_pem, "task_public_key_pem": ed25519.public_key_pem(self.task_key)}

    def _enrol(self, request: Request) -> dict[str, Any]:
        if request.body["token"] != self.enrolment_token:
            raise Problem(401, "credentials_invalid")
        key = request.headers["X-Idempotency-Key"]
        if key not in self.nodes:
            self.nodes[key] = "node_" + secrets.token_hex(4)
            self.public_keys[self.nodes[key]] = request.body["public_key_pem"]
        return {"node_id": self.nodes[key]}

    def _token(self, request: Request) -> dict[str, Any]:
        body = request.body
        public_key = self._directory / (body["node_id"] + ".pub")
        public_key.write_text(self.public_keys[body["node_id"]])
        message = identity.token_message(body["node_id"], body["timestamp_s"], body["nonce"])
        if not ed25519.verify(public_key, message, base64.b64decode(body["signature"])):
            raise Problem(401, "credentials_invalid")
        token = secrets.token_hex(8)
        self.access_tokens[token] = body["node_id"]
        return {"access_token": token, "expires_in_s": self.token_life_s}

    def _caller(self, request: Request) -> str | None:
        return self.access_tokens.get(request.headers.get("Authorization", "").replace("Bearer ", ""))

    def _artifact(self, placement_id: str) -> bytes:
        if self.artifact_refusal is not None:
            raise self.artifact_refusal
        if placement_id not in self.artifacts:
            raise Problem(404, "not_found")
        return self.artifacts[placement_id]

    def _agent_release(self, sha256: str) -> dict[str, Any]:
        if sha256 not in self.agent_releases:
            raise Problem(404, "not_found")
        content = base64.b64encode(self.agent_releases[sha256]).decode()
        return {"sha256": sha256, "content": content, **self.release_signatures.get(sha256, {})}

    def _next_task(self, request: Request) -> dict[str, Any]:
        """Return the first task; for a busy node, the first urgent one. It stays queued until its result arrives."""
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(request.path).query)
        busy_with = query.get("busy_with", [""])[0]

        def candidates() -> list[Queued]:
            return [task for task in self._queue if task.is_urgent or not busy_with] if self._server else []

        def is_over() -> bool:
            return self._server is None or bool(busy_with and all(task.task_id != busy_with for task in self._queue))

        with self._changed:
            self._changed.wait_for(lambda: bool(candidates()) or is_over(), float(query["wait_s"][0]))
            return next(({"task": task.envelope, "is_urgent": task.is_urgent} for task in candidates()), {"task": None})

    def _result(self, task_id: str, request: Request) -> dict[str, Any]:
        status = self.refuse_result()
        if status is not None:
            raise Problem(status, "refused_by_the_test")
        with self._changed:
            self.results.append((task_id, request.body))
            self._queue = [task for task in self._queue if task.task_id != task_id]
            self._changed.notify_all()
        return {"task_id": task_id}


def _reserved_port(address: str) -> int:
    """Return a port that stays reserved while the platform is stopped: a socket that does not listen holds it."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((address, 0))
    _RESERVED.append(reserved)
    return int(reserved.getsockname()[1])


def _handler_of(platform: Platform) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1" if platform.keeps_connections else "HTTP/1.0"

        def do_GET(self) -> None:
            self._respond()

        def do_POST(self) -> None:
            self._respond()

        def do_PUT(self) -> None:
            self._respond()

        def log_message(self, format: str, *arguments: object) -> None:
            """Log nothing: `Platform.requests` has all requests."""

        def handle(self) -> None:
            try:
                with platform.serving(self.connection):
                    super().handle()
            except OSError:
                # The client disconnected or rejected the certificate; the test checks that on the client's side.
                self.close_connection = True

        def finish(self) -> None:
            try:
                super().finish()
            except OSError:
                self.close_connection = True

        def _respond(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            request = Request(self.command, self.path, dict(self.headers), json.loads(content) if content else None)
            try:
                status, answer = 200, platform.answer(request)
                content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            except Problem as problem:
                status = problem.status
                content = json.dumps({"code": problem.code, "message": "set by the test"}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            platform.announce()

    return Handler
