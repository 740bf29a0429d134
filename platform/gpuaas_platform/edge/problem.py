"""Write an error of the catalogue as a problem document. Nowhere else is a status code chosen."""

from collections.abc import Mapping

import msgspec
from gpuaas_contract import errors
from starlette.responses import Response


def response(error: errors.ApiError, correlation_id: str, headers: Mapping[str, str] | None = None) -> Response:
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
    extra = {"Retry-After": "1"} if error.status in (429, 503) else {}
    return Response(
        msgspec.json.encode(body),
        status_code=error.status,
        media_type="application/problem+json",
        headers={**(headers or {}), **extra, "X-Correlation-ID": correlation_id},
    )
