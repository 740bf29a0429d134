"""Make the OpenAPI 3.1 document from the endpoint table; `--check` compares it with the golden file."""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from gpuaas_contract import VERSION, errors, registry
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.wire import NoBody

AnyEndpoint = Endpoint[Any, Any]


def document(endpoints: Sequence[AnyEndpoint] = registry.ENDPOINTS) -> dict[str, Any]:
    bodies = [endpoint.request for endpoint in endpoints] + [endpoint.response for endpoint in endpoints]
    kinds = list(dict.fromkeys([*bodies, errors.Problem]))
    shapes, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(kinds, shapes, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {"title": "GPUaaS", "version": VERSION, "description": "The open app platform for GPU clouds."},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: AnyEndpoint, schema_of: dict[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "tags": [endpoint.name.split(".")[0]],
        "parameters": [*_path_parameters(endpoint), *_query_parameters(endpoint), *_header_parameters(endpoint)],
        "responses": _responses(endpoint, schema_of),
        "security": [] if endpoint.audience == "public" else [{"bearer": []}],
    }
    if endpoint.permission:
        found["x-permission"] = endpoint.permission
    if endpoint.request is not NoBody:
        content: dict[str, Any] = {"schema": schema_of[endpoint.request]}
        if endpoint.example:
            content["example"] = endpoint.example
        found["requestBody"] = {"required": True, "content": {"application/json": content}}
    return found


def _path_parameters(endpoint: AnyEndpoint) -> list[dict[str, Any]]:
    names = re.findall(r"{(\w+)}", endpoint.path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _query_parameters(endpoint: AnyEndpoint) -> list[dict[str, Any]]:
    fields = list(msgspec.structs.fields(endpoint.query))
    shapes, _ = msgspec.json.schema_components([field.type for field in fields])
    found = [
        {"name": field.name, "in": "query", "required": False, "schema": {**shape, "default": field.default}}
        for field, shape in zip(fields, shapes, strict=True)
    ]
    if endpoint.mutates:
        found.append({"name": "dry_run", "in": "query", "required": False, "schema": {"type": "boolean"}})
    return found


def _header_parameters(endpoint: AnyEndpoint) -> list[dict[str, Any]]:
    headers = [{"name": "X-Correlation-ID", "in": "header", "required": False, "schema": {"type": "string"}}]
    if endpoint.mutates and endpoint.repeat == "key":
        key = {"type": "string", "minLength": 1, "maxLength": 255}
        headers.append({"name": "X-Idempotency-Key", "in": "header", "required": True, "schema": key})
    return headers


def _responses(endpoint: AnyEndpoint, schema_of: dict[Any, Any]) -> dict[str, Any]:
    answers: dict[str, Any] = {
        str(endpoint.status): {
            "description": endpoint.summary,
            "content": {"application/json": {"schema": schema_of[endpoint.response]}},
        }
    }
    by_status: dict[int, list[str]] = {}
    for error in endpoint.possible_errors():
        by_status.setdefault(error.status, []).append(error.code)
    for status, codes in sorted(by_status.items()):
        content = {"application/problem+json": {"schema": schema_of[errors.Problem]}}
        answers[str(status)] = {"description": ", ".join(sorted(codes)), "content": content}
    return answers


def text() -> str:
    return msgspec.json.format(msgspec.json.encode(document(), order="deterministic"), indent=2).decode() + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", type=Path)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    if options.write:
        options.write.write_text(text())
    if options.check and options.check.read_text() != text():
        sys.stderr.write(
            f"{options.check} does not match the endpoint table. If the change is on purpose: make contract\n"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
