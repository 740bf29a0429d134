"""Keys of backups in the `age` format: recipients encrypt and are public, identities decrypt and are secret."""

from pathlib import Path
from typing import Any

import pyrage

from gpuaas_platform.backup.errors import CannotProceed
from gpuaas_platform.kit import keys

Recipient = Any
Identity = Any
"""Objects of the library, which has no types: an X25519 or an SSH key."""
_NAME_IT = "Name the file with the decryption key (age identity): --identity FILE"
_MAKE_ONE = "Make a key pair: gpuaas-platform backup --new-identity FILE"


def recipients(texts: list[str]) -> list[Recipient]:
    """Return the public keys that a backup is encrypted to. Each text is one key (`age1…`, `ssh-ed25519 …`) or the name
    of a file with one per line."""
    lines = [line for text in texts for line in ([text] if _is_recipient(text) else _lines(Path(text), _MAKE_ONE))]
    if not lines:
        raise CannotProceed("no recipient is given, and a backup is always encrypted", _MAKE_ONE)
    return [_recipient(line) for line in lines]


def identities(path: Path) -> list[Identity]:
    """Return the identities in a file: `AGE-SECRET-KEY-1…`, one per line, or a private SSH key without passphrase."""
    try:
        if path.exists() and path.read_bytes().startswith(b"-----BEGIN"):
            return [pyrage.ssh.Identity.from_buffer(path.read_bytes())]
        return [pyrage.x25519.Identity.from_str(line) for line in _lines(path, _NAME_IT)]
    except pyrage.IdentityError as error:
        raise CannotProceed(f"{path} has no usable identity: {error}", _NAME_IT) from error


def new_identity(path: Path) -> str:
    """Write a new identity to a file that only its owner can read. Return its recipient."""
    if path.exists():
        raise CannotProceed(f"{path} exists already", "Choose another file: an identity is never overwritten")
    if not path.parent.is_dir():
        raise CannotProceed(f"there is no folder {path.parent}", f"mkdir -p {path.parent}")
    identity = pyrage.x25519.Identity.generate()
    recipient = str(identity.to_public())
    keys.create_private(path, f"# recipient: {recipient}\n{identity}\n".encode())
    return recipient


def _is_recipient(text: str) -> bool:
    return text.startswith(("age1", "ssh-"))


def _recipient(line: str) -> Recipient:
    kind = pyrage.ssh.Recipient if line.startswith("ssh-") else pyrage.x25519.Recipient
    try:
        return kind.from_str(line)
    except pyrage.RecipientError as error:
        raise CannotProceed(f"{line!r} is not a recipient: {error}", _MAKE_ONE) from error


def _lines(path: Path, fix: str) -> list[str]:
    """Return the lines of the file without comments."""
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise CannotProceed(f"cannot read {path}: {why}", fix) from error
    return [line for line in lines if line and not line.startswith("#")]
