"""Start `gpuaas-platform` as a process that is copied from one that has loaded the program: to load it takes most of a
second of processor time, and tests start hundreds. Everything else is as in any process: it has its own memory and
descriptors, and it can be killed. Tests of the command itself start it as users do."""

import atexit
import functools
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import IO, Any, NoReturn

from gpuaas_platform import main

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
                raise subprocess.TimeoutExpired("gpuaas-platform", timeout_s)
            time.sleep(_POLL_S)
        return status


def start(arguments: Sequence[str], output: IO[bytes], errors: IO[bytes] | None = None) -> Process:
    """Start the command with these arguments, in the environment and the folder of the caller."""
    loader = _loader()
    asked = {"arguments": list(arguments), "environment": dict(os.environ), "folder": os.getcwd()}
    return Process(int(loader.ask(asked, [output.fileno(), (errors or output).fileno()])), loader)


def run(arguments: Sequence[str], timeout_s: float = 60) -> "subprocess.CompletedProcess[str]":
    """Run the command to its end; a second way to write `subprocess.run`."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = start(arguments, output, errors)
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

    def __init__(self) -> None:
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._socket, other):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MESSAGE_BYTES_MAX)
        self._lock = threading.Lock()
        with other:
            command = [sys.executable, __file__, str(other.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[other.fileno()], stdin=subprocess.DEVNULL)

    def ask(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> Any:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(message).encode()], descriptors)
            return json.loads(self._socket.recv(_MESSAGE_BYTES_MAX))

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


@functools.cache
def _loader() -> _Loader:
    loader = _Loader()
    atexit.register(loader.close)
    return loader


def _serve(control: socket.socket) -> None:
    gc.freeze()  # what is loaded stays shared between the copies
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, _MESSAGE_BYTES_MAX, 2)
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
                main.main()
                return
            for descriptor in descriptors:
                os.close(descriptor)
        control.send(json.dumps(answer).encode())


def _become(asked: dict[str, Any], descriptors: Sequence[int]) -> None:
    for standard, descriptor in zip((sys.stdout, sys.stderr), descriptors, strict=True):
        os.dup2(descriptor, standard.fileno())
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    sys.argv = ["gpuaas-platform", *asked["arguments"]]


def _main() -> NoReturn:
    _serve(socket.socket(fileno=int(sys.argv[1])))
    sys.exit(0)


if __name__ == "__main__":
    _main()
