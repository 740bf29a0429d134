"""The key that the machines of a cluster share: Slurm's own (auth/slurm) or that of munge. Used by `slurm`.

A key is made on the controller machine and copied through the app's memory; the app stores none. A machine of a munge
cluster must not have slurm.key: the programs of Slurm would choose auth/slurm because of it and could not connect."""

from typing import Literal

from gpuaas_sdk.failures import Permanent
from gpuaas_sdk.machine import Machine

Auth = Literal["slurm", "munge"]

SLURM_KEY = "/etc/slurm/slurm.key"
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
RESTORE_MUNGE_KEY = r"""
path=$1 before=$2
if [ -e "$before" ]; then
  mv -f -- "$before" "$path"
  systemctl try-restart munge 2>/dev/null || true
fi
"""


async def make(controller: Machine, auth: Auth) -> None:
    """Make the key of the cluster, unless it exists. Debian's munge makes one when it is installed."""
    await controller.script(MAKE, PATHS[auth], auth)
    await _start_munge(controller, auth)


async def read(controller: Machine, auth: Auth) -> bytes:
    """Return the key of the cluster from the controller machine. It is stored only on machines, never elsewhere."""
    key = await controller.get(PATHS[auth])
    if not key:
        raise Permanent(
            f"{PATHS[auth]} is missing on {controller.hostname}: the controller was never started, or was removed",
            fix="deploy the instance again",
        )
    return key


async def put(worker: Machine, controller: Machine, auth: Auth) -> bool:
    """Copy the key of the cluster to a machine, unless it is the controller machine. Return whether it changed."""
    if worker is controller or worker.address == controller.address:
        return False
    key = await read(controller, auth)
    if auth == "munge":
        await worker.script(KEEP_MUNGE_KEY, MUNGE_KEY, MUNGE_KEY_BEFORE)
    changed = await worker.put(PATHS[auth], key, mode=0o400, owner=f"{auth}:{auth}")
    await _start_munge(worker, auth)
    return changed


async def restore(machine: Machine) -> None:
    await machine.script(RESTORE_MUNGE_KEY, MUNGE_KEY, MUNGE_KEY_BEFORE)


async def _start_munge(machine: Machine, auth: Auth) -> None:
    """Restart munge with the key of the cluster. Slurm's Debian packages install munge even if it is not used."""
    if auth == "munge":
        await machine.run("systemctl", "enable", "-q", "munge")
        await machine.run("systemctl", "restart", "munge")
