"""The interface of custody, which stores secret values. All other data about secrets is in the database.

`embedded` implements it with the platform's database, `vault` with Vault or OpenBao. Custody may be another server,
so nothing here is called inside a transaction: record in the database what will be done, do it, then record the
result.
"""

from dataclasses import dataclass
from typing import Literal, Protocol


class CustodyError(Exception):
    """Base class of custody's errors. The text never contains a secret value; `fix` is the next command, if known."""

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix


class SecretMissing(CustodyError):
    """There is no value with this ref and version: it was never stored, or it was deleted."""


class Unreadable(CustodyError):
    """The value exists but cannot be decrypted: it was changed, or its key is not available."""


class Unavailable(CustodyError):
    """Custody does not answer. A retry may succeed."""


class Refused(Unavailable):
    """Custody refuses the platform's access, and nothing was stored. An operator has to change a setting."""


class Sealed(Unavailable):
    """Custody is sealed: nothing can be stored or read until an operator unseals it."""


class PassphraseWrong(CustodyError):
    """The passphrase is wrong: the key of the secret store cannot be decrypted with it."""


@dataclass(frozen=True)
class Status:
    store: Literal["embedded", "vault"]
    sealed: bool
    key: str
    """Where the key that encrypts secrets comes from, as text for people."""
    refused: bool = False
    """True if custody is not open because it refuses the platform's access."""
    fix: str = ""
    """The next command, if it is not `unseal`."""


class SecretStore(Protocol):
    """Stores values. The caller chooses a `ref`, any text; each `put` with the same ref creates the next version."""

    async def put(self, ref: str, value: bytes) -> int:
        """Store a value durably and return its version. The first version is 1."""

    async def get(self, ref: str, version: int) -> bytes: ...

    async def delete(self, ref: str) -> None:
        """Delete all versions of a ref. A ref without versions is not an error."""

    async def check(self) -> None:
        """Raise the error that `put` and `get` would raise for all refs. Called before a one-time delivery is used."""

    async def status(self) -> Status: ...

    async def unseal(self, passphrase: str) -> None:
        """Unseal custody. No effect if it is already open."""
