"""The configuration file. `main` reads it once. It is rewritten to remove the used enrolment token, and by
`pin-release-key`."""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import re
import urllib.parse
from pathlib import Path

from gpuaas_agent import ed25519, errors, files, log


@dataclasses.dataclass(frozen=True)
class Config:
    path: Path
    server: str
    """Base URL of the platform, without a trailing slash."""
    ca_sha256: str
    """SHA-256 of the platform's CA certificate (DER) in lower case hex; empty only for http on loopback."""
    token: str | None
    """Single-use enrolment token; None once the node is enrolled."""
    name: str
    release_keys: tuple[str, ...] = ()
    """Public keys whose signature makes an agent release valid, each as one line. They come from the operator, in this
    file, and never from the platform."""


def load(path: Path) -> Config:
    raw = _read_object(path)
    server = _text(raw, "server", path).rstrip("/")
    plain = is_plain_loopback(server)
    fingerprint = str(raw.get("ca_sha256") or "").replace(":", "").lower()
    if not plain and not re.fullmatch(r"[0-9a-f]{64}", fingerprint):
        raise errors.CannotStart(f"{path}: ca_sha256 must be the 64 hex digits of the platform's CA fingerprint.")
    token = raw.get("token")
    if token is not None and not isinstance(token, str):
        raise errors.CannotStart(f"{path}: token must be a string.")
    if token and path.stat().st_mode & 0o077:
        log.warning("config.token_readable_by_others", fix=f"chmod 600 {path}")
    return Config(
        path=path,
        server=server,
        ca_sha256=fingerprint,
        token=token or None,
        name=_text(raw, "name", path),
        release_keys=_release_keys(raw, path),
    )


def is_plain_loopback(server: str) -> bool:
    """Return True for an http URL with a loopback address and False for an https URL; refuse any other URL."""
    url = urllib.parse.urlsplit(server)
    if url.scheme == "https" and url.hostname:
        return False
    if url.scheme == "http" and _is_loopback(url.hostname or ""):
        return True
    raise errors.CannotStart(
        f"server {server!r} is refused: use https://, or http:// with a loopback address (127.0.0.1)."
    )


def forget_token(path: Path) -> None:
    """Rewrite the file without the enrolment token, if it has one."""
    raw = _read_object(path)
    if "token" not in raw:
        return
    del raw["token"]
    files.write_atomic(path, json.dumps(raw, indent=2).encode() + b"\n", 0o600)


def pin_release_key(path: Path, key_file: Path) -> str:
    """Add the public key in `key_file` to the configuration; return it as one line."""
    raw = _read_object(path)
    try:
        key = ed25519.one_line(key_file.read_text())
    except (OSError, ValueError) as error:
        raise errors.CannotStart(f"{key_file} is not the public key of a release key: {error}.") from error
    present = _release_keys(raw, path)
    raw["release_keys"] = [*present, *({key} - set(present))]
    files.write_atomic(path, json.dumps(raw, indent=2).encode() + b"\n", 0o600)
    return key


def _read_object(path: Path) -> dict[str, object]:
    try:
        raw = json.loads(path.read_text())
    except OSError as error:
        raise errors.CannotStart(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise errors.CannotStart(f"{path} is not JSON: {error}.") from error
    if not isinstance(raw, dict):
        raise errors.CannotStart(f"{path} must contain a JSON object.")
    return raw


def _release_keys(raw: dict[str, object], path: Path) -> tuple[str, ...]:
    keys = raw.get("release_keys") or []
    try:
        if not isinstance(keys, list):
            raise ValueError("it is not a list")
        return tuple(ed25519.one_line(str(key)) for key in keys)
    except ValueError as error:
        raise errors.CannotStart(f"{path}: release_keys must be a list of Ed25519 public keys: {error}.") from error


def _text(raw: dict[str, object], key: str, path: Path) -> str:
    value = raw.get(key)
    if not isinstance(value, str) or not value:
        raise errors.CannotStart(f"{path}: {key} is missing or not a string.")
    return value


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
