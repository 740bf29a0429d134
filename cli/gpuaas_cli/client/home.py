"""Contexts that the CLI stores in GPUAAS_HOME/config.json, and the choice of the context for a call."""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from gpuaas_cli import failures
from gpuaas_cli.flags import Flags


class Context(msgspec.Struct, frozen=True, omit_defaults=True):
    server: str
    token: str = ""
    project_id: str = ""
    ca_file: str = ""


class Config(msgspec.Struct):
    current: str = ""
    contexts: dict[str, Context] = {}


@dataclass(frozen=True)
class Target:
    """The server, token and project of one call."""

    context: str
    server: str
    token: str = field(default="", repr=False)
    project: str = ""
    """Name or id; empty if no project was chosen."""
    ca_file: str = ""


def folder(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("GPUAAS_HOME") or Path.home() / ".gpuaas")


def load(home: Path) -> Config:
    path = home / "config.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=Config)
    except FileNotFoundError:
        return Config()
    except (OSError, msgspec.DecodeError) as error:
        raise failures.Failure(
            f"{path} cannot be read: {error}", fix=f"Correct the file or move it away: {path}"
        ) from error


def set_context(home: Path, name: str, context: Context) -> None:
    """Store a context and make it the current one."""
    with _changed(home) as config:
        config.current, config.contexts[name] = name, context


def change_context(home: Path, name: str, **fields: str) -> None:
    """Change fields of the context with this name; do nothing if it does not exist."""
    with _changed(home) as config:
        if known := config.contexts.get(name):
            config.contexts[name] = msgspec.structs.replace(known, **fields)


def forget_context(home: Path, name: str) -> None:
    with _changed(home) as config:
        config.contexts.pop(name, None)
        if config.current == name:
            config.current = next(iter(config.contexts), "")


def chosen(flags: Flags, environ: Mapping[str, str], config: Config) -> str:
    """Return the name of the context of a call; empty if there is none."""
    return flags.context or environ.get("GPUAAS_CONTEXT", "") or config.current


def resolve(flags: Flags, environ: Mapping[str, str], config: Config) -> Target:
    """Return the target of a call. Flags take precedence over the environment, and both over the file."""
    name = chosen(flags, environ, config)
    known = config.contexts.get(name)
    if known is None and (flags.context or environ.get("GPUAAS_CONTEXT")):
        contexts = ", ".join(config.contexts) or "none yet"
        fix = "gpuaas context list, or gpuaas login --context NAME"
        raise failures.usage(f"There is no context {name!r}; there is {contexts}", fix)
    server = (flags.server or environ.get("GPUAAS_SERVER", "")).rstrip("/")
    # Send a token only to the server that issued it.
    same_server = known is not None and server in ("", known.server)
    kept = known if known is not None and same_server else Context(server=server)
    return Target(
        context=name if same_server else "",
        server=server or kept.server,
        token="".join(environ.get("GPUAAS_TOKEN", "").split()) or kept.token,
        project=flags.project or environ.get("GPUAAS_PROJECT", "") or kept.project_id,
        ca_file=flags.ca_file or kept.ca_file,
    )


def write_private(path: Path, content: bytes) -> None:
    """Write a file atomically. Only its owner can read it, from the start."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _changed(home: Path) -> Iterator[Config]:
    """Yield the config and save the changes. A lock lets only one command at a time read and change the file."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (home / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        config = load(home)
        yield config
        write_private(home / "config.json", msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n")
