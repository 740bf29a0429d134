"""The conformance kit on a real platform: what is tried there, and what is refused before anything is asked. The checks
themselves run in tests/e2e."""

from collections.abc import Callable
from pathlib import Path

import pytest
from gpuaas_contract.errors import NotFound, OperationInProgress
from gpuaas_sdk import conformance
from gpuaas_sdk.auth import NoAuth
from gpuaas_sdk.client import Client
from gpuaas_sdk.conformance import Driver, Subject, command, plan
from gpuaas_sdk.conformance.real import Site, checks, feasible, requests, stage
from gpuaas_sdk.conformance.verdicts import Failed, NotApplicable
from gpuaas_sdk.controller import Manifest
from gpuaas_sdk.outcomes import NoAnswer

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


@pytest.fixture
def place(planted: Callable[..., Subject]) -> requests.Place:
    return requests.Place(Client(UNUSED, NoAuth()), "default", planted(), instance_id="inst_1")


@pytest.mark.parametrize(
    "error", [Failed("x", "y"), NotApplicable("x"), NotFound("x"), NoAnswer("x"), TypeError("x")], ids=repr
)
async def test_a_check_that_ends_early_leaves_no_instance(
    error: Exception, place: requests.Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machines of an instance that is left are missing for the next checks, and for the project."""
    cleared: list[str] = []

    async def clear(on: stage.RealStage) -> None:
        cleared.append(on.place.instance_id)
        raise NoAnswer("the platform does not answer")

    monkeypatch.setattr(stage.RealStage, "clear", clear)
    key = tmp_path / "key.json"
    key.write_text('{"key_id": "k", "client_secret": "s"}')

    async def check() -> None:
        async with stage.opened(place, Site(UNUSED, "default", "t", key), count=0) as on:
            on.place.instance_id = "inst_2"
            raise error

    with pytest.raises(type(error)):
        await check()
    assert cleared == ["inst_2"]


async def test_a_request_does_not_wait_forever_for_another_operation(
    place: requests.Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(place: requests.Place, move: plan.Move) -> None:
        raise OperationInProgress("repair of n1 has not ended")

    monkeypatch.setattr(requests, "_request", busy)
    with pytest.raises(Failed, match=r"stop was not accepted within 0\.1 s: repair of n1 has not ended"):
        await requests.request(place, plan.Move("stop"), within_s=0.1)


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
