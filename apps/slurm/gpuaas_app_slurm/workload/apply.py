"""Put other settings into a running cluster: write slurm.conf, have Slurm read it, check that Slurm uses it.

Every function can be repeated after an interruption. `reporter` keeps the file as it was before, until its `remember`
is called, so the old settings can be put back at any point."""

from collections.abc import Sequence

from gpuaas_sdk import checks
from gpuaas_sdk.checks import Check, Show
from gpuaas_sdk.failures import Permanent, Refused
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import choices, cluster, config, nodes, reporter, slurm, state

POLL_S = 0.5


async def change(
    machine: Machine,
    instance_id: str,
    inputs: config.Inputs,
    known: Sequence[config.Inputs],
    settings: Settings,
    progress: Show,
) -> None:
    """Change the settings of the cluster to those of the inputs. If Slurm does not take them, put the old ones back.

    `known`: the inputs from which the app may have written the present file. A file from other inputs was edited."""
    present = await _unheld(machine, instance_id, known)
    wanted = config.slurm_conf(cluster.changed(instance_id, inputs, present))
    answers = await slurm.controller_answers(machine)
    if not answers.ok:
        await _put_back(machine, settings, progress, "")
        raise Refused(answers.reason, fix="gpuaas member repair makes slurmctld run again; then request it again")
    await _refuse_fewer_jobs(machine, inputs.scheduler)
    await _close_removed(machine, inputs.scheduler)
    await progress(f"changing the settings of Slurm on {machine.hostname}")
    await machine.put(config.SLURM_CONF, wanted)
    problem = await _load(machine, inputs.scheduler, settings, progress)
    if state.is_no_answer(problem):
        # slurmctld ended: because of the settings, or by chance. A second time it is because of the settings.
        await _put_back(machine, settings, progress, problem)
        await machine.put(config.SLURM_CONF, wanted)
        problem = await _load(machine, inputs.scheduler, settings, progress)
    if problem:
        await _put_back(machine, settings, progress, problem)
        raise Permanent(
            f"Slurm did not take the new settings, so the old ones were put back: {problem}",
            fix=f"gpuaas ssh {machine.hostname} --root -- sudo tail -n 50 /var/log/slurm/slurmctld.log",
        )


async def require_changeable(
    machine: Machine, instance_id: str, inputs: config.Inputs, known: Sequence[config.Inputs]
) -> None:
    """Refuse a change that cannot work now. Changes nothing."""
    await _unheld(machine, instance_id, known)
    await refuse_job_losses(machine, inputs.scheduler)


async def refuse_job_losses(machine: Machine, wanted: choices.Choices) -> None:
    """Refuse settings with which slurmctld would end jobs that it has now. Changes nothing."""
    await _refuse_fewer_jobs(machine, wanted)
    await _refuse_jobs_in(machine, choices.removed(wanted, await nodes.partitions_text(machine)))


async def _unheld(machine: Machine, instance_id: str, known: Sequence[config.Inputs]) -> config.Present:
    """Return what slurm.conf has. Refuse an edited file, and a cluster whose upgrade is not finished."""
    present = config.present(await unedited(machine, instance_id, known))
    refuse_held(present)
    return present


def refuse_held(present: config.Present) -> None:
    """Refuse to change a cluster whose upgrade is not finished."""
    if present.is_held:
        raise Refused(
            "an upgrade of this cluster is not finished, and no job starts until it is",
            fix="gpuaas get operations shows the upgrade: retry or undo it. If it has no exits, request it again",
        )


async def unedited(machine: Machine, instance_id: str, known: Sequence[config.Inputs]) -> str:
    """Return slurm.conf. Refuse if a file on the machine has an edit: it would be lost, or count as right."""
    text = (await machine.get(config.SLURM_CONF) or b"").decode()
    values = config.present(text)
    ours = {config.slurm_conf(cluster.changed(instance_id, inputs, values)) for inputs in known}
    edited = [path for path in await reporter.changed(machine) if path != config.SLURM_CONF or text not in ours]
    if edited:
        raise Refused(
            f"files on {machine.hostname} were changed after the app wrote them: {', '.join(edited)}",
            fix="gpuaas member repair puts them back; then request the change again",
        )
    return text


async def _close_removed(machine: Machine, wanted: choices.Choices) -> None:
    """Close the partitions that will not exist any more. Refuse if they have jobs: Slurm would end these."""
    removed = choices.removed(wanted, await nodes.partitions_text(machine))
    if not removed:
        return
    await _refuse_jobs_in(machine, removed)
    await _set_all(machine, dict.fromkeys(removed, "INACTIVE"))
    try:
        # A job may have been submitted just before the partition was closed.
        await _refuse_jobs_in(machine, removed)
    except Refused:
        await _set_all(machine, removed)
        raise


async def _refuse_fewer_jobs(machine: Machine, wanted: choices.Choices) -> None:
    if wanted.jobs_max < choices.jobs_max(await nodes.show(machine, "config")):
        choices.refuse_fewer_jobs(wanted, await nodes.count_jobs(machine))


async def _refuse_jobs_in(machine: Machine, removed: dict[str, str]) -> None:
    jobs = state.jobs_in(removed, await nodes.jobs_of_cluster(machine))
    if jobs:
        raise Refused(
            f"partition {', '.join(sorted(removed))} cannot be removed: {state.cluster_quiet(jobs).reason}",
            fix="let these jobs end, or move queued ones: scontrol update jobid=ID partition=NAME",
        )


async def _set_all(machine: Machine, states: dict[str, str]) -> None:
    for name, wanted in states.items():
        await nodes.set_partition(machine, name, wanted)


async def _load(machine: Machine, wanted: choices.Choices, settings: Settings, progress: Show) -> str:
    """Have all daemons read the file. Return why Slurm does not use it; empty if it does."""
    ran = await machine.run("scontrol", "reconfigure", check=False)
    if ran.exit_status != 0:
        return (ran.stderr.strip() or ran.stdout.strip())[-800:] or "scontrol reconfigure failed"

    async def in_use() -> Check:
        answers = await slurm.controller_answers(machine)
        if not answers.ok:
            return answers
        other = choices.differences(wanted, await nodes.show(machine, "config"), await nodes.partitions_text(machine))
        return Check(not other, "; ".join(other[:10]))

    check = await checks.until(in_use, within_s=settings.controller_start_s, every_s=POLL_S, show=progress)
    return check.reason


async def _put_back(machine: Machine, settings: Settings, progress: Show, problem: str) -> None:
    """Put the file back as it was before, and have a slurmctld that does not answer start with it."""
    if not await reporter.restore_one(machine, config.SLURM_CONF):
        return
    await progress("putting the old settings back")
    await machine.run("scontrol", "reconfigure", check=False)
    if not (await slurm.controller_answers(machine)).ok:
        await machine.run("systemctl", "restart", "slurmctld", check=False)

    async def answers() -> Check:
        return await slurm.controller_answers(machine)

    check = await checks.until(answers, within_s=settings.controller_start_s, every_s=POLL_S, show=progress)
    if not check.ok:
        raise Permanent(
            f"the old settings were put back, but {check.reason} (the new ones: {problem or 'were not in use yet'})",
            fix=f"gpuaas ssh {machine.hostname} --root -- sudo journalctl -n 50 -u slurmctld",
        )
