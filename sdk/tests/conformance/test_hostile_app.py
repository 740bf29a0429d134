"""An app that does not want to be tried: no green result, no traceback, and nothing left of it."""

import os
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from gpuaas_contract.catalog import Manifest
from gpuaas_sdk.conformance import Driver, ScoreCard, SimulatedMachine, Subject, Verdict, cards, command, controllers
from gpuaas_sdk.conformance.run import judged
from gpuaas_sdk.conformance.stage import Stage
from gpuaas_sdk.machine import Ran

MANIFEST = msgspec.convert(
    {
        "slug": "hello",
        "display_name": "Hello",
        "version": "1.1.0",
        "runtime_backend": "hello",
        "operating_modes": ["own"],
        "control_plane_scopes": ["project"],
        "roles": [{"component_key": "server", "max": 3}],
        "topologies": {"flat": {"server": "servers"}},
        "deploy_form": {"type": "object"},
    },
    Manifest,
)
SKIPPED = Verdict("breaker", "Adds are refused.", "not applicable", 0.0, "the manifest lists no add")
PASSED = Verdict("residue", "Nothing stays.", "passed", 1.0)


async def test_a_controller_that_a_script_starts_is_killed_with_the_script(tmp_path: Path) -> None:
    """Otherwise it would work on, and each check that kills it would pass."""
    script, started = tmp_path / "start", tmp_path / "pid"
    program = f"import os, pathlib, time; pathlib.Path({str(started)!r}).write_text(str(os.getpid())); time.sleep(600)"
    script.write_text(f"#!/bin/sh\n{sys.executable} -c {shlex.quote(program)}\nexit 1\n")
    script.chmod(0o755)
    subject = Subject(MANIFEST, (str(script),), Driver())
    controller = await controllers.start(subject, "c", server="", project="p", key=("k", "s"), at=tmp_path)
    _wait(lambda: started.exists() and started.read_text() != "")
    await controller.kill()
    _wait(lambda: not _is_running(int(started.read_text())))


async def test_the_key_of_a_real_platform_is_not_copied_to_a_folder_that_a_killed_run_leaves(tmp_path: Path) -> None:
    key, folder = tmp_path / "key.json", tmp_path / "run"
    key.write_text("{}")
    folder.mkdir()
    subject = Subject(MANIFEST, ("sh", "-c", 'echo "$@"', "sh"), Driver())
    controller = await controllers.start(subject, "c", server="", project="p", key=key, at=folder)
    _wait(lambda: controller.last_lines() != "")
    await controller.kill()
    assert f"--credentials {key}" in controller.last_lines()
    assert [path.name for path in folder.iterdir()] == ["c.log"]


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.05)


def _is_running(number: int) -> bool:
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize("error", [KeyError("members"), SystemExit(0), RecursionError("too deep")])
async def test_an_error_in_the_driver_fails_its_check_and_no_other_one(error: BaseException) -> None:
    async def attempt() -> None:
        raise error

    verdict = await judged("residue", "Nothing stays.", attempt())
    assert (verdict.result, verdict.gap) == ("failed", "app problem")
    assert type(error).__name__ in verdict.reason
    assert Path(__file__).name in verdict.reason


@pytest.mark.parametrize("error", [KeyError("members"), SystemExit(0)])
async def test_a_driver_that_fails_to_answer_a_command_lets_the_command_fail(error: BaseException) -> None:
    def respond(machine: SimulatedMachine, argv: tuple[str, ...], data: bytes) -> Ran | None:
        raise error

    ran = await SimulatedMachine("n1", respond).execute(("etcdctl", "member", "list"), "op_1.1", b"")
    assert ran.exit_status != 0
    assert f"the driver failed: {type(error).__name__}" in ran.stderr


async def test_a_machine_refuses_access_that_no_claim_gave(tmp_path: Path) -> None:
    stage = Stage(Subject(MANIFEST, ("false",), Driver()), tmp_path)
    for user in ("root", "op_1", "op_1.1", "op_1.x", ".1", ""):
        ran = await stage.machines.machine("n1").execute(("rm", "-rf", "/opt"), user, b"")
        assert ran.exit_status == 255, user
    assert (await stage.machines.machine("n1").execute(("true",), "observer", b"")).exit_status == 0


def test_a_card_on_which_no_check_passed_does_not_conform() -> None:
    assert "does not conform" in cards.summary(ScoreCard("hello", "1.1.0", [SKIPPED]))
    assert "1.1.0 conforms" in cards.summary(ScoreCard("hello", "1.1.0", [SKIPPED, PASSED]))


def _main(folder: Path, monkeypatch: pytest.MonkeyPatch, card: ScoreCard | BaseException, *argv: str) -> int:
    async def ended(*_: object) -> ScoreCard:
        if isinstance(card, BaseException):
            raise card
        return card

    monkeypatch.setattr(command, "_until_stopped", ended)
    (folder / "own.json").write_bytes(msgspec.json.encode(MANIFEST))
    return command.main(Driver(), ("sh", "-c", f"cat {folder / 'own.json'}"), argv)


def test_a_run_in_which_no_check_passed_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _main(tmp_path, monkeypatch, ScoreCard("hello", "1.1.0", [SKIPPED])) == command.EXIT_FAILED
    assert _main(tmp_path, monkeypatch, ScoreCard("hello", "1.1.0", [PASSED])) == 0


def test_a_driver_that_ends_the_process_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _main(tmp_path, monkeypatch, SystemExit(0)) == command.EXIT_ENVIRONMENT
    assert "ended the run" in capsys.readouterr().err


@pytest.mark.parametrize(
    "script",
    [
        'printf \'{"slug": "\\377"}\'',
        "printf '{\"deploy_form\": '; yes '{\"a\":' | head -n 20000",
        "printf '\\033[2J' >&2; exit 3",
        "sleep 30",
    ],
    ids=["no UTF-8", "deep", "escape", "never"],
)
def test_a_controller_that_prints_no_manifest_is_refused_with_a_reason(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "MANIFEST_S", 1.0)
    assert command.main(Driver(), ("sh", "-c", script), []) == command.EXIT_ENVIRONMENT
    error = capsys.readouterr().err
    assert "manifest` " in error
    assert "\x1b" not in error.partition("` ")[2]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_result_that_cannot_be_written_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    card = ScoreCard("hello", "1.1.0", [PASSED])
    assert _main(tmp_path, monkeypatch, card, "--json", "/dev/full") == command.EXIT_ENVIRONMENT
    assert "/dev/full cannot be written: No space left on device" in capsys.readouterr().err
    missing = str(tmp_path / "missing" / "card.json")
    assert _main(tmp_path, monkeypatch, card, "--json", missing) == command.EXIT_USAGE
    assert "there is no folder" in capsys.readouterr().err
