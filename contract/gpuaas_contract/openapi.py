"""Make the OpenAPI 3.1 document from the endpoint table; `--check` compares it with the golden file."""

import re
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from gpuaas_contract import VERSION, errors, golden, meanings, registry
from gpuaas_contract.endpoint import AnyEndpoint
from gpuaas_contract.wire import NoBody

_DESCRIPTION = (
    "The open app platform for GPU clouds. Text must not contain NUL, documents nest at most 64 levels, a JSON body "
    "has at most 1 MiB, and each caller has a limit of requests per second."
)
_TEXT = {"type": "string"}
_RAW = {"type": "string", "format": "binary"}
_KEY = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"}


def _header(description: str, *, required: bool, schema: dict[str, Any] = _TEXT) -> dict[str, Any]:
    return {"description": description, "required": required, "schema": schema}


_HEADERS = {
    "X-Correlation-ID": _header(
        "Id under which everything about the request is recorded; `gpuaas triage` shows it.", required=True
    ),
    "traceparent": _header("W3C trace context of the answer.", required=True),
    "ETag": _header("Version of the resource; send it as If-Match.", required=True),
    "WWW-Authenticate": {"description": "How to authenticate.", "schema": _TEXT},
    "Allow": _header("HTTP methods that this path supports.", required=True),
    "Retry-After": _header(
        "Seconds to wait before the next attempt.", required=True, schema={"type": "integer", "minimum": 1}
    ),
}
_HEADERS_OF_STATUS = {401: ("WWW-Authenticate",), 405: ("Allow",), 429: ("Retry-After",), 503: ("Retry-After",)}
_REQUEST_HEADERS = {
    "X-Correlation-ID": _header(
        "Your id for the request, under which it is recorded; without it the platform makes one.", required=False
    ),
    "traceparent": _header("W3C trace context of the caller.", required=False),
    "Last-Event-ID": _header("Cursor of the last event received; takes precedence over `after`.", required=False),
    "If-Match": _header("The ETag you read. The change is refused if the resource has changed since.", required=False),
    "If-None-Match": _header(
        "GET: answer 304 if the ETag is the same. PUT with `*`: only if it does not exist yet.", required=False
    ),
    "X-Idempotency-Key": _header(
        "One random key per change, the same on every retry: the change is made once, and a repeat gets the first"
        " answer again.",
        required=True,
        schema=_KEY,
    ),
}
_SEGMENT = {"type": "string", "minLength": 1, "maxLength": 255}
_DRY_RUN = {
    "name": "dry_run",
    "in": "query",
    "required": False,
    "schema": {"type": "boolean", "default": False},
    "description": "Check and answer as if the change were made, and store nothing.",
}


def document(endpoints: Sequence[AnyEndpoint] = registry.ENDPOINTS) -> dict[str, Any]:
    bodies = [endpoint.request for endpoint in endpoints] + [endpoint.response for endpoint in endpoints]
    kinds = list(dict.fromkeys([*bodies, errors.Problem]))
    shapes, schemas = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schema_of = {**dict(zip(kinds, shapes, strict=True)), bytes: _RAW}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schema_of)
    components = {
        "schemas": meanings.described(schemas, kinds),
        "headers": _HEADERS,
        "parameters": {name: {"name": name, "in": "header", **shape} for name, shape in _REQUEST_HEADERS.items()},
        "responses": _problems(endpoints, schema_of[errors.Problem]),
        "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "GPUaaS", "version": VERSION, "description": _DESCRIPTION},
        "servers": [{"url": "/", "description": "The server that this document comes from."}],
        "paths": _with_bounds(paths),
        "components": _without_struct_defaults(_with_bounds(components)),
    }


