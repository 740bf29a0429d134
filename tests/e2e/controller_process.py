"""The process of a cloud's app controller, which can be killed with SIGKILL and started again."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from cloud_in_use import Cloud


class Controller:
    """The controller of the cloud's app."""

    def __init__(self, cloud: Cloud) -> None:
        self._pid, self._words = _process(cloud)
        self._environment = cloud.environment()
        self._own: subprocess.Popen[bytes] | None = None

    def kill(self) -> None:
        """Kill it with SIGKILL. It can finish nothing."""
        os.kill(self._own.pid if self._own else self._pid, signal.SIGKILL)
        if self._own:
            self._own.wait()

    def start(self) -> None:
        self._own = subprocess.Popen(
            self._words, env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )


@contextlib.contextmanager
def of(cloud: Cloud) -> Iterator[Controller]:
    controller = Controller(cloud)
    try:
        yield controller
    finally:
        controller.kill()


def _process(cloud: Cloud) -> tuple[int, list[str]]:
    """Return the id and the command of the controller that `gpuaas up` started in the private home of this test."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = folder.joinpath("cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
            if any(word.endswith("/gpuaas-slurm") for word in words) and str(cloud.home) in " ".join(words):
                return int(folder.name), words
    raise AssertionError("gpuaas up started no controller")
