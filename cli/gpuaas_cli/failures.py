"""How a command fails: an exit code, one line of what happened, one line of what to do next. `runner.run` prints it."""

import difflib
import json
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass

from gpuaas_contract.errors import ApiError
from gpuaas_sdk.outcomes import NoAnswer

OK = 0
FAILED = 1
SERVER = 2
AUTH = 3
NOT_FOUND = 4
CONFLICT = 5
USAGE = 64
DETACHED = 130
_EXIT_CODES = {401: AUTH, 403: AUTH, 404: NOT_FOUND, 409: CONFLICT, 412: CONFLICT}


@dataclass(eq=False)
class Failure(Exception):
    """A command cannot continue. Raised by the CLI itself; refusals of the server come as `ApiError`."""

    message: str
    _: KW_ONLY
    fix: str = ""
    code: str = "failed"
    exit_code: int = FAILED
    correlation_id: str = ""


def usage(message: str, fix: str) -> Failure:
    return Failure(message, fix=fix, code="usage", exit_code=USAGE)


def not_found(message: str, fix: str, correlation_id: str = "") -> Failure:
    return Failure(message, fix=fix, code="not_found", exit_code=NOT_FOUND, correlation_id=correlation_id)


def timeout(message: str, fix: str) -> Failure:
    return Failure(message, fix=fix, code="timeout", exit_code=SERVER)


def hint(word: str, known: Iterable[str]) -> str:
    """What a person who typed an unknown word may have meant, for the end of a message."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def as_failure(error: Failure | ApiError | NoAnswer) -> Failure:
    if isinstance(error, Failure):
        return error
    if isinstance(error, NoAnswer):
        return Failure(error.message, fix=error.fix, code="no_answer", exit_code=SERVER)
    exit_code = _EXIT_CODES.get(error.status, SERVER if error.status >= 500 else FAILED)
    correlation_id = error.correlation_id
    return Failure(error.message, fix=error.fix, code=error.code, exit_code=exit_code, correlation_id=correlation_id)


def text(failure: Failure, *, as_json: bool) -> str:
    if as_json:
        names = ("code", "message", "correlation_id", "fix")
        return json.dumps({"error": {name: getattr(failure, name) for name in names}})
    facts = f"code={failure.code}"
    if failure.correlation_id:
        facts += f", correlation_id={failure.correlation_id}"
    first = f"ERROR: {failure.message.rstrip('.')} ({facts})"
    return f"{first}\n  next: {failure.fix}" if failure.fix else first
