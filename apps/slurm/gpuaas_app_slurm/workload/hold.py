"""Hold queued jobs while daemons of two versions run, and let them start again. Running jobs continue.

The hold is in slurm.conf, because slurmctld forgets a partition that was closed by a command when it restarts."""

import msgspec
from gpuaas_sdk import checks
from gpuaas_sdk.checks import Check, Show
from gpuaas_sdk.failures import Permanent
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import choices, cluster, config, nodes, reporter, slurm

POLL_S = 0.5


async def hold(machine: Machine, instance_id: str, inputs: config.Inputs, settings: Settings, progress: Show) -> None:
    """Let no queued job start from now on."""
    await progress("holding queued jobs; running ones continue")
    await _set(machine, instance_id, inputs, is_held=True)
    await _load(machine, "DOWN", settings, progress)


async def release(
    machine: Machine, instance_id: str, inputs: config.Inputs, settings: Settings, progress: Show
) -> None:
    """Let queued jobs start again."""
    await progress("letting queued jobs start again")
    await _set(machine, instance_id, inputs, is_held=False)
    await _load(machine, "UP", settings, progress)


async def is_held(machine: Machine) -> bool:
    return config.is_held(await _text(machine))


async def keep(machine: Machine, instance_id: str, inputs: config.Inputs, first_job_id: int = 0) -> None:
    """Write slurm.conf for the installed Slurm before slurmctld starts, with the hold."""
    present = await _present(machine)
    first = max(first_job_id, present.first_job_id)
    wanted = msgspec.structs.replace(present, is_held=True, first_job_id=first, mpi=await slurm.mpi(machine))
    await _write(machine, instance_id, inputs, wanted)


async def _set(machine: Machine, instance_id: str, inputs: config.Inputs, *, is_held: bool) -> None:
    present = await _present(machine)
    await _write(machine, instance_id, inputs, msgspec.structs.replace(present, is_held=is_held))


async def _write(machine: Machine, instance_id: str, inputs: config.Inputs, wanted: config.Present) -> None:
    """Write slurm.conf, and remember it as the file that the app wrote."""
    await machine.put(config.SLURM_CONF, config.slurm_conf(cluster.changed(instance_id, inputs, wanted)))
    await reporter.remember(machine)


async def _present(machine: Machine) -> config.Present:
    return config.present(await _text(machine))


async def _text(machine: Machine) -> str:
    return (await machine.get(config.SLURM_CONF) or b"").decode()


async def _load(machine: Machine, state: str, settings: Settings, progress: Show) -> None:
    await machine.run("scontrol", "reconfigure", check=False)

    async def has_state() -> Check:
        answers = await slurm.controller_answers(machine)
        if not answers.ok:
            return answers
        shown = choices.partition_states(await nodes.partitions_text(machine))
        other = sorted(name for name, now in shown.items() if name != choices.UPGRADE and now != state)
        return Check(not other, f"partition {', '.join(other)} is not {state} yet")

    check = await checks.until(has_state, within_s=settings.controller_start_s, every_s=POLL_S, show=progress)
    if not check.ok:
        raise Permanent(
            f"the partitions of the cluster did not become {state}: {check.reason}",
            fix=f"gpuaas ssh {machine.hostname} --root -- sudo tail -n 50 /var/log/slurm/slurmctld.log",
        )
