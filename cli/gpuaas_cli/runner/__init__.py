"""Run a command from its declaration: parse arguments, send the request, show the answer, return the exit code."""

from gpuaas_cli.runner.call import Call, words
from gpuaas_cli.runner.command import REQUIRED, SWITCH, Command, Field, Levels, asked, fixed, nothing, shared

__all__ = ["REQUIRED", "SWITCH", "Call", "Command", "Field", "Levels", "asked", "fixed", "nothing", "shared", "words"]
