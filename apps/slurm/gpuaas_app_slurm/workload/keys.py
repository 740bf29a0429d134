"""The key that the machines of a cluster share: Slurm's own (auth/slurm) or that of munge. Used by `slurm`.

A key is made on the controller machine and copied through the app's memory; the app stores none. A machine of a munge
cluster must not have slurm.key: the programs of Slurm would choose auth/slurm because of it and could not connect.

While the key is replaced, the controller machine also has a key set with both keys, see `key_rotation`. A machine that
joins or is repaired then gets the same set, and loses its own when the controller machine has none."""

from typing import Literal

from gpuaas_sdk.failures import Permanent
from gpuaas_sdk.installs import units
from gpuaas_sdk.machine import Command, File, Machine, commands

from gpuaas_app_slurm.workload import footprint

Auth = Literal["slurm", "munge"]

SLURM_KEY = "/etc/slurm/slurm.key"
KEY_SET = footprint.KEY_SET
MUNGE_KEY = "/etc/munge/munge.key"
MUNGE_KEY_BEFORE = f"{MUNGE_KEY}.before-gpuaas"
"""The key of a munge that was on the machine before the app; the removal puts it back."""
PATHS: dict[Auth, str] = {"slurm": SLURM_KEY, "munge": MUNGE_KEY}

MAKE = r"""
path=$1 owner=$2
if [ ! -s "$path" ]; then
  umask 077
  head -c 1024 /dev/urandom > "$path.new"
  chown "$owner:$owner" "$path.new"
  chmod 400 "$path.new"
  mv -f "$path.new" "$path"
fi
"""
KEEP_MUNGE_KEY = r"""
path=$1 before=$2
if [ -s "$path" ] && [ ! -e "$before" ]; then cp -a -- "$path" "$before"; fi
"""
DROP_SET = r"""
if [ -e "$1" ]; then rm -f -- "$1"; echo removed; fi
"""
RESTORE_MUNGE_KEY = r"""
path=$1 before=$2
if [ -e "$before" ]; then
  mv -f -- "$before" "$path"
  systemctl try-restart munge 2>/dev/null || true
fi
"""


async def make(controller: Machine, auth: Auth) -> None:
    """Make the key of the cluster, unless it exists. Debian's munge makes one when it is installed."""
    await controller.run_all(commands.script(MAKE, PATHS[auth], auth), *(_MUNGE if auth == "munge" else ()))


async def read(controller: Machine, auth: Auth) -> bytes:
    """Return the key of the cluster from the controller machine. It is stored only on machines, never elsewhere."""
    return present(controller, auth, await controller.get(PATHS[auth]))


def present(controller: Machine, auth: Auth, key: bytes | None) -> bytes:
    """Return the key, which was read from the controller machine; raise Permanent if there is none."""
    if not key:
        raise Permanent(
            f"{PATHS[auth]} is missing on {controller.hostname}: the controller was never started, or was removed",
            fix="deploy the instance again",
        )
    return key


async def put(worker: Machine, controller: Machine, auth: Auth) -> bool:
    """Copy the key of the cluster to a machine, and the key set, unless it is the controller machine. Return whether
    anything changed."""
    if worker is controller or worker.address == controller.address:
        return False
    changed = await give(worker, await read(controller, auth), auth)
    if auth == "slurm":
        changed = await _put_set(worker, controller) or changed
    return changed


async def give(machine: Machine, key: bytes, auth: Auth) -> bool:
    """Put the key of the cluster on a machine. Return whether it changed."""
    if auth == "munge":
        await machine.script(KEEP_MUNGE_KEY, MUNGE_KEY, MUNGE_KEY_BEFORE)
    changed = await write(machine, PATHS[auth], key, owner=auth)
    await _start_munge(machine, auth)
    return changed


async def write(machine: Machine, path: str, content: bytes, *, owner: str = "slurm") -> bool:
    """Write a key or a key set, readable by the daemons only. Return whether it changed."""
    return await machine.put(path, content, mode=0o400, owner=f"{owner}:{owner}")


async def drop_set(machine: Machine) -> bool:
    """Delete the key set. Daemons use the key again when they start. Return whether there was one."""
    return (await machine.script(DROP_SET, KEY_SET)).stdout.strip() == "removed"


async def restore(machine: Machine) -> None:
    await machine.script(RESTORE_MUNGE_KEY, MUNGE_KEY, MUNGE_KEY_BEFORE)


async def _put_set(worker: Machine, controller: Machine) -> bool:
    content = await controller.get(KEY_SET)
    return await drop_set(worker) if content is None else await write(worker, KEY_SET, content)


async def _start_munge(machine: Machine, auth: Auth) -> None:
    """Restart munge with the key of the cluster. Slurm's Debian packages install munge even if it is not used."""
    if auth == "munge":
        await machine.run_all(*_MUNGE)


_MUNGE = (units.enable("munge"), units.restart("munge"))


def copy(key: bytes, key_set: bytes | None, auth: Auth) -> tuple[Command, ...]:
    """Return the commands that give a machine what `put` gives it."""
    if auth == "munge":
        kept = commands.script(KEEP_MUNGE_KEY, MUNGE_KEY, MUNGE_KEY_BEFORE)
        return kept, commands.put_all([_secret(MUNGE_KEY, key, "munge")]), *_MUNGE
    sets = [_secret(KEY_SET, key_set)] if key_set is not None else []
    dropped = (commands.script(DROP_SET, KEY_SET),) if key_set is None else ()
    return commands.put_all([_secret(SLURM_KEY, key), *sets]), *dropped


def _secret(path: str, content: bytes, owner: str = "slurm") -> File:
    return File(path, content, mode=0o400, owner=f"{owner}:{owner}")
