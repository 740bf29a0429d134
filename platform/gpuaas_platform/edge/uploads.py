"""Raw bodies, for the few routes that take no JSON: handed on as they come, never whole in memory."""

import asyncio
from collections.abc import AsyncIterator

from gpuaas_contract import errors

from gpuaas_platform.edge.exchange import BODY_S_MAX, Exchange


async def chunks(exchange: Exchange, bytes_max: int) -> AsyncIterator[bytes]:
    """A body as it comes. It ends whole, or with an error."""
    refused = errors.BodyTooLarge(fix=f"Send at most {bytes_max} bytes.")
    length = exchange.headers.get(b"content-length", b"")
    if length.isdigit() and int(length) > bytes_max:
        raise refused
    taken, more = 0, True
    while more:
        try:
            async with asyncio.timeout(BODY_S_MAX):
                message = await exchange.receive()
        except TimeoutError as error:
            raise errors.InvalidRequest(f"Nothing more of the body came for {BODY_S_MAX:g} s.") from error
        if message["type"] == "http.disconnect":
            raise errors.InvalidRequest("The body ended before it was whole.")
        chunk, more = message.get("body", b""), message.get("more_body", False)
        taken += len(chunk)
        if taken > bytes_max:
            raise refused
        if chunk:
            yield chunk
