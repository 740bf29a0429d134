"""Which local cloud `gpuaas down` stops if none is named: the one that the person uses, never another one."""

from collections.abc import Mapping
from pathlib import Path

from gpuaas_cli import failures
from gpuaas_cli.client import home
from gpuaas_cli.flags import Flags
from gpuaas_cli.local import plan

DEFAULT = "local"
"""Name of the local cloud of a person who has no context yet."""
_LOOPBACK = "http://127.0.0.1:"


def current(folder: Path, flags: Flags, environ: Mapping[str, str]) -> str:
    """Return the local cloud of the current context, or the one at its server. Refuse if the person uses another cloud,
    so that a purge never deletes a cloud that was not meant."""
    config = home.load(folder)
    target = home.resolve(flags, environ, config)
    if not target.server:
        return DEFAULT
    here = local_clouds(folder)
    used = [name for name in here if name in config.contexts and config.contexts[name].server == target.server]
    if target.server.startswith(_LOOPBACK) and (target.context in used or len(used) == 1):
        return target.context if target.context in used else used[0]
    place = f"the context {target.context} ({target.server})" if target.context else target.server
    message = f"You use {place}, which is no local cloud in {folder}; there is {', '.join(here) or 'none'}"
    raise failures.usage(message, f"gpuaas down --lab {here[0] if here else DEFAULT}")


def local_clouds(folder: Path) -> list[str]:
    """Return the names of the local clouds whose data or machines belong to this folder."""
    return sorted({path.parent.name for name in (plan.DATA, plan.MACHINES) for path in folder.glob(f"*/{name}")})
