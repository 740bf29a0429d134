"""The identity of this node: its private key, its enrolment, and the client that makes authenticated calls."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from gpuaas_agent import config, ed25519, errors, files, log, wire

RENEW_AT_SHARE = 0.8


def enrol(
    server: wire.Server,
    settings: config.Config,
    state: Path,
    describe: Callable[[], dict[str, Any]],
    stop: threading.Event,
) -> str:
    """Return the node's id; enrol the node on the first start. After a crash, the next start completes an enrolment."""
    node_file = state / "node.json"
    known = files.read(node_file)
    if known is None:
        node_id = _send_enrolment(server, settings, state, describe, stop)
        files.write_atomic(node_file, json.dumps({"node_id": node_id}).encode(), 0o600)
        log.info("node.enrolled", node_id=node_id)
    else:
        node_id = str(json.loads(known)["node_id"])
    files.remove(state / "enrolment.json")
    config.forget_token(settings.path)
    return node_id


def token_message(node_id: str, timestamp_s: int, nonce: str) -> bytes:
    return f"gpuaas-node-token\n{node_id}\n{timestamp_s}\n{nonce}".encode()


class NodeClient:
    """Calls the platform with a token of this node. The token is kept in memory only; all threads share it."""

    def __init__(self, server: wire.Server, node_id: str, private_key: Path) -> None:
        self.node_id = node_id
        self.server = server
        self._private_key = private_key
        self._lock = threading.Lock()
        self._token: str | None = None
        self._renew_at_s = 0.0

    def call(self, method: str, path: str, body: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        token = self._current_token()
        try:
            return self.server.call(method, path, body, token=token, **options)
        except wire.Rejected as error:
            if error.status != 401:
                raise
        self._discard(token)
        return self.server.call(method, path, body, token=self._current_token(), **options)

    def download(self, path: str) -> Generator[bytes, None, None]:
        """Yield the bytes of the response. A refused token is discarded, so that the next attempt gets a new one."""
        token = self._current_token()
        try:
            yield from self.server.download(path, token)
        except wire.Rejected as error:
            if error.status != 401:
                raise
            self._discard(token)
            raise wire.Unreachable(str(error)) from error

    def _current_token(self) -> str:
        with self._lock:
            if self._token is None or time.monotonic() >= self._renew_at_s:
                self._token, life_s = self._fetch_token()
                self._renew_at_s = time.monotonic() + life_s * RENEW_AT_SHARE
            return self._token

    def _discard(self, token: str) -> None:
        with self._lock:
            # If another thread has renewed the token already, keep the new one.
            if self._token == token:
                self._token = None

    def _fetch_token(self) -> tuple[str, float]:
        timestamp_s, nonce = int(time.time()), secrets.token_hex(16)
        signature = ed25519.sign(self._private_key, token_message(self.node_id, timestamp_s, nonce))
        body = {
            "node_id": self.node_id,
            "timestamp_s": timestamp_s,
            "nonce": nonce,
            "signature": base64.b64encode(signature).decode(),
        }
        answer = self.server.call("POST", "/node/v1/token", body, idempotency_key=nonce)
        token, life_s = answer.get("access_token"), answer.get("expires_in_s")
        if not isinstance(token, str) or not isinstance(life_s, (int, float)):
            raise wire.Unreachable("the answer to /node/v1/token has no access_token and expires_in_s")
        return token, float(life_s)


def _send_enrolment(
    server: wire.Server,
    settings: config.Config,
    state: Path,
    describe: Callable[[], dict[str, Any]],
    stop: threading.Event,
) -> str:
    if not settings.token:
        raise errors.CannotStart(
            f"This node is not enrolled, and {settings.path} has no token. Put a token into it and restart the agent."
        )
    ed25519.ensure_private_key(state / "key.pem")
    request = _stored_request(settings, state, describe)
    body = dict(request["body"], token=settings.token)
    answer = _post_enrolment(server, body, str(request["idempotency_key"]), stop)
    node_id = answer.get("node_id")
    if not isinstance(node_id, str) or not node_id:
        raise errors.CannotStart("The response to the enrolment has no node_id. Check that the server URL is right.")
    return node_id


def _stored_request(settings: config.Config, state: Path, describe: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the enrolment request. It is stored before it is sent, so that a repeat has the same key and body and gets
    the same node id."""
    path = state / "enrolment.json"
    # A hash of token and name (the token itself is not stored): if the configuration changes, a new request is made.
    bound_to = hashlib.sha256(f"{settings.token}\n{settings.name}".encode()).hexdigest()
    stored = files.read(path)
    if stored is not None:
        request: dict[str, Any] = json.loads(stored)
        if request["bound_to"] == bound_to:
            return request
    body = dict(describe(), name=settings.name, public_key_pem=ed25519.public_key_pem(state / "key.pem"))
    request = {"bound_to": bound_to, "idempotency_key": secrets.token_hex(16), "body": body}
    files.write_atomic(path, json.dumps(request).encode(), 0o600)
    return request


def _post_enrolment(
    server: wire.Server, body: dict[str, Any], idempotency_key: str, stop: threading.Event
) -> dict[str, Any]:
    backoff = wire.Backoff(stop)
    while True:
        try:
            return server.call("POST", "/node/v1/enrol", body, idempotency_key=idempotency_key)
        except wire.Unreachable as error:
            log.warning("enrolment.failed", error=str(error))
        except wire.Rejected as error:
            if not error.retryable:
                fix = f"Put a new token into the agent's configuration: gpuaas node token {body['name']}"
                raise errors.CannotStart(f"The enrolment was refused: {error} {fix}") from error
            log.warning("enrolment.failed", error=str(error))
        backoff.wait()
