"""Read what people write in files: YAML, and so JSON, checked against the contract's form."""

from typing import Any, TypeVar

import msgspec
import yaml

from gpuaas_cli import failures
from gpuaas_cli.input import files

Form = TypeVar("Form")


def read(path: str, form: type[Form], what: str) -> Form:
    """`what` names the form in the refusal: "a manifest". `-` is stdin."""
    try:
        value: Any = yaml.safe_load(files.text(path))
        return msgspec.convert(value, form)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        code = f"{what.split()[-1]}_invalid"
        raise failures.Failure(
            f"{path} is not {what}: {error}", fix=f"Correct the named field in {path}", code=code
        ) from error
