"""Whether the result of an action is the table that the manifest declares."""

from typing import Any

import msgspec
import pytest
from gpuaas_contract import errors
from gpuaas_contract.catalog import ActionSpec, Manifest, ResultColumn, ResultSpec
from gpuaas_contract.protocol import result

COLUMNS = [
    ResultColumn(name="login", title="Login"),
    ResultColumn(name="uid", title="Number", kind="integer"),
    ResultColumn(name="hours", title="Used", kind="number", unit="GPU hours"),
    ResultColumn(name="active", title="Active", kind="boolean"),
    ResultColumn(name="since", title="Since", kind="timestamp"),
]
ROW = {"login": "ada", "uid": 20000, "hours": 1.5, "active": True, "since": "2026-01-01T12:00:00Z"}


def _manifest(columns: list[ResultColumn] | None) -> Manifest:
    action = ActionSpec(
        name="users.list",
        title="List",
        permission="demo.users.read",
        input_schema={},
        result=ResultSpec(columns=columns) if columns else None,
    )
    return Manifest(
        slug="demo",
        display_name="Demo",
        version="1",
        runtime_backend="demo",
        operating_modes=["one"],
        control_plane_scopes=["project"],
        roles=[],
        topologies={},
        deploy_form={},
        actions=[action],
    )


@pytest.mark.parametrize(
    "value",
    [
        {"rows": []},
        {"rows": [ROW], "note": "one person"},
        {"rows": [dict.fromkeys(ROW)]},
        {"rows": [{**ROW, "hours": 2}]},
    ],
)
def test_a_table_with_the_declared_columns_fits(value: dict[str, Any]) -> None:
    result.check(_manifest(COLUMNS), "users.list", value)


@pytest.mark.parametrize(
    ("value", "flaw"),
    [
        ({}, "missing required field `rows`"),
        ({"rows": [ROW], "total": 1}, "unknown field `total`"),
        ({"rows": [ROW, {"login": "bob"}]}, "row 2: uid is missing"),
        ({"rows": [{**ROW, "age": 3}]}, "row 1: there is no column age"),
        ({"rows": [{**ROW, "uid": "20000"}]}, "row 1: uid is not of kind integer"),
        ({"rows": [{**ROW, "uid": True}]}, "row 1: uid is not of kind integer"),
        ({"rows": [{**ROW, "uid": 1.5}]}, "row 1: uid is not of kind integer"),
        ({"rows": [{**ROW, "active": 1}]}, "row 1: active is not of kind boolean"),
        ({"rows": [{**ROW, "login": 7}]}, "row 1: login is not of kind text"),
        ({"rows": [{**ROW, "since": "yesterday"}]}, "row 1: since is not of kind timestamp"),
        ({"rows": [{**ROW, "since": "2026-01-01T12:00:00"}]}, "row 1: since is not of kind timestamp"),
    ],
)
def test_a_result_with_other_columns_or_kinds_is_refused_with_its_row(value: dict[str, Any], flaw: str) -> None:
    with pytest.raises(errors.ValidationFailed) as refused:
        result.check(_manifest(COLUMNS), "users.list", value)
    assert flaw in refused.value.message


def test_an_action_without_columns_returns_any_object() -> None:
    result.check(_manifest(None), "users.list", {"anything": [1]})
    result.check(_manifest(COLUMNS), "unknown", {"anything": [1]})


@pytest.mark.parametrize("name", ["", ".users", "users.", "users..sync", "users sync", "users/sync"])
def test_an_action_name_has_words_with_single_dots_between(name: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"name": name, "title": "x", "permission": "a.b.c", "input_schema": {}}, ActionSpec)
