"""The TLS certificates of this process's listeners, renewed while they are in use. `server` runs `renew` as a loop.

A certificate is loaded into the context that its listener uses. New connections get it; open connections stay."""

import datetime
import functools
import os
import ssl
from dataclasses import dataclass

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
_FIX = "Replace the authority before it ends: docs/how-to/renew-certificates.md"


def due_at(certificate: x509.Certificate) -> datetime.datetime:
    """Return when to renew the certificate: after two thirds of its life."""
    starts_at, ends_at = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return starts_at + (ends_at - starts_at) * 2 / 3


class Certificates:
    def __init__(self, authority: tls.CertificateAuthority, now: clock.Clock) -> None:
        self._authority, self._now = authority, now
        self._listeners: list[_Listener] = []
        self._noticed_at: datetime.datetime | None = None

    def context(self, address: str) -> ssl.SSLContext:
        """Return a TLS context for a listener. Its certificate is for `address` and is renewed from now on."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate = self._load(context, address)
        self._listeners.append(_Listener(address, context, certificate))
        return context

    async def renew(self) -> None:
        """Renew each certificate that is due. No connection starts meanwhile, because it runs on the event loop."""
        now = self._now()
        for listener in self._listeners:
            ends_at = listener.certificate.not_valid_after_utc
            if now >= due_at(listener.certificate) and ends_at < self._authority.ends_at:
                listener.certificate = self._load(listener.context, listener.address)
                ends_at = listener.certificate.not_valid_after_utc
                log.info("tls.certificate_renewed", address=listener.address, ends_at=ends_at.isoformat())
        self._notice_end_of_authority(now)

    def gauges(self) -> list[Gauge]:
        name, text = "gpuaas_tls_certificate_expires_in_seconds", "Remaining lifetime of a listener's certificate."
        return [
            Gauge(name, text, functools.partial(self._left_s, listener), {"address": listener.address})
            for listener in self._listeners
        ]

    def _load(self, context: ssl.SSLContext, address: str) -> x509.Certificate:
        """Load a new certificate. `ssl` reads it from a file; this one is only in memory, also if the disk is full."""
        certificate, pem = tls.server_certificate(self._authority, address, self._now())
        with os.fdopen(os.memfd_create("certificate"), "wb") as file:
            file.write(pem)
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
        return certificate

    def _left_s(self, listener: "_Listener") -> float:
        return (listener.certificate.not_valid_after_utc - self._now()).total_seconds()

    def _notice_end_of_authority(self, now: datetime.datetime) -> None:
        if now < self._authority.ends_at - _AUTHORITY_NOTICE:
            return
        if self._noticed_at is None or now >= self._noticed_at + _NOTICE_EVERY:
            log.warning("tls.authority_ends_soon", ends_at=self._authority.ends_at.isoformat(), fix=_FIX)
            self._noticed_at = now


@dataclass
class _Listener:
    address: str
    context: ssl.SSLContext
    certificate: x509.Certificate
