"""Credentials of a client. `client` asks for a header before each attempt and reports a refused one."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from gpuaas_contract.endpoint import Answer, Endpoint, RequestBody
from gpuaas_contract.identity import SERVICE_ACCOUNT_TOKEN, ServiceAccountLogin

from gpuaas_sdk.outcomes import OutcomeUnknown, Unreachable

REFRESH_SHARE = 0.8
"""A token is renewed after this share of its life, so that it does not expire during a call."""


class Calls(Protocol):
    """The part of the client that credentials need: calling public endpoints."""

    async def call(self, endpoint: Endpoint[RequestBody, Answer], body: RequestBody | None = None) -> Answer: ...


class Auth(Protocol):
    """Supplies the Authorization header of a client."""

    async def header(self, client: Calls) -> str:
        """Return the value of the Authorization header; empty sends none."""
        ...

    def invalidate(self, header: str) -> bool:
        """Drop a header that the server refused as expired or invalid. Return whether the next one will differ."""
        ...


class NoAuth:
    """No credentials, for public endpoints."""

    async def header(self, client: Calls) -> str:
        """Return no header."""
        return ""

    def invalidate(self, header: str) -> bool:
        """Return False: there is nothing to renew."""
        return False


class BearerToken:
    """A token that was obtained elsewhere, for example by `gpuaas login`."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def header(self, client: Calls) -> str:
        """Return the token."""
        return f"Bearer {self._token}"

    def invalidate(self, header: str) -> bool:
        """Return False: the token cannot be renewed here."""
        return False

    def __repr__(self) -> str:
        return "BearerToken(…)"


class ServiceAccount:
    """Exchanges a service-account key for short-lived tokens and renews them."""

    def __init__(self, key_id: str, client_secret: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.key_id = key_id
        self._client_secret = client_secret
        self._clock = clock
        self._header = ""
        self._renew_at = 0.0
        self._renew_lock = asyncio.Lock()

    async def header(self, client: Calls) -> str:
        """Return the current token; the first call and an old token fetch a new one."""
        async with self._renew_lock:
            if not self._header or self._clock() >= self._renew_at:
                await self._renew(client)
            return self._header

    def invalidate(self, header: str) -> bool:
        """Drop a refused token. Return True: the next header has a new one."""
        # Another call may have renewed the token already; only the refused one is dropped.
        if header == self._header:
            self._header = ""
        return True

    def __repr__(self) -> str:
        return f"ServiceAccount(key_id={self.key_id!r}, client_secret=…)"

    async def _renew(self, client: Calls) -> None:
        sent_at = self._clock()
        login = ServiceAccountLogin(key_id=self.key_id, client_secret=self._client_secret)
        try:
            token = await client.call(SERVICE_ACCOUNT_TOKEN, login)
        except OutcomeUnknown as error:
            # A lost token leaves nothing to repair, so the outcome of the login does not matter.
            raise Unreachable(error.message, fix=error.fix) from error
        self._header = f"Bearer {token.access_token}"
        self._renew_at = sent_at + token.expires_in_s * REFRESH_SHARE
