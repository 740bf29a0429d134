"""What generators of clients need from the OpenAPI document. `make clients` makes, compiles and tries the clients."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from gpuaas_contract import openapi

DOCUMENT = openapi.document()
OPERATIONS = [operation for methods in DOCUMENT["paths"].values() for operation in methods.values()]


def parts(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of the document."""
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from parts(part)


def test_no_default_is_an_object_with_fields() -> None:
    """The Go generator writes such a default as it is, and the result does not compile."""
    defaults = [part["default"] for part in parts(DOCUMENT["components"]) if "default" in part]
    assert defaults
    assert [value for value in defaults if value and isinstance(value, dict)] == []


@pytest.mark.parametrize("separator", ["", "_"], ids=["camel-case", "snake-case"])
def test_names_of_operations_stay_unique_as_names_of_functions(separator: str) -> None:
    names = [re.sub(r"[^a-z0-9]", separator, operation["operationId"].lower()) for operation in OPERATIONS]
    assert len(set(names)) == len(names)


def test_every_operation_is_described_and_has_a_tag() -> None:
    assert [item["operationId"] for item in OPERATIONS if not (item["description"] and item["tags"])] == []


def test_every_moment_is_a_date_time() -> None:
    """Clients get a type for moments, and no text that each caller parses."""
    moments = {
        (name, str(schema))
        for part in parts(DOCUMENT["components"]["schemas"])
        for name, schema in part.get("properties", {}).items()
        if name.endswith("_at")
    }
    assert [name for name, schema in moments if "date-time" not in schema] == []


def test_every_integer_has_64_bits_and_larger_numbers_are_text() -> None:
    integers = [part for part in parts(DOCUMENT) if part.get("type") == "integer"]
    assert {part["format"] for part in integers} == {"int64"}
    serial = DOCUMENT["components"]["schemas"]["MachineAccess"]["properties"]["serial"]
    assert serial["type"] == "string"


def test_a_client_uses_the_server_that_the_document_came_from() -> None:
    assert [server["url"] for server in DOCUMENT["servers"]] == ["/"]
