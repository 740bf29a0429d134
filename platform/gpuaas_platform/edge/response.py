"""The response to one request, and the response for an error. `exchange` sends them; to a broken head, `heads` does."""

import math

import msgspec
from gpuaas_contract import errors

from gpuaas_platform.call import Source
from gpuaas_platform.kit import structs

Header = tuple[bytes, bytes]

JSON = b"application/json"
PROBLEM = b"application/problem+json"
NO_STORE: Header = (b"cache-control", b"no-store")
"""On every response: it belongs to one caller, and no cache between the caller and the platform may store it."""


class Response(msgspec.Struct, frozen=True):
    status: int
    content: bytes
    media_type: bytes = JSON
    headers: tuple[Header, ...] = ()
    code: str = ""
    """Error code, for the log; empty if there is no error."""
    source: Source | None = None
    """For a stream: the source of the body. `streams` sends it, and `content` is empty."""


def problem(error: errors.ApiError, correlation_id: str) -> Response:
    """Return the response for an error, as a problem document. Errors get their HTTP status only here."""
    kind = f"urn:gpuaas:error:{error.code}"
    body = structs.pick(errors.Problem, error, type=kind, detail=error.message, correlation_id=correlation_id)
    headers: tuple[Header, ...] = ()
    if error.status in (429, 503):
        headers = ((b"retry-after", b"%d" % max(1, math.ceil(error.details.get("retry_after_s", 1)))),)
    elif error.status == 401:
        headers = ((b"www-authenticate", b"Bearer"),)
    elif error.status == 405:
        headers = ((b"allow", ", ".join(error.details.get("allow", ())).encode()),)
    return Response(error.status, msgspec.json.encode(body), PROBLEM, headers, error.code)
