"""The command `gpuaas-platform` in this process, with its output."""

import asyncio
import contextlib
import io
import sys
from dataclasses import dataclass
from unittest import mock

import pytest
from gpuaas_platform import main
from gpuaas_platform.kit.settings import Settings


@dataclass(frozen=True)
class Result:
    returncode: int
    stdout: str
    stderr: str

    @property
    def text(self) -> str:
        return self.stdout + self.stderr


async def run(*arguments: object, on: Settings | None = None) -> Result:
    """Run the command on a store, in a thread, because it starts its own event loop."""
    store = ["--data", str(on.data_dir), "--database", on.database_url] if on else []
    return await asyncio.to_thread(_run, ["gpuaas-platform", *map(str, arguments), *store])


def _run(command: list[str]) -> Result:
    stdout, stderr = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", command),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
        pytest.raises(SystemExit) as ended,
    ):
        main.main()
    assert isinstance(ended.value.code, int)
    return Result(ended.value.code, stdout.getvalue(), stderr.getvalue())
