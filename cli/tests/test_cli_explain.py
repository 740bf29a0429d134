"""`gpuaas explain` and `gpuaas schema`: the contract in words, without a server."""

from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest
from gpuaas_cli import kinds
from gpuaas_cli.commands import explain
from gpuaas_cli.explain import forms, pages
from gpuaas_contract import registry
from gpuaas_contract.endpoint import Endpoint
from gpuaas_sdk import reference

Cli = Any
Golden = Callable[[str, str], None]


@pytest.mark.parametrize("path", ["node", "create-allocation", "operation.steps", "operation.steps.state"])
def test_a_resource_is_explained_field_by_field(path: str, stranger: Cli, golden: Golden) -> None:
    golden(f"explain-{path}.txt", stranger("explain", path).out)


def test_an_endpoint_is_shown_with_what_it_takes_answers_and_refuses(stranger: Cli, golden: Golden) -> None:
    golden("schema-capacity.node.upgrade_agent.txt", stranger("schema", "capacity.node.upgrade_agent").out)
    assert "a node calls it" in stranger("schema", "node.task.next").out
    assert "an app's controller calls it" in stranger("schema", "runtime.claim").out


def test_programs_get_the_same_as_data(stranger: Cli) -> None:
    explained = stranger("explain", "node", "-o", "json").json
    cordon = next(command for command in explained["commands"] if command["command"] == "gpuaas node cordon")
    assert cordon["endpoint"] == "capacity.node.cordon"
    state = stranger("explain", "node.admin_state", "-o", "json").json
    assert (state["values"], state["default"]) == (["active", "cordoned", "draining", "retired"], "active")
    assert stranger("schema", "node", "-o", "yaml").out.startswith("$schema: ")
    document = stranger("schema", "capacity.node.cordon", "-o", "json").json
    assert list(document["paths"]) == ["/api/v1/admin/nodes/{node_id}/cordon"]


def test_without_a_name_there_is_a_list_of_what_can_be_asked_for(stranger: Cli) -> None:
    assert set(stranger("explain", "-o", "name").out.split()) == {kind.plural for kind in kinds.KINDS}
    assert set(stranger("explain", "-o", "json").json) == set(forms.every())
    assert stranger("schema", "-o", "name").out.split() == [endpoint.name for endpoint in registry.ENDPOINTS]


def test_a_near_miss_is_recognised_and_ends_with_4(stranger: Cli) -> None:
    assert "did you mean node?" in stranger("explain", "nod", expect=4).err
    assert "did you mean facts?" in stranger("explain", "node.fact", expect=4).err
    assert "without fields" in stranger("explain", "node.name.first", expect=4).err
    assert "did you mean capacity.node.cordon?" in stranger("schema", "capacity.node.cordn", expect=4).err


@pytest.mark.parametrize("word", ["instance", "Instance", "instances", "inst", "app-instances", "INSTANCE"])
def test_a_form_answers_to_what_people_call_it(word: str) -> None:
    assert forms.find(word)[0].name == "instance"


@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: kind.plural)
def test_everything_that_can_be_listed_can_be_explained(kind: kinds.Kind) -> None:
    assert forms.find(kind.plural)[0].fields


def test_names_of_forms_are_unique_in_the_whole_contract() -> None:
    """Two structs of one name would hide each other here and in the OpenAPI document."""
    assert len({form.struct for form in forms.every().values()}) == len(forms.every())


def test_what_is_explained_fits_a_terminal_of_80_columns(stranger: Cli) -> None:
    lines = [line for form in forms.every().values() for line in pages.of_form(form, 80)]
    lines += stranger("explain").out.splitlines()
    assert [line for line in lines if len(line) > 80] == []


def test_an_answer_is_explained_without_what_only_a_sender_has_to_know(stranger: Cli) -> None:
    assert "required" not in stranger("explain", "node").out
    assert "required" in stranger("explain", "set-node").out


@pytest.mark.parametrize("endpoint", registry.ENDPOINTS, ids=lambda endpoint: endpoint.name)
def test_every_endpoint_can_be_shown(endpoint: Endpoint[Any, Any]) -> None:
    assert pages.of_endpoint(endpoint)


@pytest.mark.parametrize("form", forms.every().values(), ids=lambda form: form.name)
def test_every_form_can_be_shown(form: forms.Form) -> None:
    assert pages.of_form(form)
    jsonschema_rs.validator_for(explain.json_schema(form))


def test_the_docstring_of_a_field_in_the_contract_is_in_the_schema() -> None:
    described = explain.json_schema(forms.find("node")[0])
    assert (
        described["$defs"]["Node"]["properties"]["admin_reason"]["description"]
        == "Why an operator set `admin_state`, as text for people."
    )


def test_the_page_of_the_kit_names_only_forms_as_explained() -> None:
    explained = {form.name.replace("-", "") for form in forms.every().values()}
    assert [entry.name for entry in reference.structs() if entry.name.lower() not in explained] == []
