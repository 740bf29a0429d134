"""The tutorial, typed as it is printed: every command succeeds and its output has every line that the page promises."""

import subprocess
from pathlib import Path

import pytest
import transcripts
from local_cloud import LocalCloud, empty_cloud

ROOT = Path(__file__).parents[2]
LAB, PORT = "tutorial", 7186
COMMANDS = transcripts.commands_of((ROOT / "docs" / "tutorial.md").read_text())
SHELL = f"""
set -e
make() {{ command make "$@" ARGS="--lab {LAB} --port {PORT}"; }}
gpuaas() {{
    case $1 in
        up) command gpuaas "$@" --lab {LAB} --port {PORT} ;;
        down) command gpuaas "$@" --lab {LAB} ;;
        *) command gpuaas "$@" ;;
    esac
}}
"""
"""The tests have a lab of their own beside the one of the person at this machine."""
TYPED_ON_THE_MACHINE = {"gpuaas ssh slurm --root": "sudo -iu researcher\nsinfo\nexit\nexit\n"}
ATTEMPTS = 60


@pytest.mark.machines
def test_every_command_of_the_tutorial_prints_what_the_page_promises() -> None:
    with empty_cloud(LAB) as cloud:
        for command in COMMANDS:
            _type(cloud, command)


def _type(cloud: LocalCloud, command: transcripts.Command) -> None:
    for _ in range(ATTEMPTS if "squeue" in command.line else 1):  # the page has the reader repeat this one
        ran = subprocess.run(
            ["bash", "-c", f"{SHELL}\n{command.line}"],
            cwd=ROOT,
            env=cloud.environment(),
            input=TYPED_ON_THE_MACHINE.get(command.line, ""),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        missing = command.missing(ran.stdout)
        if not missing:
            break
    shown = f"$ {command.line}\n{ran.stdout}"
    assert ran.returncode == 0, shown
    assert not missing, f"the output lacks {missing!r}:\n{shown}"


def test_the_tutorial_has_a_command_for_each_of_its_sections() -> None:
    starts = ("make up", "gpuaas member add", "gpuaas member drain", "gpuaas decommission", "gpuaas down")
    assert [start for start in starts if not any(command.line.startswith(start) for command in COMMANDS)] == []


@pytest.mark.parametrize(
    ("output", "missing"),
    [
        ("NAME   STATUS\ngpu-1  ready\n", ""),
        ("NAME   STATUS\nnote\ngpu-1     ready\n", ""),
        ("gpu-1  ready\nNAME  STATUS\n", "gpu-… ready"),
        ("NAME STATUS\ngpu-1 lost\n", "gpu-… ready"),
    ],
    ids=["exact", "lines-between", "other-order", "other-text"],
)
def test_output_is_compared_line_by_line_with_any_text_for_an_ellipsis(output: str, missing: str) -> None:
    (command,) = transcripts.commands_of("```console\n$ gpuaas get nodes\nNAME STATUS\n…\ngpu-… ready\n```\n")
    assert command.missing(output) == missing
