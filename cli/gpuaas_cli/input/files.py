"""Read a text file, or stdin where a person gives `-`."""

import sys
from pathlib import Path

from gpuaas_cli import failures


def text(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text()
    except OSError as error:
        raise failures.usage(f"{path} cannot be read: {error.strerror}", "Name a file, or - for stdin") from error
    except UnicodeDecodeError as error:
        raise failures.usage(f"{path} is not text: {error.reason}", "Name a file, or - for stdin") from error
