"""Custody as operators see it: where the key of all secrets is, and whether it is at hand."""

from typing import Annotated, Literal

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.wire import NoBody, Request, Wire

Passphrase = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]


class CustodyStatus(Wire):
    """Where the platform keeps secrets, and whether it can open them now."""

    store: Literal["embedded", "vault"]
    """`embedded`: in the platform's own store, encrypted. `vault`: in a Vault server."""
    sealed: bool
    """Secrets can be neither kept nor read now: until somebody unseals, or until `fix` is done."""
    key: str
    """Where the key comes from, for people."""
    refused: bool = False
    """The store does not let this server in: unsealing does not help, its token or a setting has to change."""
    fix: str = ""
    """The next command where unsealing this server is not it."""


class Unseal(Request):
    """Gives a server the passphrase of its key."""

    passphrase: Passphrase


CUSTODY_GET = Endpoint(
    "custody.seal.get",
    "GET",
    "/api/v1/admin/custody",
    "Where secrets are kept, and whether this server can open them",
    permission="custody.seal.read",
    request=NoBody,
    response=CustodyStatus,
)
UNSEAL = Endpoint(
    "custody.seal.open",
    "POST",
    "/api/v1/admin/unseal",
    "Give this server the passphrase of its key; it is kept in memory only",
    permission="custody.seal.open",
    request=Unseal,
    response=CustodyStatus,
    repeat="natural",
    errors=(errors.TooManyAttempts,),
)
ENDPOINTS = (CUSTODY_GET, UNSEAL)
