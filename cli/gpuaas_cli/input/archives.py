"""Read the file `python -m gpuaas_agent.build` makes: a zip archive with the agent and its version."""

import io
import re
import zipfile
from pathlib import Path

from gpuaas_cli import failures

BUILD = "python -m gpuaas_agent.build OUT.pyz"
_VERSION_FILE = "gpuaas_agent/__init__.py"
_VERSION = re.compile(rb'^AGENT_VERSION = "([^"]+)"', re.MULTILINE)


def content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise failures.usage(f"{path} cannot be read: {error.strerror}", BUILD) from error


def version(path: str, archive: bytes) -> str:
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as connection:
            result = _VERSION.search(connection.read(_VERSION_FILE))
    except (zipfile.BadZipFile, KeyError) as error:
        raise failures.usage(f"{path} is no archive of the agent", BUILD) from error
    if result is None:
        raise failures.usage(f"{path} has no version in it", f"gpuaas agent register {path} --version VERSION")
    return result[1].decode()
