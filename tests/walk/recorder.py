"""Run a program and record which files of this repository its functions are in, in the order of their first call.

Usage: python recorder.py FILE MODULE ARGUMENT…
The program is MODULE's `main`. FILE gets the recording as JSON when the program ends. SIGUSR1 starts a new phase."""

import importlib
import json
import signal
import sys
import threading
import time
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
Entry = tuple[int, str, str]
"""Moment in nanoseconds, on whose behalf the call was made, and the file."""


class Recorder:
    def __init__(self) -> None:
        self._phases: list[dict[tuple[str, str], int]] = [{}]
        self._files: dict[CodeType, str] = {}

    def phases(self) -> list[list[Entry]]:
        return [sorted((at, actor, file) for (actor, file), at in phase.items()) for phase in self._phases]

    def start(self) -> None:
        signal.signal(signal.SIGUSR1, lambda *_: self._phases.append({}))
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def stop(self) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and (file := self._file(frame.f_code)):
            actor = _actor(frame)
            if actor is not None:
                self._phases[-1].setdefault((actor, file), time.monotonic_ns())

    def _file(self, code: CodeType) -> str:
        """The path in the repository; empty for code of others and for the bodies of modules."""
        file = self._files.get(code)
        if file is None:
            path = Path(code.co_filename)
            is_simulation = "/testing/" in str(path) or "_conformance/" in str(path)
            is_ours = path.is_relative_to(ROOT) and "/gpuaas_" in code.co_filename and not is_simulation
            file = self._files[code] = str(path.relative_to(ROOT)) if is_ours and code.co_name != "<module>" else ""
        return file


def _actor(frame: FrameType | None) -> str | None:
    """On whose behalf a call is made: in the server the kind of caller, elsewhere empty. None: imports and sweeps.

    A sweep is a loop, or a write that no request asked for."""
    actor, is_write = "", False
    while frame is not None and frame.f_code.co_filename != __file__:
        code = frame.f_code
        if code.co_name == "<module>" or code.co_filename.endswith("gpuaas_platform/kit/loop.py"):
            return None
        if (code.co_name, code.co_filename.endswith("gpuaas_platform/kit/hub.py")) == ("_end", True):
            return None  # a timer that ends a wait may fire at any time
        is_write = is_write or code.co_filename.endswith("gpuaas_platform/kit/groups.py")
        if not actor and "call" in (*code.co_varnames, *code.co_freevars):
            caller = getattr(frame.f_locals.get("call"), "caller", None)
            actor = getattr(caller, "actor_type", "")
        frame = frame.f_back
    return None if is_write and not actor else actor


def main() -> None:
    file, module, *arguments = sys.argv[1:]
    program = importlib.import_module(module)
    sys.argv = [module, *arguments]
    recorder = Recorder()
    recorder.start()
    try:
        program.main()
    finally:
        recorder.stop()
        Path(file).write_text(json.dumps(recorder.phases()))


if __name__ == "__main__":
    main()
