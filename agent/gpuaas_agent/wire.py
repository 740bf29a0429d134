"""Send JSON requests to the platform, over TLS that trusts one CA, without redirects. Used by `trust` and `identity`.

Each thread keeps one connection open, so that a heartbeat or a poll needs no new handshake.
"""

from __future__ import annotations

import dataclasses
import http.client
import json
import random
import ssl
import threading
import urllib.parse
import weakref
from collections.abc import Callable, Generator
from typing import Any

from gpuaas_agent import AGENT_VERSION

ANSWER_BYTES_MAX = 4 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024
TEMPORARY_STATUSES = frozenset({408, 425, 429})


class WireError(Exception):
    """A call to the platform failed."""


class Unreachable(WireError):
    """The call got no usable response: no connection, TLS failure, timeout, or not JSON. It can be repeated."""


class Rejected(WireError):
    """The platform answered with a status other than 2xx."""

    def __init__(self, status: int, code: str, message: str, retryable: bool) -> None:
        super().__init__(f"the platform answered {status} {code}: {message}")
        self.status = status
        self.code = code
        self.retryable = retryable


@dataclasses.dataclass(frozen=True)
class Server:
    url: str
    tls: ssl.SSLContext | None
    """None only for http on loopback; `config.load` has checked this."""
    _per_thread: threading.local = dataclasses.field(default_factory=threading.local, compare=False, repr=False)

    def call(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        token: str | None = None,
        idempotency_key: str | None = None,
        correlation_id: str | None = None,
        timeout_s: float = 30,
    ) -> dict[str, Any]:
        headers = {"Accept": "application/json", "User-Agent": "gpuaas-agent/" + AGENT_VERSION}
        optional = {
            "Authorization": "Bearer " + token if token else None,
            "X-Idempotency-Key": idempotency_key,
            "X-Correlation-ID": correlation_id,
            "Content-Type": "application/json" if body is not None else None,
        }
        headers.update({name: value for name, value in optional.items() if value})
        content = None if body is None else encoded(body)
        return _answer(*self._exchange(method, path, content, headers, timeout_s))

    def download(self, path: str, token: str, timeout_s: float = 60) -> Generator[bytes, None, None]:
        """Yield the bytes of the response. They may end early: the caller must check the length. It must close this."""
        connection = self._connection(timeout_s)
        headers = {"Authorization": "Bearer " + token, "User-Agent": "gpuaas-agent/" + AGENT_VERSION}
        try:
            connection.request("GET", urllib.parse.urlsplit(self.url).path + path, headers=headers)
            with connection.getresponse() as response:
                if response.status != 200:
                    _answer(response.status, response.read(ANSWER_BYTES_MAX))
                    raise Unreachable(f"GET {self.url}{path}: the response has status {response.status}")
                yield from iter(lambda: response.read(CHUNK_BYTES), b"")
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"GET {self.url}{path}: {error or type(error).__name__}") from error
        finally:
            connection.close()

    def _exchange(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str], timeout_s: float
    ) -> tuple[int, bytes]:
        connection = self._thread_connection(timeout_s)

        def send() -> http.client.HTTPResponse:
            connection.request(method, urllib.parse.urlsplit(self.url).path + path, body=content, headers=headers)
            return connection.getresponse()

        try:
            response = _repeat_if_closed(connection, send)
            answer = response.status, response.read(ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException, ValueError) as error:
            connection.close()
            raise Unreachable(f"{method} {self.url}{path}: {error or type(error).__name__}") from error
        if not response.isclosed():
            # Otherwise the rest of this response would be read as the next one.
            connection.close()
        return answer

    def _thread_connection(self, timeout_s: float) -> http.client.HTTPConnection:
        """Return the connection of this thread. If it is closed, http.client opens it again by itself."""
        stored: _ThreadConnection | None = getattr(self._per_thread, "stored", None)
        if stored is None:
            stored = self._per_thread.stored = _ThreadConnection(self._connection(timeout_s))
        connection = stored.connection
        connection.timeout = timeout_s
        if connection.sock is not None:
            connection.sock.settimeout(timeout_s)
        return connection

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        url = urllib.parse.urlsplit(self.url)
        host = url.hostname or ""
        if self.tls is None:
            return http.client.HTTPConnection(host, url.port, timeout=timeout_s)
        return http.client.HTTPSConnection(host, url.port, timeout=timeout_s, context=self.tls)


class _ThreadConnection:
    """The connection of a thread, closed when the thread or the Server ends. At exit it is left: a poll may use it."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self.connection = connection
        weakref.finalize(self, connection.close).atexit = False


def verified(url: str, ca_pem: str) -> Server:
    """Return a server whose certificate must be signed by exactly this CA and name this host or address."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.minimum_version = ssl.TLSVersion.TLSv1_2
    tls.load_verify_locations(cadata=ca_pem)
    return Server(url, tls)


def unverified(url: str) -> Server:
    """Return a server for the first contact only: `trust` checks its CA's fingerprint before anything is sent."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname = False
    tls.verify_mode = ssl.CERT_NONE
    return Server(url, tls)


class Backoff:
    """Waits longer after each failure, with jitter; call `reset` after a success. Each loop has its own."""

    def __init__(self, stop: threading.Event, first_s: float = 0.5, longest_s: float = 15) -> None:
        self._stop = stop
        self._first_s = first_s
        self._longest_s = longest_s
        self._next_s = first_s

    def wait(self) -> None:
        self._stop.wait(self._next_s * random.uniform(0.5, 1.0))
        self._next_s = min(self._next_s * 2, self._longest_s)

    def reset(self) -> None:
        self._next_s = self._first_s


def _repeat_if_closed(
    connection: http.client.HTTPConnection, send: Callable[[], http.client.HTTPResponse]
) -> http.client.HTTPResponse:
    """Send the request. If the platform has closed the open connection, send it again over a new one.

    Sending twice is harmless: heartbeats and polls can be repeated, results and enrolments have an idempotency key,
    and a token request that the platform received before is refused and made again.
    """
    is_reused = connection.sock is not None
    try:
        return send()
    except (ConnectionError, ssl.SSLError):
        connection.close()
        if not is_reused:
            raise
    return send()


def encoded(body: dict[str, Any]) -> bytes:
    """Return a body as JSON. The keys are sorted, because a repeated request must have the same bytes as the first one.

    Names of files need not be valid UTF-8, and every user can make such files. The platform accepts only UTF-8, so
    what is not valid becomes a question mark."""
    return json.dumps(body, sort_keys=True, ensure_ascii=False).encode(errors="replace")


def _answer(status: int, content: bytes) -> dict[str, Any]:
    if 200 <= status < 300 and not content:
        return {}
    try:
        answer = json.loads(content)
    except ValueError:
        answer = None
    if 200 <= status < 300:
        if not isinstance(answer, dict):
            raise Unreachable(f"the response with status {status} is not a JSON object")
        return answer
    raise _rejected(status, answer if isinstance(answer, dict) else {})


def _rejected(status: int, problem: dict[str, Any]) -> Rejected:
    message = str(problem.get("message") or problem.get("detail") or "no message")[:300]
    retryable = status >= 500 or status in TEMPORARY_STATUSES or problem.get("retryable") is True
    return Rejected(status, str(problem.get("code") or "unknown")[:100], message, retryable)
