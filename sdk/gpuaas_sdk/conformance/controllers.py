"""The app's controller as a real process, so that kill -9 and SIGSTOP are real."""

import asyncio
import contextlib
import errno
import functools
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuaas_contract.catalog import Manifest

from gpuaas_sdk.conformance.driver import Driver


@dataclass(frozen=True)
class Subject:
    """The app under test."""

    manifest: Manifest
    command: tuple[str, ...]
    """The command line of its controller, without `run`."""
    driver: Driver
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the controller, beside those of this process."""


class Controller:
    """One process of the app's controller."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.returncode is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def kill(self) -> None:
        """Kill the process, also if it is stopped."""
        self.signal(signal.SIGKILL)
        await self._process.wait()

    def last_lines(self) -> str:
        """Return the end of what the process has written."""
        lines = self.log.read_text(errors="replace").splitlines()
        return " | ".join(lines[-3:])[-600:]


async def start(
    subject: Subject, name: str, *, server: str, project: str, key: tuple[str, str], at: Path
) -> Controller:
    """Start a controller of the app. It ends with this process."""
    if shutil.which(subject.command[0]) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), subject.command[0])
    credentials, log = at / "key.json", at / f"{name}.log"
    credentials.write_text(json.dumps({"key_id": key[0], "client_secret": key[1]}))
    flags = ("run", "--server", server, "--project", project, "--credentials", str(credentials), "--name", name)
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *_ends_with_parent(),
            *subject.command,
            *flags,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **subject.env},
        )
    return Controller(name, process, log)


@functools.cache
def _ends_with_parent() -> tuple[str, ...]:
    """Return the words before a command that let the kernel kill it when this process ends, also if this process is
    killed. Empty where the host has no such program."""
    words = ("setpriv", "--pdeathsig", "KILL")
    try:
        return words if subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0 else ()
    except OSError:
        return ()
