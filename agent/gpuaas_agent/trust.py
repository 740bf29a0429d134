"""First contact: decides whom to believe. Called once by main; hands on a verified Server and stores the task key."""

from __future__ import annotations

import hashlib
import hmac
import ssl
import threading
from pathlib import Path
from typing import Any

from gpuaas_agent import config, files, log, wire


def establish(settings: config.Config, state: Path, stop: threading.Event) -> wire.Server:
    """A verified Server, with STATE/ca.pem and STATE/task.pem on disk; CannotStart if the fingerprint differs."""
    if config.is_plain_loopback(settings.server):
        server = wire.Server(settings.server, None)
    else:
        server = wire.verified(settings.server, _pinned_ca(settings, state, stop))
    task_key = state / "task.pem"
    if files.read(task_key) is None:
        # Asked again, now verified: whoever stood in between at first contact could have changed this key.
        answer = ask(server, stop)
        files.write_atomic(task_key, _text(answer, "task_public_key_pem").encode(), 0o644)
    return server


def ask(server: wire.Server, stop: threading.Event) -> dict[str, Any]:
    """What the platform says of itself; waits for as long as the platform is not there."""
    backoff = wire.Backoff(stop)
    while True:
        try:
            return server.call("GET", "/node/v1/trust")
        except wire.WireError as error:
            log.event("the platform's trust could not be fetched, trying again", level="warning", error=str(error))
        backoff.wait()


def matches(certificate_der: bytes, fingerprint: str) -> bool:
    return hmac.compare_digest(hashlib.sha256(certificate_der).hexdigest(), fingerprint)


def _pinned_ca(settings: config.Config, state: Path, stop: threading.Event) -> str:
    stored = state / "ca.pem"
    known = files.read(stored)
    ca_pem = known.decode() if known is not None else _text(ask(wire.unverified(settings.server), stop), "ca_pem")
    certificate = _der(ca_pem)
    if not matches(certificate, settings.ca_sha256):
        raise config.CannotStart(_mismatch(settings, stored if known is not None else None))
    # Encoded again from the bytes that were compared, so nothing else that stood in the text is ever trusted.
    pem = ssl.DER_cert_to_PEM_cert(certificate)
    if known is None:
        files.write_atomic(stored, pem.encode(), 0o644)
        log.event("the platform's CA matches the configured fingerprint", server=settings.server)
    return pem


def _mismatch(settings: config.Config, stored: Path | None) -> str:
    if stored is not None:
        return f"{stored} does not match ca_sha256 in {settings.path}. If the platform was replaced: rm {stored}"
    return (
        f"The CA offered by {settings.server} does not match ca_sha256 in {settings.path}; nothing was sent to it. "
        "Either the fingerprint is wrong or somebody answers in the platform's place; compare it on the platform."
    )


def _der(pem: str) -> bytes:
    try:
        return ssl.PEM_cert_to_DER_cert(pem.strip())
    except ValueError as error:
        raise config.CannotStart("The platform's ca_pem is not one PEM certificate; nothing was sent to it.") from error


def _text(answer: dict[str, Any], key: str) -> str:
    value = answer.get(key)
    if not isinstance(value, str) or not value:
        raise config.CannotStart(f"The platform's trust answer has no {key}; is the server URL right?")
    return value
