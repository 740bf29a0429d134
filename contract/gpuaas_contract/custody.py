"""Custody, for operators: where secrets are stored, and whether they can be read."""

from typing import Annotated, Literal

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.paths import ADMIN
from gpuaas_contract.wire import Request, Secret, Wire

Passphrase = Annotated[Secret, msgspec.Meta(min_length=1, max_length=1024)]


class CustodyStatus(Wire):
    """Where the platform stores secrets, and whether it can read them."""

    store: Literal["embedded", "vault"]
    """`embedded`: in the platform's own store, encrypted. `vault`: in a Vault server."""
    sealed: bool
    """True: secrets can be neither stored nor read until the server is unsealed, or until `fix` is done."""
    key: str
    """Where the key that encrypts secrets comes from, as text for people."""
    refused: bool = False
    """True: the external secret store refuses this server. Unsealing does not help: its token or a setting must
    change."""
    fix: str = ""
    """What the operator can do if unsealing this server does not help."""


class Unseal(Request):
    """Gives a server the passphrase of the key that encrypts secrets."""

    passphrase: Passphrase


CUSTODY_GET = ADMIN.row(
    "/custody", "custody.seal.get", "Get where secrets are stored and whether this server can read them"
).get(CustodyStatus, "custody.seal.read")
UNSEAL = ADMIN.row(
    "/unseal",
    "custody.seal.open",
    "Unseal this server with the passphrase of the key that encrypts secrets",
    "The passphrase is kept in memory only.",
).post(Unseal, CustodyStatus, subject="", repeat="natural", errors=(errors.TooManyAttempts,))
