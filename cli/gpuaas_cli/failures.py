"""Failures of commands: an exit code, one line with the error and one with the next step. `runner.run` prints them."""

import difflib
import functools
import json
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass

MEANINGS = {
    0: "done",
    1: "it failed, or the answer is no",
    2: "no answer in time, or an internal error of the server",
    3: "not signed in, or not permitted",
    4: "not found, or you have no access to it",
    5: "its state forbids it, it was changed by another since, or the name is ambiguous",
    64: "the command line is wrong; nothing was sent",
    130: "interrupted; what runs on the platform continues",
}
"""Meaning of each exit code. The names below are in the same order."""
OK, FAILED, SERVER, AUTH, NOT_FOUND, CONFLICT, USAGE, DETACHED = MEANINGS
_EXIT_CODES = {401: AUTH, 403: AUTH, 404: NOT_FOUND, 409: CONFLICT, 412: CONFLICT}


@dataclass(eq=False)
class Failure(Exception):
    """A command cannot continue. Raised by the CLI itself; errors of the server are `ApiError`."""

    message: str
    fix: str = ""
    correlation_id: str = ""
    _: KW_ONLY
    code: str = "failed"
    exit_code: int = FAILED

    def __str__(self) -> str:
        return self.message


usage = functools.partial(Failure, code="usage", exit_code=USAGE)
not_found = functools.partial(Failure, code="not_found", exit_code=NOT_FOUND)
timeout = functools.partial(Failure, code="timeout", exit_code=SERVER)


def hint(word: str, known: Iterable[str]) -> str:
    """Return "did you mean …?" with the most similar known word, for the end of a message; empty if none is similar."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def as_failure(error: Exception) -> Failure:
    """Convert an `ApiError` or a `NoAnswer`. Both are not imported here, because that slows down `gpuaas --help`."""
    if isinstance(error, Failure):
        return error
    status, code = getattr(error, "status", 500), getattr(error, "code", "no_answer")
    exit_code = _EXIT_CODES.get(status, SERVER if status >= 500 else FAILED)
    correlation_id = getattr(error, "correlation_id", "")
    message, fix = getattr(error, "message", str(error)), getattr(error, "fix", "")
    return Failure(message, fix, correlation_id, code=code, exit_code=exit_code)


def text(failure: Failure, *, as_json: bool) -> str:
    if as_json:
        names = ("code", "message", "correlation_id", "fix")
        return json.dumps({"error": {name: getattr(failure, name) for name in names}})
    correlation = f", correlation_id={failure.correlation_id}" if failure.correlation_id else ""
    first = f"ERROR: {failure.message.rstrip('.')} (code={failure.code}{correlation})"
    return f"{first}\n  next: {failure.fix}" if failure.fix else first
