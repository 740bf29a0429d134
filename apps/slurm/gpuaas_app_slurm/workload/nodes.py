"""Read and change Slurm's nodes and jobs with commands on the controller machine. Used by handlers and `slurm`."""

import datetime
from typing import Literal, NamedTuple

from gpuaas_sdk import checks
from gpuaas_sdk.checks import Check, Show
from gpuaas_sdk.failures import Permanent, Refused, Temporary
from gpuaas_sdk.machine import Machine, Ran

from gpuaas_app_slurm.workload import state

HOLDS_NODE = "running,completing,suspended,configuring,stopped,signaling,stage_out"


async def read_all(controller: Machine) -> tuple[state.Node, ...]:
    return state.parse_nodes((await _query(controller, "scontrol", "show", "nodes", "--json")).stdout)


async def read(controller: Machine, name: str) -> state.Node | None:
    return next((node for node in await read_all(controller) if node.name == name), None)


async def jobs_on(controller: Machine, name: str) -> tuple[state.Job, ...]:
    argv = ("squeue", "--json", "-w", name, "-t", HOLDS_NODE)
    return state.parse_jobs((await _query(controller, *argv)).stdout)


async def jobs_of_cluster(controller: Machine) -> tuple[state.Job, ...]:
    return state.parse_jobs((await _query(controller, "squeue", "--json")).stdout)


async def cancel_all_jobs(controller: Machine, *, timeout_s: float, progress: Show) -> Check:
    async def quiet() -> Check:
        jobs = await jobs_of_cluster(controller)
        if jobs:
            await controller.run("scancel", *(str(job.job_id) for job in jobs), check=False)
        return state.cluster_quiet(jobs)

    return await checks.until(quiet, within_s=timeout_s, every_s=1, show=progress)


async def set_partition(controller: Machine, partition: str, wanted: Literal["up", "down"]) -> None:
    """Open or close a partition. In a closed partition no job starts; running jobs continue."""
    await _change(controller, "update", f"partitionname={partition}", f"state={wanted}")


async def drain(controller: Machine, name: str, reason: str) -> None:
    """Drain the node. If the node is drained already, the reason of that drain stays."""
    node = await read(controller, name)
    if node is None:
        raise Refused(f"Slurm has no node {name}", fix="sinfo -N")
    if "DRAIN" not in node.flags:
        await _change(controller, "update", f"nodename={name}", "state=drain", f"reason={reason}")


class Look(NamedTuple):
    """What Slurm reported about a node, and when it was asked."""

    observed_at: datetime.datetime
    node: state.Node | None
    jobs: tuple[state.Job, ...]


async def look(controller: Machine, name: str) -> Look:
    """Read the node and its jobs now. The time is that before the first question, so it is never too late."""
    observed_at = datetime.datetime.now(datetime.UTC)
    node = await read(controller, name)
    return Look(observed_at, node, await jobs_on(controller, name) if node is not None else ())


async def kept_drained(controller: Machine, name: str, reason: str) -> Check:
    """Check that the node is drained. Drain it again if Slurm has forgotten it: slurmctld saves changes with a delay,
    so a crash can lose one that it had already confirmed."""
    node, jobs = (await look(controller, name))[1:]
    if node is not None and "DRAIN" not in node.flags:
        await drain(controller, name, reason)
        return Check(False, f"Slurm has forgotten that node {name} is drained; it was drained again")
    return state.node_drained(name, node, jobs)


async def resume(controller: Machine, name: str) -> None:
    """Resume the node if this app drained it; refuse if someone else drained it."""
    node = await read(controller, name)
    if node is None:
        raise Refused(f"Slurm has no node {name}", fix="sinfo -N")
    if state.drained_by_others(node):
        raise Refused(
            f"node {name} was drained by {node.reason_by or 'an unknown user'}: {node.reason or 'no reason given'}; "
            "only that user should resume it",
            fix=f"scontrol update nodename={name} state=resume",
        )
    if "DRAIN" in node.flags:
        await _change(controller, "update", f"nodename={name}", "state=resume")


async def undrain(controller: Machine, name: str, operation_id: str) -> None:
    """Lift the drain that this operation has set. A drain by another user stays."""
    node = await read(controller, name)
    if node is not None and state.drained_by_operation(node, operation_id):
        await _change(controller, "update", f"nodename={name}", "state=resume")


async def delete(controller: Machine, name: str) -> None:
    """Delete the node. Slurm refuses to delete a node with running jobs, and this function does not bypass that."""
    if await read(controller, name) is not None:
        await _change(controller, "delete", f"nodename={name}")


async def delete_by_force(controller: Machine, name: str) -> None:
    """Mark the node as down, which ends its jobs in Slurm even if slurmd does not answer, and delete it."""
    if await read(controller, name) is not None:
        await _change(controller, "update", f"nodename={name}", "state=down", "reason=gpuaas: removed by force")
        await _change(controller, "delete", f"nodename={name}")


async def canary(controller: Machine, user: str, names: tuple[str, ...], timeout_s: float) -> Check:
    """Run a job as a normal user on exactly these nodes, and return whether it ran on all of them."""
    srun = ("srun", f"--nodes={len(names)}", "--ntasks-per-node=1", f"--nodelist={','.join(names)}", "--mem=16")
    limits = ("--time=2", "--job-name=gpuaas-canary", "--quiet")
    argv = ("timeout", "--kill-after=5", f"{timeout_s:g}", *srun, *limits, "hostname", "-s")
    ran = await controller.run(*argv, as_user=user, check=False, timeout_s=timeout_s + 10)
    if ran.exit_status != 0:
        error = ran.stderr.strip()[-500:] or f"it did not end within {timeout_s:g} s"
        return Check(False, f"the first job of {user} failed: {error}")
    return state.canary_ran(ran.stdout, names)


async def _query(controller: Machine, *argv: str) -> Ran:
    """Run a query. If Slurm does not answer, raise Temporary, so that the caller never acts on an unknown state."""
    ran = await controller.run(*argv, check=False)
    if ran.exit_status != 0:
        error = ran.stderr.strip()[-500:]
        raise Temporary(f"cannot read the state of Slurm: `{' '.join(argv)}` on {controller.hostname} failed: {error}")
    return ran


async def _change(controller: Machine, *argv: str) -> None:
    ran = await controller.run("scontrol", *argv, check=False)
    if ran.exit_status == 0:
        return
    error = (ran.stderr.strip() or ran.stdout.strip())[-500:]
    if "busy" in error.lower() or "contact" in error.lower():
        raise Temporary(f"`scontrol {' '.join(argv)}` failed: {error}", after_s=2.0)
    raise Permanent(f"`scontrol {' '.join(argv)}` on {controller.hostname} failed: {error}", fix="scontrol show nodes")
