"""Serve the OpenAPI document. Its bytes and its ETag are made once, at the first request."""

import asyncio
import functools
import hashlib

import msgspec
from gpuaas_contract import openapi

from gpuaas_platform.call import Call
from gpuaas_platform.edge import etag
from gpuaas_platform.edge.exchange import Answer


async def run(call: Call, _: object) -> Answer:
    # Making it takes part of a second, in which other requests are served.
    content, tag = await asyncio.to_thread(_content_and_tag)
    headers = ((b"etag", tag.encode()),)
    if etag.is_known(call.header(b"if-none-match"), tag):
        return Answer(304, b"", headers=headers)
    return Answer(200, content, headers=headers)


@functools.cache
def _content_and_tag() -> tuple[bytes, str]:
    content = msgspec.json.encode(openapi.document(), order="deterministic")
    return content, f'"{hashlib.sha256(content).hexdigest()[:16]}"'
