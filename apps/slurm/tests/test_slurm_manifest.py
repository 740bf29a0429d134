"""The manifest, as the platform and a deploy form read it."""

import tomllib
from pathlib import Path

import jsonschema_rs
import pytest
from gpuaas_app_slurm.controller import app
from gpuaas_app_slurm.workload import config
from gpuaas_app_slurm.workload.footprint import SLURM
from gpuaas_contract.permissions import CONTROLLER_KEYS
from gpuaas_sdk.failures import Permanent
from gpuaas_sdk.installs import bundle
from gpuaas_sdk.installs.bundles import command

FORM = app.manifest.deploy_form
PROJECT = Path(__file__).parents[1]
OPERATIONS = [
    ("deploy", ""),
    ("decommission", ""),
    *((kind, role.component_key) for role in app.manifest.roles for kind in role.operations),
]


def test_the_deploy_form_is_a_json_schema() -> None:
    jsonschema_rs.meta.validate(FORM)


def test_the_form_accepts_a_split_cluster() -> None:
    jsonschema_rs.validate(
        FORM, {"cluster_name": "research", "controller_allocation_id": "alloc_1", "worker_allocation_ids": ["alloc_2"]}
    )


@pytest.mark.parametrize("wrong", [{"cluster_name": "Research!"}, {"users": []}, {"users": ["root user"]}, {"x": 1}])
def test_the_form_refuses_inputs_that_slurm_cannot_use(wrong: dict[str, object]) -> None:
    form = {"cluster_name": "research", "controller_allocation_id": "alloc_1"}
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(FORM, form | wrong)


@pytest.mark.parametrize("name", ["root", "slurm", "munge", "nobody", "systemd-network"])
def test_the_form_and_the_deploy_refuse_accounts_of_the_system_as_users(name: str) -> None:
    form = {"cluster_name": "research", "controller_allocation_id": "alloc_1", "users": ["ada", name]}
    with pytest.raises(jsonschema_rs.ValidationError, match="Accounts of the system"):
        jsonschema_rs.validate(FORM, form)
    with pytest.raises(Permanent, match=f"{name} cannot be a Slurm user"):
        config.check_users(["ada", name])


def test_the_form_lists_every_account_that_the_deploy_refuses() -> None:
    assert set(FORM["properties"]["users"]["items"]["not"]["enum"]) == config.SYSTEM_USERS


def test_the_controller_asks_for_no_permission_beyond_its_work() -> None:
    assert set(app.manifest.controller.permissions) < CONTROLLER_KEYS


def test_the_controller_has_the_permissions_that_the_kit_needs() -> None:
    """`op.each` reads the operation to find members that a stop rule skipped."""
    needed = {"apps.operation.execute", "apps.operation.read", "apps.instance.read", "access.machine.connect"}
    assert needed <= set(app.manifest.controller.permissions)


@pytest.mark.parametrize("topology", sorted(app.manifest.topologies))
def test_every_topology_fills_every_role_from_a_field_of_the_form(topology: str) -> None:
    fields = app.manifest.topologies[topology]
    assert fields.keys() == {role.component_key for role in app.manifest.roles}
    assert set(fields.values()) <= FORM["properties"].keys()


@pytest.mark.parametrize(("kind", "role"), OPERATIONS)
def test_every_operation_of_the_manifest_has_a_handler(kind: str, role: str) -> None:
    assert app.find_handler(kind, role) is not None


def test_manifest_and_package_have_the_same_version() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    assert project["version"] == app.manifest.version


def test_slurm_shows_an_ended_job_as_long_as_a_submission_can_be_repeated() -> None:
    """A submission that is repeated finds its job in the queue, or it would submit a second one."""
    submit = next(action for action in app.manifest.actions if action.name == "queue.submit")
    extra = FORM["properties"]["extra_settings"]["properties"]
    assert extra["MinJobAge"]["minimum"] >= submit.deadline_s


def test_a_bundle_of_an_earlier_release_is_read_and_names_the_app_version() -> None:
    content = '{"slurm_version": "26.05.5-1", "release": "forky", "architecture": "amd64", "files": []}'
    index = bundle.decode(SLURM, content)
    assert command.default_version(app.manifest, SLURM, index) == f"{app.manifest.version}+slurm26.05.5"
    assert SLURM.bundle_artifact == "slurm-packages", "published artifacts have this name"
    assert SLURM.packages_folder in SLURM.own_paths
