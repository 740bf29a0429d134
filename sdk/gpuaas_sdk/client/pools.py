"""The connections to one server, in several small pools.

httpx looks at every connection of a pool for each request. A controller waits for many answers at the same time, and
in one pool with all their connections that search would take longer than the requests themselves."""

import contextlib
from collections.abc import AsyncIterator, Callable

import httpx

AT_ONCE = 16
"""Requests in one pool at the same time. The next one opens another pool."""
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=AT_ONCE)
"""No request waits for a connection: those of one project never wait for those of another."""


class Pools:
    """Lends the first pool that has room, so a client with one request at a time uses one connection."""

    def __init__(self, open_pool: Callable[[httpx.Limits], httpx.AsyncClient]) -> None:
        self._open_pool = open_pool
        self._pools: list[httpx.AsyncClient] = []
        self._in_use: list[int] = []

    @contextlib.asynccontextmanager
    async def lend(self) -> AsyncIterator[httpx.AsyncClient]:
        """Return a pool for one request.

        async with pools.lend() as http:
            response = await http.get("/me")"""
        at = next((at for at, requests in enumerate(self._in_use) if requests < AT_ONCE), len(self._pools))
        if at == len(self._pools):
            self._pools.append(self._open_pool(_LIMITS))
            self._in_use.append(0)
        self._in_use[at] += 1
        try:
            yield self._pools[at]
        finally:
            self._in_use[at] -= 1

    async def aclose(self) -> None:
        for pool in self._pools:
            await pool.aclose()
