"""The TLS certificates of this process's listeners, renewed while they are in use. `server` runs `renew` as a loop.

A certificate is loaded into the context that its listener uses. New connections get it; open connections stay."""

import datetime
import functools
import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import structlog
from cryptography import x509

from gpuaas_platform import tls
from gpuaas_platform.kit import clock
from gpuaas_platform.kit.gauges import Gauge

log = structlog.get_logger()

TOPIC = "certificates"
LOOK_S = 60.0
"""How often the certificates are checked."""
_AUTHORITY_NOTICE = datetime.timedelta(days=365)
_NOTICE_EVERY = datetime.timedelta(days=1)
_GUIDE = "docs/how-to/renew-certificates.md"


class Source(Protocol):
    """Files or authority that the TLS certificates of one listener come from."""

    def load(self, context: ssl.SSLContext, now: datetime.datetime) -> x509.Certificate:
        """Load the current certificate. Raise OSError or ValueError, without a change, if it cannot be used."""

    def is_due(self, certificate: x509.Certificate, now: datetime.datetime) -> bool:
        """Return whether another certificate should be loaded."""


@dataclass
class Issued:
    """Certificates that the platform's own authority signs."""

    authority: tls.CertificateAuthority
    address: str

    def load(self, context: ssl.SSLContext, now: datetime.datetime) -> x509.Certificate:
        """`ssl` reads a certificate from a file. This file is only in memory, so it works also if the disk is full."""
        certificate, pem = tls.server_certificate(self.authority, self.address, now)
        with os.fdopen(os.memfd_create("certificate"), "wb") as file:
            file.write(pem)
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
        return certificate

    def is_due(self, certificate: x509.Certificate, now: datetime.datetime) -> bool:
        return now >= due_at(certificate) and certificate.not_valid_after_utc < self.authority.ends_at


@dataclass
class Given:
    """The operator's own certificate: two files that are read again when one of them changes."""

    certificate: Path
    """The certificate, and after it those between it and the authority."""
    key: Path
    _loaded: list[tuple[int, int]] = field(default_factory=list)

    def load(self, context: ssl.SSLContext, now: datetime.datetime) -> x509.Certificate:
        """Try the files in another context first, because one of them may be new and the other not yet."""
        stamps, certificate = self._stamps(), x509.load_pem_x509_certificate(self.certificate.read_bytes())
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key)
        context.load_cert_chain(self.certificate, self.key)
        self._loaded = stamps
        return certificate

    def is_due(self, certificate: x509.Certificate, now: datetime.datetime) -> bool:
        return self._stamps() != self._loaded

    def _stamps(self) -> list[tuple[int, int]]:
        return [(status.st_ino, status.st_mtime_ns) for status in (self.certificate.stat(), self.key.stat())]


def due_at(certificate: x509.Certificate) -> datetime.datetime:
    """Return when to renew the certificate: after two thirds of its life."""
    starts_at, ends_at = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return starts_at + (ends_at - starts_at) * 2 / 3


class Certificates:
    def __init__(self, authority: tls.CertificateAuthority, now: clock.Clock) -> None:
        self._authority, self._now = authority, now
        self._listeners: list[_Listener] = []
        self._noticed_at: datetime.datetime | None = None

    def context(self, address: str, source: Source | None = None) -> ssl.SSLContext:
        """Return a TLS context for a listener. Without a certificate of the operator, the platform's authority signs
        one."""
        source, context = source or Issued(self._authority, address), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.num_tickets = 0  # agents keep their connection and resume no session, so tickets would be memory only
        self._listeners.append(_Listener(address, context, source, source.load(context, self._now())))
        return context

    async def renew(self) -> None:
        """Renew each certificate that is due. It runs on the event loop, so no connection starts at the same time."""
        now = self._now()
        for listener in self._listeners:
            try:
                _renew(listener, now)
            except (OSError, ValueError) as error:
                log.error("tls.certificate_not_renewed", address=listener.address, error=str(error), fix=_GUIDE)
        self._notice_end_of_authority(now)

    def gauges(self) -> list[Gauge]:
        name, text = "gpuaas_tls_certificate_expires_in_seconds", "Remaining lifetime of a listener's certificate."
        return [
            Gauge(name, text, functools.partial(self._left_s, listener), {"address": listener.address})
            for listener in self._listeners
        ]

    def _left_s(self, listener: "_Listener") -> float:
        return (listener.certificate.not_valid_after_utc - self._now()).total_seconds()

    def _notice_end_of_authority(self, now: datetime.datetime) -> None:
        signs = any(isinstance(listener.source, Issued) for listener in self._listeners)
        if not signs or now < self._authority.ends_at - _AUTHORITY_NOTICE:
            return
        if self._noticed_at is None or now >= self._noticed_at + _NOTICE_EVERY:
            fix = f"Replace the authority before it ends: {_GUIDE}"
            log.warning("tls.authority_ends_soon", ends_at=self._authority.ends_at.isoformat(), fix=fix)
            self._noticed_at = now


@dataclass
class _Listener:
    address: str
    context: ssl.SSLContext
    source: Source
    certificate: x509.Certificate


def _renew(listener: _Listener, now: datetime.datetime) -> None:
    if listener.source.is_due(listener.certificate, now):
        listener.certificate = listener.source.load(listener.context, now)
        ends_at = listener.certificate.not_valid_after_utc
        log.info("tls.certificate_renewed", address=listener.address, ends_at=ends_at.isoformat())
