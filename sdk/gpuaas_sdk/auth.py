"""Credentials of a client. `client` calls `header` before each attempt, and `invalidate` if the server refuses it."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from gpuaas_contract.endpoint import Answer, Endpoint, RequestBody
from gpuaas_contract.identity import SERVICE_ACCOUNT_TOKEN, ServiceAccountLogin

from gpuaas_sdk.outcomes import OutcomeUnknown, Unreachable

REFRESH_SHARE = 0.8
"""A token is renewed after this part of its lifetime, so that it does not expire during a call."""


class Calls(Protocol):
    """The part of the client that signing in needs: it calls the endpoints that require no token.

    async def header(client: Calls) -> str:
        login = identity.Login(name="ada", password=text)
        return "Bearer " + (await client.call(identity.LOGIN, login)).access_token"""

    async def call(self, endpoint: Endpoint[RequestBody, Answer], body: RequestBody | None = None) -> Answer:
        """Call an endpoint and return its answer."""
        ...


class Auth(Protocol):
    """Supplies the Authorization header of a client.

    auth: Auth = ServiceAccount(key_id, client_secret)
    async with Client(server, auth) as client:
        me = await client.call(identity.ME)"""

    async def header(self, client: Calls) -> str:
        """Return the value of the Authorization header, or an empty text to send no such header."""
        ...

    def invalidate(self, header: str) -> bool:
        """Discard a header that the server refused as expired or invalid. Return whether a new one can be obtained."""
        ...


class NoAuth:
    """No credentials, for public endpoints.

    async with Client(server, NoAuth()) as client:
        token = await client.call(identity.LOGIN, identity.Login(name="ada", password=text))"""

    async def header(self, client: Calls) -> str:
        """Return an empty text: no header is sent."""
        return ""

    def invalidate(self, header: str) -> bool:
        """Return False: there is nothing to renew."""
        return False


class BearerToken:
    """A token that was obtained elsewhere, for example by `gpuaas login`.

    async with Client(server, BearerToken(text)) as client:
        me = await client.call(identity.ME)"""

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
    """Exchanges a service-account key for short-lived tokens and renews them.

    async with Client(server, ServiceAccount(key_id, client_secret)) as client:
        me = await client.call(identity.ME)"""

    def __init__(self, key_id: str, client_secret: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.key_id = key_id
        self._client_secret = client_secret
        self._clock = clock
        self._header = ""
        self._renew_at = 0.0
        self._renew_lock = asyncio.Lock()

    async def header(self, client: Calls) -> str:
        """Return the current token. Get a new one from the platform at the first call and when the token is old."""
        async with self._renew_lock:
            if not self._header or self._clock() >= self._renew_at:
                await self._renew(client)
            return self._header

    def invalidate(self, header: str) -> bool:
        """Discard a refused token. Return True: the next call of `header` gets a new token."""
        # Another call may have renewed the token already, so only the refused token is discarded.
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
            # A token that was issued and lost does no harm, so the caller can treat the login as not done.
            raise Unreachable(error.message, fix=error.fix) from error
        self._header = f"Bearer {token.access_token}"
        self._renew_at = sent_at + token.expires_in_s * REFRESH_SHARE
