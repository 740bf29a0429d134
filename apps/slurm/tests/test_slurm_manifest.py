"""The manifest, as the platform and a form will read it."""

import tomllib
from pathlib import Path

import jsonschema_rs
import pytest
from gpuaas_app_slurm.controller import app

FORM = app.manifest.deploy_form
PROJECT = Path(__file__).parents[1]


def test_the_deploy_form_is_a_json_schema() -> None:
    jsonschema_rs.meta.validate(FORM)


def test_the_form_takes_what_a_split_cluster_needs() -> None:
    jsonschema_rs.validate(
        FORM, {"cluster_name": "research", "controller_allocation_id": "alloc_1", "worker_allocation_ids": ["alloc_2"]}
    )


@pytest.mark.parametrize("wrong", [{"cluster_name": "Research!"}, {"users": []}, {"users": ["root user"]}, {"x": 1}])
def test_the_form_refuses_what_slurm_could_not_use(wrong: dict[str, object]) -> None:
    form = {"cluster_name": "research", "controller_allocation_id": "alloc_1"}
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(FORM, form | wrong)


def test_every_topology_fills_every_role_from_a_field_of_the_form() -> None:
    roles = {role.component_key for role in app.manifest.roles}
    for fields in app.manifest.topologies.values():
        assert fields.keys() == roles
        assert set(fields.values()) <= FORM["properties"].keys()


def test_every_operation_of_the_manifest_has_a_handler() -> None:
    kinds = [(kind, role.component_key) for role in app.manifest.roles for kind in role.operations]
    for kind, role in [("deploy", ""), ("decommission", ""), *kinds]:
        assert app.find_handler(kind, role) is not None


def test_manifest_and_package_are_of_one_version() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    assert project["version"] == app.manifest.version
