"""Decide after each attempt of a request: return its response, raise an error, or retry. Pure; `client` acts on it."""

import random
import ssl
from dataclasses import dataclass
from typing import cast

import httpx
import msgspec
from gpuaas_contract.errors import BY_CODE, ApiError, Problem

BACK_OFF_S_FIRST = 0.2
BACK_OFF_S_MAX = 5.0
UNREADABLE = (msgspec.DecodeError, ValueError, RecursionError)
"""What the decoder raises: no JSON of the expected form, no UTF-8, nested too deep."""

_GATEWAY_STATUSES = frozenset({502, 503, 504})
_TRANSIENT_CODES = frozenset({"request_in_flight", "unavailable"})
_STALE_TOKEN_CODES = frozenset({"token_expired", "token_invalid"})


@dataclass(frozen=True)
class Retry:
    """The request got no final answer from the server, so it is sent again."""

    why: str
    may_have_reached: bool
    """The server may have received the request, so a change may have happened."""
    after_s: float | None = None
    """The pause that the server requested with the header Retry-After."""


def of_response(response: httpx.Response) -> Retry | ApiError | None:
    """Return the error to raise or the reason to retry; None if the request succeeded."""
    if response.is_success:
        return None
    error = error_of(response)
    if response.status_code == 429 or response.status_code in _GATEWAY_STATUSES or _is_transient(error):
        return Retry(
            f"{error.message} (HTTP {response.status_code})",
            may_have_reached=response.status_code != 429,
            after_s=_retry_after_s(response),
        )
    return error


def of_exception(error: httpx.RequestError | TimeoutError, *, was_sent: bool) -> Retry:
    """Return the reason to retry a request that got no response."""
    return Retry(str(error) or type(error).__name__, may_have_reached=was_sent)


def is_stale_token(error: ApiError) -> bool:
    """Return whether the server refused the token, so that a new one can help."""
    return error.code in _STALE_TOKEN_CODES


def is_untrusted_certificate(error: BaseException | None) -> bool:
    """Return whether the server's certificate was rejected. A retry does not help then."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def is_without_tls(error: BaseException | None) -> bool:
    """Return whether the server answered in plain text where TLS was expected. A retry does not help then."""
    while error is not None:
        if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
            return True
        error = error.__cause__ or error.__context__
    return False


def back_off_s(attempt: int) -> float:
    """Return a random pause that grows with the attempt, so that callers do not retry at the same moment."""
    ceiling = min(BACK_OFF_S_MAX, BACK_OFF_S_FIRST * 2.0 ** min(attempt, 16))
    return random.uniform(ceiling / 4, ceiling)


def error_of(response: httpx.Response) -> ApiError:
    """Return the error that the response describes."""
    try:
        problem = msgspec.json.decode(response.content, type=Problem)
    except UNREADABLE:
        text = " ".join(response.text.split())[:200] or "no text"
        error_class = _unknown_class(
            f"http_{response.status_code}", response.status_code, retryable=response.is_server_error
        )
        message = f"HTTP {response.status_code} without a problem document: {text}"
        return error_class(message, fix="Check that the address is a GPUaaS server.")
    error_class = BY_CODE.get(problem.code) or _unknown_class(problem.code, problem.status, retryable=problem.retryable)
    error = error_class(problem.message, details=problem.details, fix=problem.fix)
    error.correlation_id = problem.correlation_id
    return error


def _is_transient(error: ApiError) -> bool:
    # The platform answers every error with a problem document. A 5xx without one comes from a server that shuts down.
    return error.retryable and (error.code in _TRANSIENT_CODES or error.code.startswith("http_5"))


def _unknown_class(code: str, status: int, *, retryable: bool) -> type[ApiError]:
    """Return an error class for a code that this SDK does not have: `error.code` must be the code of the server."""
    attributes = {"code": code, "status": status, "retryable": retryable, "default_fix": "Upgrade the SDK."}
    return cast(type[ApiError], type("ApiError", (ApiError,), attributes))


def _retry_after_s(response: httpx.Response) -> float | None:
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() else None
