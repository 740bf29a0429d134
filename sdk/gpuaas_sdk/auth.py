"""How a client proves who it is. `client` asks for a header before each attempt and says when one was refused."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from gpuaas_contract.endpoint import Answer, Endpoint, RequestBody
from gpuaas_contract.identity import SERVICE_ACCOUNT_TOKEN, ServiceAccountLogin

from gpuaas_sdk.outcomes import OutcomeUnknown, Unreachable

REFRESH_SHARE = 0.8
"""A token is renewed when this share of its life is over, so that it does not expire on the way."""


class Calls(Protocol):
    """The part of the client an authenticator needs: calling public endpoints."""

    async def call(self, endpoint: Endpoint[RequestBody, Answer], body: RequestBody | None = None) -> Answer: ...


class Auth(Protocol):
    async def header(self, client: Calls) -> str:
        """Value of the Authorization header; empty sends none."""
        ...

    def invalidate(self, header: str) -> bool:
        """The server refused this header as expired or invalid. True if the next header will be another one."""
        ...


class NoAuth:
    async def header(self, client: Calls) -> str:
        return ""

    def invalidate(self, header: str) -> bool:
        return False


class BearerToken:
    """A token somebody else got, for example by `gpuaas login`."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def header(self, client: Calls) -> str:
        return f"Bearer {self._token}"

    def invalidate(self, header: str) -> bool:
        return False

    def __repr__(self) -> str:
        return "BearerToken(…)"


class ServiceAccount:
    """Trades a service-account key for short tokens and renews them."""

    def __init__(self, key_id: str, client_secret: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.key_id = key_id
        self._client_secret = client_secret
        self._clock = clock
        self._header = ""
        self._renew_at = 0.0
        self._renewing = asyncio.Lock()

    async def header(self, client: Calls) -> str:
        async with self._renewing:
            if not self._header or self._clock() >= self._renew_at:
                await self._renew(client)
            return self._header

    def invalidate(self, header: str) -> bool:
        # Another call may have renewed the token meanwhile; only the refused one is dropped.
        if header == self._header:
            self._header = ""
        return True

    def __repr__(self) -> str:
        return f"ServiceAccount(key_id={self.key_id!r}, client_secret=…)"

    async def _renew(self, client: Calls) -> None:
        asked_at = self._clock()
        login = ServiceAccountLogin(key_id=self.key_id, client_secret=self._client_secret)
        try:
            token = await client.call(SERVICE_ACCOUNT_TOKEN, login)
        except OutcomeUnknown as error:
            # A token that got lost on the way changes nothing anybody has to look after.
            raise Unreachable(error.message, fix=error.fix) from error
        self._header = f"Bearer {token.access_token}"
        self._renew_at = asked_at + token.expires_in_s * REFRESH_SHARE
