"""Which operations the kit tries, from the manifest alone."""

from collections.abc import Callable
from pathlib import Path

import msgspec
from gpuaas_contract.operations import OperationKind, Step
from gpuaas_sdk.conformance import Driver, Subject, plan, stage
from gpuaas_sdk.controller import App, Manifest

BASE = """
slug: demo
display_name: Demo
version: 1.0.0
runtime_backend: machines
operating_modes: [managed]
control_plane_scopes: [instance]
topologies: {}
deploy_form: {type: object}
"""


def manifest(folder: Path, more: str) -> Manifest:
    (folder / "manifest.yaml").write_text(BASE + more)
    return App("demo", manifest=folder / "manifest.yaml").manifest


def tour(folder: Path, more: str, kinds: tuple[str, ...] = ()) -> list[str]:
    return [str(move) for move in plan.tour(manifest(folder, more), Driver(), kinds)]


def test_every_operation_of_the_manifest_is_tried_and_the_end_comes_last(tmp_path: Path) -> None:
    roles = "roles: [{component_key: head, min: 1, max: 1}, {component_key: worker, max: 9, operations: [add, remove]}]"
    more = f"{roles}\ninstance_operations: [stop, start]"
    assert tour(tmp_path, more) == ["deploy", "add worker", "stop", "start", "remove worker", "decommission"]


def test_a_full_role_gets_no_member_and_keeps_its_last_one(tmp_path: Path) -> None:
    roles = "roles: [{component_key: head, min: 1, max: 1, operations: [add, drain, resume]}]"
    assert tour(tmp_path, roles) == ["deploy", "drain head", "resume head", "decommission"]


def test_an_upgrade_starts_at_a_version_from_which_it_is_possible(tmp_path: Path) -> None:
    more = 'roles: []\ninstance_operations: [upgrade]\nupgrades_from: ["0.9.*"]'
    listed = manifest(tmp_path, more)
    kinds: list[OperationKind] = ["deploy", "add", "upgrade", "rollback"]
    assert [plan.version_of(listed, kind) for kind in kinds] == ["0.9.0", "", "1.0.0", "0.9.0"]
    assert tour(tmp_path, more) == ["deploy", "upgrade", "decommission"]
    assert tour(tmp_path, "roles: []\ninstance_operations: [upgrade]") == ["deploy", "decommission"]


def test_selected_kinds_limit_the_tour_and_a_deploy_always_comes_first(tmp_path: Path) -> None:
    roles = "roles: [{component_key: worker, max: 9, operations: [add, drain, remove]}]"
    assert tour(tmp_path, roles, ("drain",)) == ["deploy", "drain worker"]


def test_an_action_that_needs_inputs_is_tried_only_if_the_driver_has_them(tmp_path: Path) -> None:
    action = "{{name: {}, title: T, permission: apps.instance.read, input_schema: {{required: [{}]}}}}"
    more = f"roles: []\nactions: [{action.format('list', '')}, {action.format('send', 'text')}]"
    assert tour(tmp_path, more) == ["deploy", "action list", "decommission"]


def test_what_the_kit_cannot_try_is_named(tmp_path: Path) -> None:
    action = "{name: send, title: T, permission: apps.instance.read, input_schema: {required: [text]}}"
    roles = "roles: [{component_key: head, min: 1, max: 1, operations: [add, drain]}]"
    more = f"{roles}\nactions: [{action}]\ninstance_operations: [stop, reconfigure, upgrade]\nupgrades_from: [1.0.0]"
    assert plan.note(plan.left_out(manifest(tmp_path, more), Driver())) == (
        "left out: add head (the counts of the driver leave no room for it), "
        "reconfigure (needs Driver.changed_inputs), upgrade (needs another version in upgrades_from), "
        "action send (needs inputs in Driver.actions)"
    )
    assert plan.note({}) == ""


async def test_an_action_is_requested_by_a_person_who_has_a_login(planted: Callable[..., Subject]) -> None:
    async with stage.opened(planted(), controllers=0) as on:
        deploy = on.request(plan.Move("deploy"))
        on.platform.cancel(deploy.operation_id)
        operation = on.request(plan.Move("action", action="say"))
        logins = {person.user_id: person.login for person in on.platform.records.people if person.state == "active"}
        assert logins[operation.requested_by] == "ada"


def test_a_difference_of_long_files_shows_the_place_where_they_differ() -> None:
    same = "# a comment\n" * 10
    wanted = {"n1": {"/etc/kv.conf": f"{same}server=n1\n"}}
    present = {"n1": {"/etc/kv.conf": f"{same}server=n2\n"}}
    shown, expected = stage.difference(wanted, present).split(" instead of ")
    assert ("server=n2" in shown, "server=n1" in expected) == (True, True)


async def test_an_operation_that_does_not_end_is_reported_with_what_it_waits_for(
    planted: Callable[..., Subject],
) -> None:
    async with stage.opened(planted(), controllers=0) as on:
        deploy = on.request(plan.Move("deploy"))
        assert stage.late([], deploy, "did not end", 60).reason == "deploy did not end within 60 s"
        step = Step(name="wait", state="running", started_at=deploy.created_at, message="2 jobs run on n2")
        waiting = msgspec.structs.replace(deploy, steps=[step])
        late = stage.late([], waiting, "did not end", 60)
        on.platform.cancel(deploy.operation_id)
    assert late.reason == "deploy did not end within 60 s; it shows: wait: 2 jobs run on n2"
