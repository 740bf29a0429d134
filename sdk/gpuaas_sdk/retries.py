"""Decide what an attempt's end means: an answer, a refusal to raise, or a reason to try again. Pure; `client` acts."""

import random
import ssl
from dataclasses import dataclass
from typing import cast

import httpx
import msgspec
from gpuaas_contract.errors import BY_CODE, ApiError, Problem

BACK_OFF_S_FIRST = 0.2
BACK_OFF_S_MAX = 5.0

_GATEWAY_STATUSES = frozenset({502, 503, 504})
_TRANSIENT_CODES = frozenset({"request_in_flight", "unavailable"})
_STALE_TOKEN_CODES = frozenset({"token_expired", "token_invalid"})


@dataclass(frozen=True)
class Again:
    """The attempt gave no answer worth keeping."""

    why: str
    may_have_reached: bool
    """The server may have done what was asked, so a change may have happened."""
    after_s: float | None = None
    """The server's own wish, by Retry-After."""


def of_response(response: httpx.Response) -> Again | ApiError | None:
    """None: the response is the answer."""
    if response.is_success:
        return None
    error = error_of(response)
    if response.status_code == 429 or response.status_code in _GATEWAY_STATUSES or _is_transient(error):
        return Again(
            f"{error.message} (HTTP {response.status_code})",
            may_have_reached=response.status_code != 429,
            after_s=_retry_after_s(response),
        )
    return error


def of_exception(error: httpx.TransportError | TimeoutError, *, has_left: bool) -> Again:
    return Again(str(error) or type(error).__name__, may_have_reached=has_left)


def is_stale_token(error: ApiError) -> bool:
    return error.code in _STALE_TOKEN_CODES


def is_distrust(error: BaseException | None) -> bool:
    """The server's certificate was not accepted; trying again does not help."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def back_off_s(attempt: int) -> float:
    """Full jitter: callers that failed together do not come back together."""
    ceiling = min(BACK_OFF_S_MAX, BACK_OFF_S_FIRST * 2.0 ** min(attempt, 16))
    return random.uniform(ceiling / 4, ceiling)


def error_of(response: httpx.Response) -> ApiError:
    try:
        problem = msgspec.json.decode(response.content, type=Problem)
    except msgspec.DecodeError:
        text = " ".join(response.text.split())[:200] or "no text"
        kind = _unknown_kind(f"http_{response.status_code}", response.status_code, retryable=response.is_server_error)
        message = f"HTTP {response.status_code} without a problem document: {text}"
        return kind(message, fix="Check that the address is a GPUaaS server.")
    kind = BY_CODE.get(problem.code) or _unknown_kind(problem.code, problem.status, retryable=problem.retryable)
    error = kind(problem.message, details=problem.details, fix=problem.fix)
    error.correlation_id = problem.correlation_id
    return error


def _is_transient(error: ApiError) -> bool:
    # The platform's edge always writes a problem document; a bare 5xx comes from a server that is going down.
    return error.retryable and (error.code in _TRANSIENT_CODES or error.code.startswith("http_5"))


def _unknown_kind(code: str, status: int, *, retryable: bool) -> type[ApiError]:
    """A class for a code that is newer than this SDK, so `error.code` tells the truth for every error."""
    attributes = {"code": code, "status": status, "retryable": retryable, "default_fix": "Upgrade the SDK."}
    return cast(type[ApiError], type("ApiError", (ApiError,), attributes))


def _retry_after_s(response: httpx.Response) -> float | None:
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() else None
