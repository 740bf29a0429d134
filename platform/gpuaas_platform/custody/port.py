"""The custody port: where secret values are kept, apart from everything else there is to know about them.

`embedded_custody` implements it over the platform's own store, `vault_custody` over Vault or OpenBao. A store may be
another server, so nothing here is called inside a transaction: say in the database what you are about to do, do it,
then say that it is done.
"""

from dataclasses import dataclass
from typing import Literal, Protocol


class CustodyError(Exception):
    """Base of what can go wrong in custody. Its text never holds a value; `fix` is the next command, if known."""

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
    """The store does not let the platform in, so nothing was kept; it stays so until somebody changes a setting."""


class Sealed(Unavailable):
    """Somebody has to open the store first; until then nothing is kept or read."""


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
    """The next command where unsealing is not it."""


class SecretStore(Protocol):
    """A ref is an opaque word of the caller's; each `put` under it makes the next version."""

    async def put(self, ref: str, value: bytes) -> int:
        """Keep a value durably and return its version, the first being 1."""

    async def get(self, ref: str, version: int) -> bytes: ...

    async def delete(self, ref: str) -> None:
        """Destroy every version. What is gone already stays gone."""

    async def check(self) -> None:
        """Raise what `put` and `get` would raise for every ref: asked before something is used up."""

    async def status(self) -> Status: ...

    async def unseal(self, passphrase: str) -> None:
        """Open a sealed store; one that is open stays so."""
