"""Log lines as JSON on stderr, written together once per turn of the event loop: under load that is one system call for
many requests. `main` configures it."""

import asyncio
import atexit
import contextvars
import logging
import sys
from collections.abc import Callable, MutableMapping
from typing import Any, BinaryIO

import msgspec
import structlog

CONTEXT: contextvars.ContextVar[Callable[[], dict[str, str]]] = contextvars.ContextVar("log fields", default=dict)
"""Fields that every line of the present request gets unless it says them itself; asked for when a line is written."""


def configure(level: str) -> None:
    lines = Lines(sys.stderr.buffer)
    atexit.register(lines.flush)
    structlog.configure(
        processors=[
            _with_context,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=_json),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=True,
    )


class Lines:
    """Lines of threads without a loop are written at once."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._waiting: list[bytes] = []

    def msg(self, line: bytes) -> None:
        self._waiting.append(line)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.flush()
            return
        if len(self._waiting) == 1:
            loop.call_soon(self.flush)

    debug = info = warning = error = critical = exception = msg

    def flush(self) -> None:
        lines, self._waiting = self._waiting, []
        if lines:
            self._file.write(b"\n".join(lines) + b"\n")
            self._file.flush()


def _with_context(_: Any, __: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if "correlation_id" in line:
        return line
    return {**CONTEXT.get()(), **line}


def _json(line: dict[str, Any], **_: Any) -> bytes:
    return msgspec.json.encode(line, enc_hook=repr)
