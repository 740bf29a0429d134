"""Every command has help with an example. These tests do not change the host."""

import pytest
import typer
from gpuaas_lab.main import app
from typer.testing import CliRunner

COMMANDS = typer.main.get_group(app).commands
PROMISED = {
    *("up", "down", "status", "add", "remove", "image", "exec", "console"),
    *("kill", "start", "freeze", "thaw", "cut", "heal"),
}


def test_every_promised_command_exists() -> None:
    assert set(COMMANDS) >= PROMISED


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_describes_a_command_and_shows_an_example(name: str) -> None:
    shown = CliRunner().invoke(app, [name, "--help"])
    assert shown.exit_code == 0
    assert f"Example: gpuaas-lab {name}" in shown.output
