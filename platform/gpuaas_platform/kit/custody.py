"""The custody port: where secret values are kept, apart from everything else there is to know about them.

`embedded_custody` implements it over the platform's own store. A store may be another server, so nothing here is called
inside a transaction: say in the database what you are about to do, do it, then say that it is done.
"""

from typing import Protocol


class CustodyError(Exception):
    """Base of what can go wrong in custody. Its text never holds a value."""


class SecretMissing(CustodyError):
    """There is no value under this ref and version: never put, or deleted."""


class Unreadable(CustodyError):
    """The value is there and cannot be opened: it was tampered with, or its key is not at hand."""


class Unavailable(CustodyError):
    """The store does not answer, or is sealed. Trying again may help."""


class SecretStore(Protocol):
    """A ref is an opaque word of the caller's; each `put` under it makes the next version."""

    async def put(self, ref: str, value: bytes) -> int:
        """Keep a value durably and return its version, the first being 1."""

    async def get(self, ref: str, version: int) -> bytes: ...

    async def delete(self, ref: str) -> None:
        """Destroy every version. What is gone already stays gone."""
