"""One-time sign-in links. A link is a random code; a private file with its digest as name has the token. Its use
deletes the file, so a link works once, also with several console processes."""

import datetime
import hashlib
import secrets
import tempfile
from pathlib import Path

import msgspec

VALID_FOR = datetime.timedelta(hours=1)


class Link(msgspec.Struct, frozen=True):
    token: str
    expires_at: datetime.datetime


def make(folder: Path, token: str, now: datetime.datetime) -> str:
    """Store a token for one sign-in and return the code of the link."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _remove_expired(folder, now)
    code = secrets.token_urlsafe(32)
    content = msgspec.json.encode(Link(token=token, expires_at=now + VALID_FOR))
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:  # only its owner can read it
        file.write(content)
    Path(file.name).rename(_path(folder, code))
    return code


def take(folder: Path, code: str, now: datetime.datetime) -> str:
    """Return the token of a link and delete the link. Empty: it was used, it expired or it never existed."""
    path = _path(folder, code)
    taken = path.with_name(f"{path.name}.{secrets.token_hex(8)}.taken")
    try:
        path.rename(taken)  # of two requests at the same time, one succeeds
        link = msgspec.json.decode(taken.read_bytes(), type=Link)
    except (FileNotFoundError, msgspec.DecodeError):
        return ""
    finally:
        taken.unlink(missing_ok=True)
    return link.token if now < link.expires_at else ""


def _path(folder: Path, code: str) -> Path:
    return folder / f"{hashlib.sha256(code.encode()).hexdigest()}.link"


def _remove_expired(folder: Path, now: datetime.datetime) -> None:
    for path in folder.glob("*.link"):
        try:
            link = msgspec.json.decode(path.read_bytes(), type=Link)
        except (FileNotFoundError, msgspec.DecodeError):
            continue
        if now >= link.expires_at:
            path.unlink(missing_ok=True)
