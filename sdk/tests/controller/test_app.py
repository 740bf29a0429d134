"""What an app may declare, given its manifest."""

from pathlib import Path

import pytest
from gpuaas_sdk.controller import App, Operation, Reconciliation


async def handler(op: Operation) -> None:
    return None


async def other(op: Operation) -> None:
    return None


def test_the_manifest_is_read(app: App) -> None:
    assert [role.component_key for role in app.manifest.roles] == ["head", "worker"]


def test_the_handler_of_a_role_goes_before_the_handler_of_the_kind(app: App) -> None:
    app.operation("drain", role="worker")(handler)
    app.operation("drain")(other)
    assert app.find_handler("drain", "worker") is handler
    assert app.find_handler("drain", "head") is other
    assert app.find_handler("remove", "worker") is None


def test_deploy_and_decommission_need_no_mention_in_the_manifest(app: App) -> None:
    app.operation("deploy")(handler)
    app.operation("decommission")(handler)
    assert app.find_handler("deploy", "") is handler


@pytest.mark.parametrize(
    ("kind", "role", "complaint"),
    [
        ("resume", "worker", "does not list 'resume'"),
        ("resume", "", "no role lists 'resume'"),
        ("add", "janitor", "no role 'janitor'"),
        ("deploy", "worker", "whole instance"),
        ("restart", "", "does not list 'restart' in its instance_operations"),
        ("preview", "", "with @app.preview"),
    ],
)
def test_a_kind_the_manifest_does_not_list_is_refused(app: App, kind: str, role: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        app.operation(kind, role)(handler)  # type: ignore[arg-type]


def test_an_action_the_manifest_does_not_name_is_refused(app: App) -> None:
    with pytest.raises(ValueError, match="no action 'polish'"):
        app.action("polish")


def test_undos_and_previews_of_what_the_manifest_does_not_list_are_refused(app: App) -> None:
    with pytest.raises(ValueError, match="does not list 'restart' in its instance_operations"):
        app.undo("restart")
    with pytest.raises(ValueError, match="role 'head' does not list 'drain'"):
        app.undo_by_steps("drain", role="head")
    with pytest.raises(ValueError, match="role 'head' does not list 'drain'"):
        app.preview("drain", role="head")


def test_what_is_never_undone_or_previewed_takes_no_such_handler(app: App) -> None:
    with pytest.raises(ValueError, match="an undo handler for decommission is never called"):
        app.undo("decommission")
    with pytest.raises(ValueError, match="a preview handler for add is never called"):
        app.preview("add", role="worker")


def test_an_app_has_one_health_handler(app: App) -> None:
    @app.health()
    async def look(now: Reconciliation) -> None:
        return None

    with pytest.raises(ValueError, match="already has a health handler"):
        app.health()(look)


def test_two_handlers_for_one_kind_are_refused(app: App) -> None:
    app.operation("deploy")(handler)
    with pytest.raises(ValueError, match="already has a handler"):
        app.operation("deploy")(other)


def test_a_manifest_of_another_app_is_refused(manifest: Path) -> None:
    with pytest.raises(ValueError, match="manifest of 'demo'"):
        App("ray", manifest=manifest)


def test_a_manifest_that_lacks_a_field_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "manifest.yaml"
    path.write_text("slug: demo\n")
    with pytest.raises(ValueError, match="is not a manifest"):
        App("demo", manifest=path)
