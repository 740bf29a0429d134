"""The app's controller as a real process, so that kill -9 and SIGSTOP are real."""

import asyncio
import contextlib
import errno
import functools
import hashlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from gpuaas_contract.catalog import ArtifactRef, Manifest

from gpuaas_sdk.conformance.driver import Driver


@dataclass(frozen=True)
class Subject:
    """The app under test.

    subject = Subject(manifest, ("gpuaas-hello",), DRIVER, {"LOG_LEVEL": "debug"})"""

    manifest: Manifest
    command: tuple[str, ...]
    """The command line of its controller, without `run`."""
    driver: Driver
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the controller, beside those of this process."""

    @classmethod
    def of(cls, manifest: Manifest, command: Sequence[str], driver: Driver) -> "Subject":
        """Return the app with this manifest, and with the artifacts that its driver has.

        SUBJECT = Subject.of(app.manifest, ("gpuaas-hello",), HelloDriver())"""
        return cls(with_artifacts(manifest, driver), tuple(command), driver)


def with_artifacts(manifest: Manifest, driver: Driver) -> Manifest:
    """Return the manifest that the checks run with. The manifest of an app can leave artifacts out, because their
    digests are known when a version is released: the driver's stand for these only. They are never signed. Pure."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in driver.artifacts.items()}
    more = {name: ArtifactRef(digest=f"sha256:{digest}") for name, digest in digests.items()}
    return msgspec.structs.replace(manifest, artifacts=more | manifest.artifacts)


class Controller:
    """One controller of the app: a process and those that it starts. Its command may be a script, so signals go to the
    whole process group; otherwise a controller behind a script would work on after it was killed."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.returncode is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless all its processes have ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    async def kill(self) -> None:
        """Kill its processes, also if they are stopped."""
        self.signal(signal.SIGKILL)
        await self._process.wait()

    def last_lines(self) -> str:
        """Return the end of what the process has written."""
        lines = self.log.read_text(errors="replace").splitlines()
        return " | ".join(lines[-3:])[-600:]


async def start(
    subject: Subject,
    name: str,
    *,
    server: str,
    project: str,
    key: tuple[str, str] | Path,
    at: Path,
    ca_file: Path | None = None,
) -> Controller:
    """Start a controller of the app. It ends with this process. The key of a real platform comes as its file: a copy
    would be left in `at` if this process is killed."""
    if shutil.which(subject.command[0]) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), subject.command[0])
    credentials, log = key if isinstance(key, Path) else at / "key.json", at / f"{name}.log"
    if not isinstance(key, Path):
        credentials.write_text(json.dumps({"key_id": key[0], "client_secret": key[1]}))
    flags = ["run", "--server", server, "--project", project, "--credentials", str(credentials), "--name", name]
    flags += ["--ca-file", str(ca_file)] if ca_file else []
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *_ends_with_parent(),
            *subject.command,
            *flags,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            process_group=0,
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
