"""Whether a server can be reached at all: its name has an address, a program accepts connections there, and its
certificate is valid."""

import datetime
import socket
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from gpuaas_sdk.client import request

from gpuaas_cli import failures

CONNECT_S = 5.0
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Reached:
    """What was found on the way to a server. The first part that failed has its reason in `error`."""

    host: str
    port: int
    addresses: tuple[str, ...] = ()
    connected: bool = False
    error: str = ""


@dataclass(frozen=True)
class Certificate:
    """The certificate of a server, or why there is none that can be trusted."""

    ends_at: datetime.datetime | None = None
    error: str = ""
    uses_tls: bool = True
    """False if the server answered in plain text."""


def reach(server: str) -> Reached:
    """Look the name up and connect once. `server` is a valid address."""
    host, port = place(server)
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return Reached(host, port, error=getattr(error, "strerror", None) or str(error))
    addresses = tuple(dict.fromkeys(str(address[0]) for *_, address in answers))
    try:
        socket.create_connection((host, port), timeout=CONNECT_S).close()
    except OSError as error:
        return Reached(host, port, addresses, error=error.strerror or str(error))
    return Reached(host, port, addresses, connected=True)


def place(server: str) -> tuple[str, int]:
    """Return host and port of a valid address."""
    parts = urlsplit(server)
    return parts.hostname or "", parts.port or _PORTS[parts.scheme]


def certificate(host: str, port: int, trust: ssl.SSLContext) -> Certificate:
    """Connect once and return the certificate of the server."""
    try:
        with (
            socket.create_connection((host, port), timeout=CONNECT_S) as raw,
            trust.wrap_socket(raw, server_hostname=host) as encrypted,
        ):
            ends = str((encrypted.getpeercert() or {})["notAfter"])
    except (OSError, KeyError) as error:
        if getattr(error, "reason", "") == "WRONG_VERSION_NUMBER":
            return Certificate(error="the server does not use TLS", uses_tls=False)
        return Certificate(error=getattr(error, "verify_message", "") or str(error))
    return Certificate(datetime.datetime.fromtimestamp(ssl.cert_time_to_seconds(ends), datetime.UTC))


def require(server: str) -> None:
    """Raise at once if nothing answers: a person who signs in may have the wrong address."""
    reached = reach(server) if request.is_address(server) else None  # the client refuses it with a better reason
    if reached is not None and not reached.connected:
        what = f"no program answers on port {reached.port} there" if reached.addresses else "the name has no address"
        message = f"{server} cannot be reached: {what} ({reached.error})"
        raise failures.Failure(message, f"gpuaas doctor --server {server}", code="no_answer", exit_code=failures.SERVER)
