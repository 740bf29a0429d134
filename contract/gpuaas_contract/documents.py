"""The route that serves the OpenAPI document."""

from typing import Any

from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.wire import NoBody

OPENAPI_GET = Endpoint(
    "document.openapi.get",
    "GET",
    "/api/v1/openapi.json",
    "Get the OpenAPI document of this server",
    audience="public",
    request=NoBody,
    response=dict[str, Any],
    has_etag=True,
    description="This document. It needs no token. Send its ETag as If-None-Match to download it only when it changed.",
)
ENDPOINTS = (OPENAPI_GET,)
