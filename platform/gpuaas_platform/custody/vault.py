"""Custody in HashiCorp Vault or OpenBao: one secret per ref in a KV version 2 engine, with the engine's versions.

The token is in a file, which another program renews. The file is read again when Vault refuses the token.
"""

import asyncio
import base64
import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TypeVar

import hvac
import hvac.exceptions
import requests

from gpuaas_platform.custody import port as custody
from gpuaas_platform.kit.settings import Settings

Result = TypeVar("Result")
_FIELD = "value"
"""Field of the value, in base64, because values of a KV engine are JSON."""
_NEVER_PUT = "status"
"""A ref that never has a value. It is read to check the platform's access."""
_TIMEOUT_S = 10


class VaultCustody:
    def __init__(self, settings: Settings) -> None:
        self._address, self._token_file = settings.vault_address, settings.vault_token_file
        self._mount, self._prefix = settings.vault_mount, settings.vault_prefix
        verify = str(settings.vault_ca_file) if settings.vault_ca_file else True
        self._client = hvac.Client(url=self._address, token="", timeout=_TIMEOUT_S, verify=verify)
        self._kv = self._client.secrets.kv.v2

    async def put(self, ref: str, value: bytes) -> int:
        secret = {_FIELD: base64.b64encode(value).decode()}
        written = await self._call(self._kv.create_or_update_secret, ref, secret=secret)
        return int(written["data"]["version"])

    async def get(self, ref: str, version: int) -> bytes:
        secret = await self._call(self._kv.read_secret_version, ref, version=version, raise_on_deleted_version=True)
        try:
            return base64.b64decode(secret["data"]["data"][_FIELD], validate=True)
        except (KeyError, TypeError, ValueError) as error:
            raise custody.Unreadable(
                f"the value stored under {ref} was changed: it differs from the value that the platform wrote"
            ) from error

    async def delete(self, ref: str) -> None:
        await self._call(self._kv.delete_metadata_and_all_versions, ref)

    async def check(self) -> None:
        """Do nothing: Vault could fail between a check and the request that follows."""

    async def status(self) -> custody.Status:
        """Return the status, from a read with the platform's token: an unsealed Vault may still refuse the token."""
        where = f"Vault at {self._address}, {self._mount}/{self._prefix}"
        try:
            with contextlib.suppress(custody.SecretMissing):
                await self.get(_NEVER_PUT, 1)
        except custody.CustodyError as error:
            refused = isinstance(error, custody.Refused)
            return custody.Status("vault", True, f"{where}: {error}", refused=refused, fix=error.fix)
        return custody.Status("vault", False, where)

    async def unseal(self, passphrase: str) -> None:
        raise custody.Unavailable("Vault must be unsealed with its own command: vault operator unseal")

    async def _call(self, method: Callable[..., Result], ref: str, **arguments: object) -> Result:
        """Call the client in a thread, because it blocks."""
        request = functools.partial(method, f"{self._prefix}/{ref}", mount_point=self._mount, **arguments)
        return await asyncio.to_thread(self._in_thread, request)

    def _in_thread(self, request: Callable[[], Result]) -> Result:
        with self._own_errors():
            if not self._client.token:
                self._read_token()
            try:
                return request()
            except hvac.exceptions.Forbidden:
                self._read_token()
                return request()

    def _read_token(self) -> None:
        if self._token_file is not None:
            self._client.token = self._token_file.read_text().strip()

    @contextlib.contextmanager
    def _own_errors(self) -> Iterator[None]:
        """Replace the client's errors. Their text may contain a secret value from the response, so it is not used."""
        try:
            yield
        except hvac.exceptions.InvalidPath as error:
            # Vault reports a reason if the engine is missing, and none if the value is missing.
            if error.errors:
                text = f"Vault has no KV version 2 engine at {self._mount}/; see --vault-mount"
                raise custody.Refused(text, fix=f"vault secrets enable -path={self._mount} kv-v2") from None
            raise custody.SecretMissing("Vault does not have this version of the secret") from None
        except (hvac.exceptions.Forbidden, hvac.exceptions.Unauthorized):
            fix = f"vault token create -policy=POLICY -field=token > {self._token_file}"
            raise custody.Refused("Vault refuses the platform's token; see --vault-token-file", fix=fix) from None
        except hvac.exceptions.VaultDown:
            raise custody.Sealed("Vault is sealed or in standby", fix="vault operator unseal") from None
        except hvac.exceptions.VaultError as error:
            raise custody.Unavailable(f"Vault refused the request: {type(error).__name__}", fix=self._look()) from None
        except requests.exceptions.RequestException as error:
            raise custody.Unavailable(f"Vault does not answer: {type(error).__name__}", fix=self._look()) from None
        except OSError as error:
            fix = f"ls -l {self._token_file}"
            raise custody.Refused(f"the token file cannot be read: {error.strerror}", fix=fix) from None

    def _look(self) -> str:
        return f"vault status -address={self._address}"