def _operation(endpoint: AnyEndpoint, schema_of: dict[Any, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "description": _description(endpoint),
        "tags": [endpoint.name.split(".")[0]],
        "parameters": [*_path_parameters(endpoint), *_query_parameters(endpoint), *_header_parameters(endpoint)],
        "responses": _responses(endpoint, schema_of),
        "security": [] if endpoint.audience == "public" else [{"bearer": []}],
    }
    if endpoint.permission:
        operation["x-permission"] = endpoint.permission
    if endpoint.request is not NoBody:
        content: dict[str, Any] = {"schema": schema_of[endpoint.request]}
        if endpoint.example:
            content["example"] = endpoint.example
        media_type = "application/octet-stream" if endpoint.takes_bytes else "application/json"
        operation["requestBody"] = {"required": True, "content": {media_type: content}}
    return operation


def _description(endpoint: AnyEndpoint) -> str:
    parts = [endpoint.description or f"{endpoint.summary}."]
    if endpoint.permission:
        parts.append(f"Needs the permission `{endpoint.permission}`.")
    if endpoint.audience == "node":
        parts.append("Called by the node agent, with the node's token.")
    if endpoint.guarded:
        parts.append("Needs If-Match with the ETag that GET on this path answers with.")
    if endpoint.secret_answer:
        parts.append("The answer contains a secret, which is not shown again.")
    return " ".join(parts)


def _path_parameters(endpoint: AnyEndpoint) -> list[dict[str, Any]]:
    names = re.findall(r"{(\w+)}", endpoint.path)
    return [{"name": name, "in": "path", "required": True, "schema": _SEGMENT} for name in names]


def _query_parameters(endpoint: AnyEndpoint) -> list[dict[str, Any]]:
    fields = list(msgspec.structs.fields(endpoint.query))
    shapes, _ = msgspec.json.schema_components([field.type for field in fields])
    texts = meanings.of(endpoint.query)
    parameters: list[dict[str, Any]] = [
        {"name": field.name, "in": "query", "required": False, "schema": {**shape, "default": field.default}}
        | ({"description": texts[field.name]} if field.name in texts else {})
        for field, shape in zip(fields, shapes, strict=True)
    ]
    if endpoint.mutates:
        parameters.append(_DRY_RUN)
    return parameters


def _header_parameters(endpoint: AnyEndpoint) -> list[dict[str, Any]]:
    names = ["X-Correlation-ID", "traceparent"]
    if endpoint.streams:
        names.append("Last-Event-ID")
    if endpoint.mutates and endpoint.repeat == "key":
        names.append("X-Idempotency-Key")
    if endpoint.guarded:
        names.append("If-Match")
    if endpoint.guarded or endpoint.tagged:
        names.append("If-None-Match")
    return [{"$ref": f"#/components/parameters/{name}"} for name in names]


def _responses(endpoint: AnyEndpoint, schema_of: dict[Any, Any]) -> dict[str, Any]:
    media_type = "text/event-stream" if endpoint.streams else endpoint.media_type
    schema = _event(endpoint, schema_of) if endpoint.streams else schema_of[endpoint.response]
    tag = ("ETag",) if endpoint.tagged else ()
    answers: dict[str, Any] = {
        str(endpoint.status): {
            "description": endpoint.summary,
            "headers": _headers(*tag),
            "content": {media_type: {"schema": schema}},
        }
    }
    if endpoint.tagged:
        answers["304"] = {"description": "Not changed since the ETag in If-None-Match", "headers": _headers(*tag)}
    for status, codes in _codes_by_status(endpoint).items():
        answers[str(status)] = {"$ref": f"#/components/responses/{'-'.join(codes)}"}
    return answers


def _event(endpoint: AnyEndpoint, schema_of: dict[Any, Any]) -> dict[str, Any]:
    """Return the schema of one server-sent event; keep-alive events have no data."""
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": schema_of[endpoint.response]}
    return {"type": "object", "properties": {"id": _TEXT, "event": _TEXT, "data": data}}


def _problems(endpoints: Sequence[AnyEndpoint], problem: dict[str, Any]) -> dict[str, Any]:
    """Return the problem responses, shared by routes with the same error codes."""
    by_name: dict[str, Any] = {}
    for endpoint in endpoints:
        for status, codes in _codes_by_status(endpoint).items():
            by_name["-".join(codes)] = {
                "description": ", ".join(codes),
                "headers": _headers(*_HEADERS_OF_STATUS.get(status, ())),
                "content": {"application/problem+json": {"schema": problem}},
            }
    return by_name


def _codes_by_status(endpoint: AnyEndpoint) -> dict[int, list[str]]:
    codes: dict[int, list[str]] = {}
    for error in sorted(endpoint.possible_errors(), key=lambda kind: (kind.status, kind.code)):
        codes.setdefault(error.status, []).append(error.code)
    return codes


def _headers(*more: str) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in ("X-Correlation-ID", "traceparent", *more)}


def _with_bounds(schema: Any) -> Any:
    """Add the bounds that the platform enforces for every integer: 64 bits."""
    if isinstance(schema, list):
        return [_with_bounds(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    bounded = {name: _with_bounds(part) for name, part in schema.items()}
    if bounded.get("type") == "integer":
        bounded = {
            "format": "int64",
            **_bound("minimum", -(2**63), bounded),
            **_bound("maximum", 2**63 - 1, bounded),
            **bounded,
        }
    return bounded


def _without_struct_defaults(schema: Any) -> Any:
    """Remove defaults that are objects with fields: generators make code that does not compile. The fields of the inner
    schema have the same defaults."""
    if isinstance(schema, list):
        return [_without_struct_defaults(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: part for name, part in schema.items() if not (name == "default" and part and isinstance(part, dict))}
    return {name: _without_struct_defaults(part) for name, part in kept.items()}


def _bound(name: str, value: int, schema: dict[str, Any]) -> dict[str, int]:
    return {} if name in schema or f"exclusive{name.capitalize()}" in schema else {name: value}


def text() -> str:
    return golden.as_json(document())


def main() -> int:
    return golden.main("the endpoint table", lambda _: text())


if __name__ == "__main__":
    sys.exit(main())
