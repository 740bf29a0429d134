"""Start a program as a process that is copied from one that has loaded it: to load the platform takes most of a second
of processor time, a command of the CLI a third, and tests start hundreds. Everything else is as in any process: it has
its own memory and descriptors, and it can be killed. Tests of the start itself start the program as users do."""

import atexit
import contextlib
import functools
import gc
import importlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, NoReturn

_MESSAGE_BYTES_MAX = 1_000_000
_POLL_S = 0.01


class Process:
    """As much of `subprocess.Popen` as tests of the server use."""

    def __init__(self, pid: int, loader: "_Loader") -> None:
        self.pid = pid
        self._loader = loader
        self._status: int | None = None

    def poll(self) -> int | None:
        """Return the exit status; None while the process runs."""
        if self._status is None:
            self._status = self._loader.ask({"ended": self.pid})
        return self._status

    def wait(self, timeout_s: float) -> int:
        deadline = time.monotonic() + timeout_s
        while (status := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout_s)
            time.sleep(_POLL_S)
        return status


@dataclass(frozen=True)
class Program:
    name: str
    module: str
    """It has the function `main`."""
    first: tuple[str, ...] = ()
    """Arguments of a first run without effect, for a program that loads modules only when it needs them."""


PLATFORM = Program("gpuaas-platform", "gpuaas_platform.main")


def start(
    program: Program,
    arguments: Sequence[str],
    output: IO[bytes],
    errors: IO[bytes] | None = None,
    given: IO[bytes] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Process:
    """Start the program in the folder of the caller. Without `given`, its standard input is empty."""
    loader = _loader(program)
    asked = {"arguments": [program.name, *arguments], "environment": dict(environment), "folder": os.getcwd()}
    files = [output, errors or output, *([given] if given else [])]
    return Process(int(loader.ask(asked, [file.fileno() for file in files])), loader)


def run(
    program: Program,
    arguments: Sequence[str],
    *,
    given: str = "",
    environment: Mapping[str, str] = os.environ,
    timeout_s: float = 60,
) -> "subprocess.CompletedProcess[str]":
    """Run the program to its end, like `subprocess.run`."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as typed:
        typed.write(given.encode())
        typed.seek(0)
        process = start(program, arguments, output, errors, typed, environment)
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait(timeout_s)
            raise
        texts = [file.read().decode() for file in (output, errors) if not file.seek(0)]
        return subprocess.CompletedProcess(list(arguments), status, *texts)


class _Loader:
    """The process that has loaded the program. It ends when this process closes the socket between them, or ends."""

    def __init__(self, program: Program) -> None:
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._socket, other):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MESSAGE_BYTES_MAX)
        self._lock = threading.Lock()
        with other:
            command = [sys.executable, __file__, str(other.fileno()), program.module, program.name, *program.first]
            self._process = subprocess.Popen(command, pass_fds=[other.fileno()], stdin=subprocess.DEVNULL)

    def ask(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> Any:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(message).encode()], descriptors)
            return json.loads(self._socket.recv(_MESSAGE_BYTES_MAX))

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


@functools.cache
def _loader(program: Program) -> _Loader:
    loader = _Loader(program)
    atexit.register(loader.close)
    return loader


def _serve(control: socket.socket, main: Callable[[], None]) -> None:
    gc.freeze()  # what is loaded stays shared between the copies
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, _MESSAGE_BYTES_MAX, 3)
        if not message:
            return
        asked = json.loads(message)
        if "ended" in asked:
            pid, status = os.waitpid(asked["ended"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            answer = os.fork()
            if not answer:
                control.close()
                _become(asked, descriptors)
                main()
                return
            for descriptor in descriptors:
                os.close(descriptor)
        control.send(json.dumps(answer).encode())


def _become(asked: dict[str, Any], descriptors: Sequence[int]) -> None:
    for standard, descriptor in zip((sys.stdout, sys.stderr, sys.stdin), descriptors, strict=False):
        os.dup2(descriptor, standard.fileno())
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    sys.argv = asked["arguments"]


def _main() -> NoReturn:
    _, descriptor, module, *command = sys.argv
    program = importlib.import_module(module)
    if len(command) > 1:
        sys.argv = command
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            program.main()
    _serve(socket.socket(fileno=int(descriptor)), program.main)
    sys.exit(0)


if __name__ == "__main__":
    _main()
