"""Read files from the command line, or stdin for `-`: text, documents, builds of the agent."""

import io
import re
import sys
import zipfile
from pathlib import Path
from typing import TypeVar

import msgspec

from gpuaas_cli import failures

BUILD = "python -m gpuaas_agent.build OUT.pyz"
_VERSION_FILE = "gpuaas_agent/__init__.py"
_VERSION = re.compile(rb'^AGENT_VERSION = "([^"]+)"', re.MULTILINE)
Form = TypeVar("Form")


def text(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text()
    except OSError as error:
        raise failures.usage(f"{path} cannot be read: {error.strerror}", "Name a file, or - for stdin") from error
    except UnicodeDecodeError as error:
        raise failures.usage(f"{path} is not text: {error.reason}", "Name a file, or - for stdin") from error


def document(path: str, form: type[Form], what: str = "") -> Form:
    """Read YAML or JSON and check it against a form of the contract. `what` is its name in an error: "a manifest"."""
    import yaml  # noqa: PLC0415 - a tenth of a second that few commands need

    content, name = text(path), form.__name__.lower()
    try:
        return msgspec.convert(yaml.safe_load(content), form)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        why = f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else " ".join(str(error).split())
        what = what or f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
        code, fix = f"{what.split()[-1]}_invalid", f"Correct the named {'line' if mark else 'field'} in {path}"
        raise failures.Failure(f"{path} is not {what}: {why}", fix=fix, code=code) from error


def agent_build(path: str) -> bytes:
    """Read a file made by `python -m gpuaas_agent.build`: a zip archive with the agent and its version."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise failures.usage(f"{path} cannot be read: {error.strerror}", BUILD) from error


def agent_version(path: str, build: bytes) -> str:
    try:
        with zipfile.ZipFile(io.BytesIO(build)) as archive:
            result = _VERSION.search(archive.read(_VERSION_FILE))
    except (zipfile.BadZipFile, KeyError) as error:
        raise failures.usage(f"{path} is no archive of the agent", BUILD) from error
    if result is None:
        raise failures.usage(f"{path} has no version in it", f"gpuaas agent register {path} --version VERSION")
    return result[1].decode()
