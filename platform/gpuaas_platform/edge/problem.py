"""Write an error of the catalogue as a problem document. Nowhere else is a status code chosen."""

import math

import msgspec
from gpuaas_contract import errors

from gpuaas_platform.edge.exchange import Header, Response

_MEDIA_TYPE = b"application/problem+json"


def response(error: errors.ApiError, correlation_id: str) -> Response:
    body = errors.Problem(
        type=f"urn:gpuaas:error:{error.code}",
        title=error.title,
        status=error.status,
        detail=error.message,
        code=error.code,
        message=error.message,
        correlation_id=correlation_id,
        details=error.details,
        retryable=error.retryable,
        fix=error.fix,
    )
    return Response(error.status, msgspec.json.encode(body), _MEDIA_TYPE, _headers(error), error.code)


def _headers(error: errors.ApiError) -> tuple[Header, ...]:
    if error.status in (429, 503):
        wait_s = max(1, math.ceil(error.details.get("retry_after_s", 1)))
        return ((b"retry-after", str(wait_s).encode()),)
    if error.status == 401:
        return ((b"www-authenticate", b"Bearer"),)
    if error.status == 405:
        return ((b"allow", ", ".join(error.details.get("allow", ())).encode()),)
    return ()
