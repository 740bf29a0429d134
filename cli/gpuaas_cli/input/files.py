"""Read files from the command line, or stdin for `-`: text, documents, builds of the agent and their signatures."""

import sys
from pathlib import Path
from typing import TypeVar

import msgspec

from gpuaas_cli import failures

BUILD = "python -m gpuaas_agent.build OUT.pyz"
Form = TypeVar("Form")


class AgentSignature(msgspec.Struct):
    """The file that `python -m gpuaas_agent.signer sign` writes."""

    version: str
    signature: str


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
    """Read a file made by `python -m gpuaas_agent.build`."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise failures.usage(f"{path} cannot be read: {error.strerror}", BUILD) from error


def agent_signature(path: str, build: str) -> AgentSignature:
    """Read the signature of a build of the agent."""
    sign = f"python -m gpuaas_agent.signer sign {build} --key KEY"
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=AgentSignature)
    except OSError as error:
        raise failures.usage(f"{path} cannot be read: {error.strerror}", sign) from error
    except msgspec.MsgspecError as error:
        raise failures.usage(f"{path} is not the signature of a build: {error}", sign) from error
