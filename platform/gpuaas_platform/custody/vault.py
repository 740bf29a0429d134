"""Custody in HashiCorp Vault or OpenBao: one secret per ref in a KV version 2 engine, whose versions are ours.

The token comes from a file, read again when it is refused: an agent beside the server keeps it fresh.
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
"""Base64: KV values are JSON, ours are bytes."""
_NEVER_PUT = "status"
"""A ref that is read only to check the permission."""
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
            raise custody.Unreadable(f"what is stored under {ref} is not what was put there") from error

    async def delete(self, ref: str) -> None:
        await self._call(self._kv.delete_metadata_and_all_versions, ref)

    async def check(self) -> None:
        """Nothing to check: the other server may fail between a check and the act as well."""

    async def status(self) -> custody.Status:
        """Uses the platform's token: that Vault is unsealed does not mean that it accepts the token."""
        where = f"Vault at {self._address}, {self._mount}/{self._prefix}"
        try:
            with contextlib.suppress(custody.SecretMissing):
                await self.get(_NEVER_PUT, 1)
        except custody.CustodyError as error:
            refused = isinstance(error, custody.Refused)
            return custody.Status("vault", True, f"{where}: {error}", refused=refused, fix=error.fix)
        return custody.Status("vault", False, where)

    async def unseal(self, passphrase: str) -> None:
        raise custody.Unavailable("Vault has a seal of its own: vault operator unseal")

    async def _call(self, method: Callable[..., Result], ref: str, **arguments: object) -> Result:
        """In a thread: the client waits."""
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
        """What the client raises quotes what was sent back, which may contain a value: only the kind is passed on."""
        try:
            yield
        except hvac.exceptions.InvalidPath as error:
            # Vault gives no reason where an engine has no such value, and one where there is no engine.
            if error.errors:
                text = f"Vault has no KV version 2 engine at {self._mount}/; see --vault-mount"
                raise custody.Refused(text, fix=f"vault secrets enable -path={self._mount} kv-v2") from None
            raise custody.SecretMissing("there is no such version in Vault") from None
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
