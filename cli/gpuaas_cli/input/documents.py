"""Read what people write in files: YAML, and so JSON, checked against the contract's form."""

import sys
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from gpuaas_cli import failures

Form = TypeVar("Form")


def read(path: str, form: type[Form], what: str) -> Form:
    """`what` names the form in the refusal: "a manifest". `-` is stdin."""
    try:
        value: Any = yaml.safe_load(text(path))
        return msgspec.convert(value, form)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        code = f"{what.split()[-1]}_invalid"
        raise failures.Failure(
            f"{path} is not {what}: {error}", fix=f"Correct the named field in {path}", code=code
        ) from error


def text(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text()
    except OSError as error:
        raise failures.usage(f"{path} cannot be read: {error.strerror}", "Name a file, or - for stdin") from error
    except UnicodeDecodeError as error:
        raise failures.usage(f"{path} is not text: {error.reason}", "Name a file, or - for stdin") from error
