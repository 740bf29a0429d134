"""The texts under the fields of the contract reach those who read its documents."""

from typing import Any

import pytest
from gpuaas_contract import access, asyncapi, capacity, meanings, node, openapi
from gpuaas_contract.node import TaskQuery


def test_what_is_written_under_a_field_is_in_the_openapi_document() -> None:
    schemas = openapi.document()["components"]["schemas"]
    pinned = schemas["MachineAccess"]["properties"]["host_public_key"]
    assert pinned["description"] == meanings.of(access.MachineAccess)["host_public_key"] != ""


def test_what_a_field_means_comes_before_the_rule_of_its_type() -> None:
    name = openapi.document()["components"]["schemas"]["CreateEnrolmentToken"]["properties"]["name"]
    meaning = meanings.of(capacity.CreateEnrolmentToken)["name"]
    assert name["description"].startswith(f"{meaning} 1 to 63 letters")


def test_what_is_written_under_a_field_of_a_query_describes_the_parameter() -> None:
    parameters = openapi.document([node.TASK_NEXT])["paths"][node.TASK_NEXT.path]["get"]["parameters"]
    texts = {
        parameter["name"]: parameter.get("description") for parameter in parameters if parameter.get("in") == "query"
    }
    assert texts["busy_with"] == meanings.of(TaskQuery)["busy_with"]


def test_events_are_described_too() -> None:
    schemas = asyncapi.document()["components"]["schemas"]
    assert any("description" in field for schema in schemas.values() for field in schema.get("properties", {}).values())


def test_a_page_describes_its_fields_for_every_item_type() -> None:
    pages = {name: schema for name, schema in openapi.document()["components"]["schemas"].items() if "Page_" in name}
    described = {name for name, schema in pages.items() if schema["properties"]["next_page_token"].get("description")}
    assert described == set(pages) != set()


@pytest.mark.parametrize("document", [openapi.document(), asyncapi.document()], ids=["openapi", "asyncapi"])
def test_every_struct_of_the_documents_has_a_description(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert [name for name, schema in schemas.items() if not schema.get("description")] == []


def test_every_header_and_shared_parameter_has_a_description() -> None:
    components = openapi.document()["components"]
    texts = {**components["headers"], **components["parameters"]}
    assert [name for name, shape in texts.items() if not shape.get("description")] == []
