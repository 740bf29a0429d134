"""The conformance kit on a real platform: what is tried there, and what is refused before anything is asked. The checks
themselves run in tests/e2e."""

from collections.abc import Callable
from pathlib import Path

import pytest
from gpuaas_sdk import conformance
from gpuaas_sdk.conformance import Driver, Subject, command, plan
from gpuaas_sdk.conformance.real import checks, feasible
from gpuaas_sdk.controller import Manifest

UNUSED = "http://127.0.0.1:9"
"""No process listens at this port."""


def tour(manifest: Manifest, machines: int, *, upgrades: bool = True) -> feasible.Tour:
    moves = plan.tour(manifest, Driver())
    return feasible.tour(manifest, Driver(), moves, machines, upgrades=upgrades)


def test_each_check_is_either_run_on_a_real_platform_or_left_out_for_a_reason() -> None:
    assert sorted([*checks.REAL, *checks.LEFT_OUT]) == sorted(conformance.ALL)
    assert all(checks.LEFT_OUT.values())


def test_with_enough_machines_and_both_versions_nothing_is_left_out(planted: Callable[..., Subject]) -> None:
    manifest = planted().manifest
    assert tour(manifest, 3) == (plan.tour(manifest, Driver()), {})
    assert tour(manifest, 3).note == ""


def test_operations_that_need_more_machines_are_left_out_and_named(planted: Callable[..., Subject]) -> None:
    assert tour(planted().manifest, 2).note == "left out: replace server (needs 3 machines)"


def test_a_role_without_an_add_keeps_its_last_member(planted: Callable[..., Subject]) -> None:
    left_out = {str(move): reason for move, reason in tour(planted().manifest, 1).left_out.items()}
    assert left_out == {
        "add server": "needs 2 machines",
        "replace server": "needs 2 machines",
        "remove server": "needs the add before it",
    }


def test_an_upgrade_needs_the_version_before(planted: Callable[..., Subject]) -> None:
    left_out = tour(planted().manifest, 3, upgrades=False).left_out
    assert {move.kind: reason for move, reason in left_out.items()} == {
        "upgrade": "needs 1.0.0 in the catalog",
        "rollback": "needs 1.0.0 in the catalog",
    }


@pytest.mark.parametrize(
    ("flags", "token", "message"),
    [
        (["--server", UNUSED], "t", "--server needs --credentials FILE"),
        (["--machine", "gpu-1"], "t", "--machine needs --credentials FILE"),
        (["--credentials", "k", "--server", UNUSED], "t", "needs --server URL, --project NAME"),
        (["--credentials", "k", "--server", UNUSED, "--project", "p"], "", "the variable GPUAAS_TOKEN"),
        (["--credentials", "k", "--sign", "key.pem"], "t", "--sign needs all checks"),
    ],
)
def test_a_command_line_that_is_not_complete_is_refused(
    flags: list[str], token: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPUAAS_TOKEN", token)
    assert command.main(Driver(), ("false",), flags) == command.EXIT_USAGE
    assert message in capsys.readouterr().err


def test_a_platform_that_cannot_be_used_is_an_error_of_the_environment(
    planted: Callable[..., Subject],
    tmp_path: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("GPUAAS_TOKEN", "t")
    monkeypatch.setenv("PYTHONPATH", str(home))
    subject, key = planted(), tmp_path / "key.json"
    flags = ["--credentials", str(key), "--server", UNUSED, "--project", "default"]
    assert command.main(subject.driver, subject.command, flags) == command.EXIT_ENVIRONMENT
    assert f"{key} is no key file" in capsys.readouterr().err
