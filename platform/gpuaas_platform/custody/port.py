"""The custody port: where secret values are stored, apart from everything else about them.

`embedded` implements it over the platform's own store, `vault` over Vault or OpenBao. A store may be
another server, so nothing here is called inside a transaction: record the intention in the database, act, then record
the result.
"""

from dataclasses import dataclass
from typing import Literal, Protocol


class CustodyError(Exception):
    """Base of the errors of custody. The text never contains a value; `fix` is the next command, if known."""

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix


class SecretMissing(CustodyError):
    """There is no value under this ref and version: never put, or deleted."""


class Unreadable(CustodyError):
    """The value is there and cannot be opened: it was tampered with, or its key is not at hand."""


class Unavailable(CustodyError):
    """The store does not answer. Trying again may help."""


class Refused(Unavailable):
    """The store does not let the platform in, so nothing was kept; this lasts until an operator changes a setting."""


class Sealed(Unavailable):
    """An operator has to unseal the store first; until then nothing is stored or read."""


class PassphraseWrong(CustodyError):
    """This is not the passphrase the store was sealed with."""


@dataclass(frozen=True)
class Status:
    store: Literal["embedded", "vault"]
    sealed: bool
    key: str
    """Where the key comes from, for people."""
    refused: bool = False
    """Not open because the store does not let the platform in."""
    fix: str = ""
    """The next command, if it is not `unseal`."""


class SecretStore(Protocol):
    """A ref is an opaque word of the caller's; each `put` under it makes the next version."""

    async def put(self, ref: str, value: bytes) -> int:
        """Keep a value durably and return its version, the first being 1."""

    async def get(self, ref: str, version: int) -> bytes: ...

    async def delete(self, ref: str) -> None:
        """Destroy every version. A ref without versions is not an error."""

    async def check(self) -> None:
        """Raise what `put` and `get` would raise for every ref; called before a value that works once is used."""

    async def status(self) -> Status: ...

    async def unseal(self, passphrase: str) -> None:
        """Open a sealed store; one that is open stays so."""
