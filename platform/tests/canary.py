"""Look for a secret in every place where it could have leaked, in every form in which a program may have written it."""

import base64
import contextlib
import json
import os
import urllib.parse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

BASE64_EDGE = 4


@dataclass(frozen=True)
class Canary:
    forms: tuple[bytes, ...]

    @classmethod
    def of_text(cls, text: str, *marks: str) -> "Canary":
        """`marks` are parts of the text that betray it on their own."""
        return cls((*_forms(text.encode()), *(mark.encode() for mark in marks)))

    @classmethod
    def of_key(cls, private_key: str) -> "Canary":
        """An Ed25519 key in OpenSSH's form: the file, the line that holds the secret part, and that part itself."""
        key = serialization.load_ssh_private_key(private_key.encode(), password=None)
        assert isinstance(key, Ed25519PrivateKey)
        line = private_key.splitlines()[4]
        return cls((*_forms(private_key.encode()), *_forms(line.encode()), *_forms(key.private_bytes_raw())))

    def is_in(self, content: bytes) -> bool:
        return any(form in content for form in self.forms)


def in_files(canaries: Iterable[Canary], folders: Iterable[Path]) -> Iterator[str]:
    """Everything below the folders, open databases and their logs included."""
    secrets = list(canaries)
    for path in [path for folder in folders for path in [folder, *_below(folder)] if path.is_file()]:
        with contextlib.suppress(FileNotFoundError):  # databases remove files of their own while we read
            content = path.read_bytes()
            if any(canary.is_in(content) for canary in secrets):
                yield f"file {path}"


def _below(folder: Path) -> Iterator[Path]:
    """`os.walk` continues when a folder was deleted before it is opened."""
    for parent, _, names in os.walk(folder):
        yield from (Path(parent, name) for name in names)


def in_processes(canaries: Iterable[Canary]) -> Iterator[str]:
    """Arguments and environment of every process on this machine: others can read them."""
    secrets = list(canaries)
    for process in [path for path in Path("/proc").iterdir() if path.name.isdigit()]:
        for part in ("cmdline", "environ"):
            with contextlib.suppress(OSError):  # it ended, or it belongs to another user
                content = (process / part).read_bytes()
                if any(canary.is_in(content) for canary in secrets):
                    yield f"{part} of process {process.name}"


def _forms(raw: bytes) -> Iterator[bytes]:
    yield raw
    yield raw.hex().encode()
    yield raw.hex().upper().encode()
    yield urllib.parse.quote_from_bytes(raw, safe="").encode()
    yield urllib.parse.quote_plus(raw).encode()
    for shift in range(3):
        # A value inside a longer text begins at any of three places of base64's groups; the edges depend on neighbours.
        shifted = b"x" * shift + raw
        yield base64.b64encode(shifted)[BASE64_EDGE:-BASE64_EDGE]
        yield base64.urlsafe_b64encode(shifted)[BASE64_EDGE:-BASE64_EDGE]
    with contextlib.suppress(UnicodeDecodeError):
        text = raw.decode()
        yield json.dumps(text)[1:-1].encode()
        yield json.dumps(text, ensure_ascii=False)[1:-1].encode()
