"""One request to the platform, checked against its endpoint, which can be sent any number of times."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic
from urllib.parse import quote, urlsplit

import msgspec
from gpuaas_contract import characters
from gpuaas_contract.endpoint import Answer, Endpoint, RequestBody
from gpuaas_contract.errors import NotFound
from gpuaas_contract.wire import NoBody

from gpuaas_sdk import traces


@dataclass(frozen=True)
class Request(Generic[RequestBody, Answer]):
    """One request. Every attempt sends the same path, query, content and idempotency key."""

    endpoint: Endpoint[RequestBody, Answer]
    path: str
    query: Mapping[str, str]
    content: bytes | None = None
    idempotency_key: str = ""
    correlation_id: str = ""
    if_match: str = ""
    wait_s: float = 0.0
    """How long the server may hold the request before it answers (long poll)."""

    def headers(self, authorization: str) -> dict[str, str]:
        """Return the headers of one attempt, without those that have no value."""
        headers = {
            "Authorization": authorization,
            "X-Idempotency-Key": self.idempotency_key,
            "X-Correlation-ID": self.correlation_id,
            "If-Match": self.if_match,
            "Content-Type": "application/json" if self.content is not None else "",
            "traceparent": traces.traceparent(),
        }
        return {name: value for name, value in headers.items() if value}


def is_address(server: str) -> bool:
    """Return whether this is the address of a server: a scheme, a host and perhaps a port."""
    try:
        parts = urlsplit(server)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port over 65535, or half an IPv6 address
        return False


def path(endpoint: Endpoint[Any, Any], given: Mapping[str, str]) -> str:
    """Return the endpoint's path with the given parameters. Raises `TypeError` if one is missing, unknown or empty.

    Nothing is named `.` or `..`. They cannot be sent: HTTP clients shorten a path that has them, so that a request to
    delete `projects/P/bindings/..` would delete the project."""
    wanted = set(re.findall(r"{(\w+)}", endpoint.path))
    _check_names(endpoint, "path parameters", missing=wanted - given.keys(), unknown=given.keys() - wanted)
    empty = sorted(name for name, value in given.items() if not value)
    if empty:
        raise TypeError(f"{endpoint.name}: empty path parameters: {', '.join(empty)}")
    if dots := sorted(value for value in given.values() if value in (".", "..")):
        raise NotFound(f"{dots[0]!r} is not a name: nothing is called so.", fix="gpuaas get lists the names.")
    return endpoint.path.format_map({name: quote(value, safe="") for name, value in given.items()})


def query(endpoint: Endpoint[Any, Any], given: Mapping[str, Any], *, dry_run: bool = False) -> dict[str, str]:
    """Return the query as text. Raises `TypeError` for a parameter that the endpoint does not have."""
    known = {field.name for field in msgspec.structs.fields(endpoint.query)}
    _check_names(endpoint, "query parameters", missing=set(), unknown=given.keys() - known)
    if dry_run and not endpoint.mutates:
        raise TypeError(f"{endpoint.name} changes nothing, so it has no dry run")
    parameters = {**given, **({"dry_run": True} if dry_run else {})}
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in parameters.items()}


def content(endpoint: Endpoint[Any, Any], body: object | None) -> bytes | None:
    """Return the body as JSON. Raises `TypeError` if it is not the endpoint's request type."""
    if body is None and endpoint.request is NoBody:
        return None
    if not isinstance(body, endpoint.request):
        raise TypeError(f"{endpoint.name}: the body must be a {endpoint.request.__name__}, not {type(body).__name__}")
    document = msgspec.json.encode(body)
    # Reports of a controller repeat what programs on machines printed; the platform refuses control characters.
    return characters.replaced(document) if endpoint.name.startswith("runtime.") else document


def _check_names(endpoint: Endpoint[Any, Any], what: str, *, missing: set[str], unknown: set[str]) -> None:
    if missing:
        raise TypeError(f"{endpoint.name}: missing {what}: {', '.join(sorted(missing))}")
    if unknown:
        raise TypeError(f"{endpoint.name}: unknown {what}: {', '.join(sorted(unknown))}")
