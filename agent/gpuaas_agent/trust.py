"""Verify the platform by the fingerprint of its CA. `main` calls it once, before anything else is sent."""

from __future__ import annotations

import hashlib
import hmac
import ssl
import threading
from pathlib import Path
from typing import Any

from gpuaas_agent import config, errors, files, log, wire


def establish(settings: config.Config, state: Path, stop: threading.Event) -> wire.Server:
    """Return a verified Server; store ca.pem and task.pem in `state`. Raises CannotStart if the fingerprint differs."""
    if config.is_plain_loopback(settings.server):
        server = wire.Server(settings.server, None)
    else:
        server = wire.verified(settings.server, _pinned_ca(settings, state, stop))
    task_key = state / "task.pem"
    if files.read(task_key) is None:
        # Requested again over the verified connection, because the first response was not verified.
        answer = fetch(server, stop)
        files.write_atomic(task_key, _text(answer, "task_public_key_pem").encode(), 0o644)
    return server


def fetch(server: wire.Server, stop: threading.Event) -> dict[str, Any]:
    """Return the platform's CA certificate and task key. Repeats the request until the platform responds."""
    backoff = wire.Backoff(stop)
    while True:
        try:
            return server.call("GET", "/node/v1/trust")
        except wire.WireError as error:
            log.warning("trust.fetch_failed", error=str(error))
        backoff.wait()


def matches(certificate_der: bytes, fingerprint: str) -> bool:
    return hmac.compare_digest(hashlib.sha256(certificate_der).hexdigest(), fingerprint)


def _pinned_ca(settings: config.Config, state: Path, stop: threading.Event) -> str:
    stored = state / "ca.pem"
    known = files.read(stored)
    ca_pem = known.decode() if known is not None else _text(fetch(wire.unverified(settings.server), stop), "ca_pem")
    certificate = _der(ca_pem)
    if not matches(certificate, settings.ca_sha256):
        raise errors.CannotStart(_mismatch(settings, stored if known is not None else None))
    # Encode the compared bytes again, so that nothing else in the received text is trusted.
    pem = ssl.DER_cert_to_PEM_cert(certificate)
    if known is None:
        files.write_atomic(stored, pem.encode(), 0o644)
        log.info("trust.ca_verified", server=settings.server)
    return pem


def _mismatch(settings: config.Config, stored: Path | None) -> str:
    if stored is not None:
        return f"{stored} does not match ca_sha256 in {settings.path}. If the platform was replaced, run: rm {stored}"
    return (
        f"The CA of {settings.server} does not match ca_sha256 in {settings.path}, so nothing was sent to it. "
        "The fingerprint is wrong, or another server answers. Compare it with the fingerprint on the platform."
    )


def _der(pem: str) -> bytes:
    try:
        return ssl.PEM_cert_to_DER_cert(pem.strip())
    except ValueError as error:
        raise errors.CannotStart("The platform's ca_pem is not one PEM certificate, so nothing was sent.") from error


def _text(answer: dict[str, Any], key: str) -> str:
    value = answer.get(key)
    if not isinstance(value, str) or not value:
        raise errors.CannotStart(f"The response to /node/v1/trust has no {key}. Check that the server URL is right.")
    return value
