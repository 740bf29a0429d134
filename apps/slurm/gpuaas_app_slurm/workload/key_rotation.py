"""Replace the key of a cluster that uses auth/slurm, beside running jobs.

The key set on the controller machine is the record of how far it is; its deletion is the end. Daemons read keys only
when they start: a slurmd that fetches its configuration keeps the path of its key at a reload. Jobs continue while a
daemon restarts. Every function can be repeated after an interruption."""

import secrets

from gpuaas_sdk.checks import Check, Show
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import key_sets, keys, moves, repairs, reporter, slurm, state

KEY_BYTES = 1024
RELEASE_MIN = (24, 5)
"""The first release of Slurm that reads a key set."""


async def is_open(head: Machine) -> bool:
    """Return whether an earlier rotation did not end."""
    return await head.get(keys.KEY_SET) is not None


async def begin(head: Machine) -> None:
    """Make the new key, unless an earlier rotation has made one."""
    if await is_open(head):
        return
    old = await keys.read(head, "slurm")
    await _write(head, key_sets.started(old, secrets.token_bytes(KEY_BYTES)))


async def switch(head: Machine) -> None:
    """Have the cluster sign with the new key. Daemons do so from their next start."""
    content = await head.get(keys.KEY_SET)
    if content is None:
        return
    wanted = key_sets.switched(key_sets.decode(content))
    await _write(head, wanted)
    await keys.write(head, keys.SLURM_KEY, wanted.new)
    await _remember(head)


async def follow(machine: Machine, head: Machine, settings: Settings, progress: Show) -> None:
    """Give a machine the key and the key set of the controller machine, and have its slurmd use them."""
    if await keys.put(machine, head, "slurm"):
        await _remember(machine)
    await _restart_slurmd(machine, settings, progress)


async def finish(machine: Machine, head: Machine, settings: Settings, progress: Show) -> None:
    """Have a machine forget the old key. The controller machine has the new one since `switch`, also after its set was
    deleted."""
    if await keys.write(machine, keys.SLURM_KEY, await keys.read(head, "slurm")):
        await _remember(machine)
    await keys.drop_set(machine)
    await _restart_slurmd(machine, settings, progress)


async def restart_head(head: Machine, cluster_name: str, settings: Settings, progress: Show) -> None:
    """Have the daemons of the controller machine use its keys, slurmdbd first. Wait until both answer."""
    await moves.refuse_begun(head)
    await repairs.restart(head, "slurmdbd", progress)
    await repairs.until_accounting(head, cluster_name, settings, progress)
    await repairs.restart(head, "slurmctld", progress)
    await repairs.until_scheduler(head, settings, progress)
    await _restart_slurmd(head, settings, progress)


async def has_only(machine: Machine, key: bytes) -> bool:
    """Return whether the machine has this key and no other one."""
    return await machine.get(keys.SLURM_KEY) == key and await machine.get(keys.KEY_SET) is None


def may_miss(name: str, node: state.Node | None) -> Check:
    """Return whether the key may be replaced without this machine, which does not answer. Pure.

    Slurm does not use a node that is down. A node that Slurm uses would lose its jobs."""
    if node is None or "DOWN" in node.flags:
        return Check(True)
    return Check(False, f"machine {name} does not answer, and Slurm uses its node ({node.slurm_state})")


def reads_key_sets(version: str) -> bool:
    numbers = [int(part) for part in version.split(".")[:2] if part.isdigit()]
    return tuple(numbers) >= RELEASE_MIN


async def _write(head: Machine, wanted: key_sets.KeySet) -> None:
    await keys.write(head, keys.KEY_SET, key_sets.encode(wanted))


async def _remember(machine: Machine) -> None:
    """Remember the new key as what the app wrote. The key set is not remembered: no repair must bring it back."""
    if await reporter.is_remembered(machine):
        await reporter.remember(machine)


async def _restart_slurmd(machine: Machine, settings: Settings, progress: Show) -> None:
    """Restart slurmd if it runs, and wait until slurmctld accepts a message from this machine. A slurmd that is about
    to stop or start counts as well: an attempt before may have begun its restart with the key of then."""
    if not await repairs.is_stopped(machine, "slurmd"):
        await repairs.restart(machine, "slurmd", progress)
        await repairs.until(lambda: slurm.controller_answers(machine), settings.join_s, machine, progress)
