"""What an installation looks like on this host. Reads only and creates nothing; `checks` judges."""

import ctypes
import datetime
import errno
import os
import resource
import shutil
import socket
import sqlite3
import ssl
import stat
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from gpuaas_platform.custody import key_files
from gpuaas_platform.custody import port as custody
from gpuaas_platform.kit import clock, keys, migrate
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.record import chain, heads, trail, verify
from gpuaas_platform.server import Listen

ANSWER_S = 2.0
_UNSYNCHRONISED = 5
"""The answer of adjtimex(2) if no time service has set the clock."""
_PRIVATE = ("*.sqlite*", "custody.*", "keys", "keys/*", "audit-heads", "audit-heads/*")
_STORE_FAILED = (OSError, ValueError, sqlite3.Error, asyncpg.PostgresError, asyncpg.InterfaceError)


@dataclass(frozen=True)
class Store:
    missing: tuple[int, ...] = ()
    """Migrations that the next start applies."""
    is_newer: bool = False
    """A newer release has changed it."""
    error: str = ""


@dataclass(frozen=True)
class Unsigned:
    """The rows of an audit chain after its last signed head."""

    chain: str
    rows: int
    oldest_at: datetime.datetime


@dataclass(frozen=True)
class Port:
    listen: Listen
    error: str = ""
    is_ours: bool = False
    """The program that uses it is this platform."""
    is_local: bool = True
    """The address belongs to this machine."""


@dataclass(frozen=True)
class Facts:
    data: Path
    now: datetime.datetime
    exists: bool = True
    is_writable: bool = True
    open_to_others: tuple[Path, ...] = ()
    """Files and folders that other users may read or write."""
    disk_free: int = 0
    disk_total: int = 1
    store: Store = field(default_factory=Store)
    keys: dict[str, str] = field(default_factory=dict)
    """Key file -> why it cannot be used; empty if it can."""
    custody: str = "open"
    """open, sealed, vault, or missing; else why the key cannot be used."""
    authority_ends_at: datetime.datetime | None = None
    unsigned: tuple[Unsigned, ...] = ()
    files_max: int = 0
    is_synchronised: bool = True
    ports: tuple[Port, ...] = ()


async def gather(settings: Settings, listens: Sequence[Listen]) -> Facts:
    data, now = settings.data_dir, clock.utc_now()
    common = {
        "files_max": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "is_synchronised": _is_synchronised(),
        "ports": tuple(_port(listen) for listen in listens),
    }
    if not data.is_dir():
        return Facts(data, now, exists=False, **common)  # type: ignore[arg-type]
    disk, store = shutil.disk_usage(data), await _store(settings)
    return Facts(
        data,
        now,
        is_writable=os.access(data, os.W_OK | os.X_OK),
        open_to_others=tuple(_open_to_others(data)),
        disk_free=disk.free,
        disk_total=disk.total,
        store=store,
        keys=dict(_keys(data / "keys")),
        custody=_custody(settings),
        authority_ends_at=_authority_end(data / "keys" / "tls-authority.crt"),
        unsigned=() if store.error or store.is_newer else await _unsigned(settings),
        **common,  # type: ignore[arg-type]
    )


def _open_to_others(data: Path) -> Iterator[Path]:
    for path in (data, *(path for pattern in _PRIVATE for path in sorted(data.glob(pattern)))):
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            yield path


async def _store(settings: Settings) -> Store:
    try:
        missing = await migrate.not_applied(settings.sqlite_path, settings.database_url)
    except migrate.NewerDatabase as error:
        return Store(is_newer=True, error=str(error))
    except _STORE_FAILED as error:
        return Store(error=str(error) or type(error).__name__)
    return Store(tuple(missing))


def _keys(folder: Path) -> Iterator[tuple[str, str]]:
    for name in ("tasks.pem", keys.AUDIT_FILE, "tls-authority.pem"):
        path = folder / name
        try:
            serialization.load_pem_private_key(path.read_bytes(), password=None)
            yield name, ""
        except FileNotFoundError:
            yield name, "missing"
        except (OSError, ValueError, TypeError) as error:
            yield name, str(error)


def _custody(settings: Settings) -> str:
    if settings.vault_address:
        return "vault"
    try:
        return "open" if key_files.chosen(settings).read() else "missing"
    except custody.Sealed:
        return "sealed"
    except (custody.CustodyError, OSError, msgspec.MsgspecError) as error:
        return str(error)


def _authority_end(path: Path) -> datetime.datetime | None:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    except (OSError, ValueError):
        return None


async def _unsigned(settings: Settings) -> tuple[Unsigned, ...]:
    folder, result = heads.folder_in(settings.data_dir), list[Unsigned]()
    if not settings.database_url and not settings.sqlite_path.with_suffix(".sqlite-wal").exists():
        return ()  # the server has stopped and signed everything; to open the file now would create others beside it
    try:
        async with verify.open_source(settings.data_dir, settings.database_url) as source:
            for name in await trail.all_chains(source.reader):
                line = heads.last_line(folder, name)
                signed = msgspec.json.decode(line, type=chain.Head).position if line else 0
                if (at := await trail.first_after(source.reader, name, signed)) is not None:
                    last, _ = await trail.tip(source.reader, name)
                    result.append(Unsigned(name, last - signed, at))
    except (*_STORE_FAILED, msgspec.MsgspecError):
        return ()  # the check of the store reports it
    return tuple(result)


def _is_synchronised() -> bool:
    """Ask the kernel. The structure is larger than 200 bytes; its first field, 0, means that nothing is changed."""
    adjtimex = getattr(ctypes.CDLL(None), "adjtimex", None)
    return adjtimex is None or adjtimex(ctypes.create_string_buffer(512)) != _UNSYNCHRONISED


def _port(listen: Listen) -> Port:
    try:
        address = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(*address[:3]) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address[4])
    except OSError as error:
        is_used = error.errno == errno.EADDRINUSE
        is_local = error.errno != errno.EADDRNOTAVAIL
        return Port(listen, error.strerror or str(error), is_used and _is_platform(listen.url), is_local)
    return Port(listen)


def _is_platform(url: str) -> bool:
    """Ask the program at the address who it is. Its certificate is not checked: nothing secret is sent."""
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    direct = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=unchecked)
    )
    try:
        with direct.open(f"{url}/version", timeout=ANSWER_S) as answer:
            return b"gpuaas-platform" in answer.read(1000)
    except OSError:
        return False
