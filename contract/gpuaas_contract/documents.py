"""The route that serves the OpenAPI document."""

from typing import Any

from gpuaas_contract.paths import API

OPENAPI_GET = API.row(
    "/openapi.json",
    "document.openapi.get",
    "Get the OpenAPI document of this server",
    "This document. It needs no token. Send its ETag as If-None-Match to download it only when it changed.",
).get(dict[str, Any], audience="public", has_etag=True)
