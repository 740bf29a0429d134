"""Serve the OpenAPI document. Its bytes and its ETag are made once, at the first request."""

import asyncio
import functools
import hashlib

import msgspec
from gpuaas_contract import openapi
from gpuaas_contract.documents import OPENAPI_GET

from gpuaas_platform.call import Call, Handler, Routes
from gpuaas_platform.kit import db


class Document(msgspec.Struct, frozen=True):
    """A document that is encoded already. Its revision is a digest of its content."""

    content: bytes
    revision: str


async def read(_: db.Reader, __: Call) -> Document:
    # Making it takes part of a second, in which other requests are served.
    return await asyncio.to_thread(_document)


@functools.cache
def _document() -> Document:
    content = msgspec.json.encode(openapi.document(), order="deterministic")
    return Document(content, hashlib.sha256(content).hexdigest()[:16])


routes = Routes([Handler(OPENAPI_GET, "read", read)])
