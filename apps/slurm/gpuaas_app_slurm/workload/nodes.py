"""Read and change Slurm's nodes and jobs with commands on the controller machine. Used by handlers and `slurm`."""

import asyncio
import datetime
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from gpuaas_sdk import checks
from gpuaas_sdk.checks import Check, Show
from gpuaas_sdk.failures import Permanent, Refused, Temporary
from gpuaas_sdk.machine import Machine, Ran

from gpuaas_app_slurm.workload import state

Result = TypeVar("Result")

CANARY = "gpuaas-canary"
"""Name of the first job on a new node."""
CANARY_SPARE_S = 180
"""How long after the limit of a first job Slurm removes it from the queue. Two minutes of it are its run time."""
LATE = "did not end within"
TIMED_OUT = (124, 137)
"""Exit statuses of `timeout` for a command that it ended."""
COUNT = ("squeue", "--array", "--noheader", "--states=all", "--format=%i")
HOLDS_NODE = "running,completing,suspended,configuring,stopped,signaling,stage_out"


async def read_all(controller: Machine) -> tuple[state.Node, ...]:
    return state.parse_nodes((await _query(controller, "scontrol", "show", "nodes", "--json")).stdout)


async def read(controller: Machine, name: str) -> state.Node | None:
    return next((node for node in await read_all(controller) if node.name == name), None)


class Looks:
    """Looks at all nodes and jobs, shared by callers who ask at the same time: an add of many workers asks once for all
    of them. An answer is never older than its question."""

    def __init__(self, controller: Machine) -> None:
        self._nodes = _Shared(lambda: read_all(controller))
        self._jobs = _Shared(lambda: jobs_of_cluster(controller))

    async def node(self, name: str) -> state.Node | None:
        return next((node for node in await self._nodes.read() if node.name == name), None)

    async def nodes(self) -> tuple[state.Node, ...]:
        return await self._nodes.read()

    async def runs_jobs_of_people(self, name: str) -> bool:
        """Return whether jobs other than the first job hold the node."""
        return any(name in job.nodes and job.name != CANARY for job in await self._jobs.read())


class _Shared(Generic[Result]):
    def __init__(self, read: Callable[[], Awaitable[Result]]) -> None:
        self._read = read
        self._lock = asyncio.Lock()
        self._begun = 0
        self._last: tuple[int, Result] | None = None
        """The number of the last question that was answered, and the answer."""

    async def read(self) -> Result:
        asked_after = self._begun
        async with self._lock:
            if self._last is None or self._last[0] <= asked_after:
                self._begun += 1
                self._last = (self._begun, await self._read())
            return self._last[1]


async def jobs_on(controller: Machine, name: str) -> tuple[state.Job, ...]:
    argv = ("squeue", "--json", "-w", name, "-t", HOLDS_NODE)
    return state.parse_jobs((await _query(controller, *argv)).stdout)


async def runs_jobs_of_people(controller: Machine, name: str) -> bool:
    """Return whether jobs other than the first job hold the node."""
    return any(job.name != CANARY for job in await jobs_on(controller, name))


async def jobs_of_cluster(controller: Machine) -> tuple[state.Job, ...]:
    return state.parse_jobs((await _query(controller, "squeue", "--json")).stdout)


async def count_jobs(controller: Machine) -> int:
    """Return how many jobs slurmctld keeps: those that have ended too, and each job of an array."""
    return len((await _query(controller, *COUNT)).stdout.split())


async def cancel_all_jobs(controller: Machine, *, timeout_s: float, progress: Show) -> Check:
    async def quiet() -> Check:
        jobs = await jobs_of_cluster(controller)
        if jobs:
            await controller.run("scancel", *(str(job.job_id) for job in jobs), check=False)
        return state.cluster_quiet(jobs)

    return await checks.until(quiet, within_s=timeout_s, every_s=1, show=progress)


async def cancel(controller: Machine, jobs: tuple[int, ...]) -> None:
    """Cancel these jobs. Those that do not exist any more are left out."""
    known = {job.job_id for job in await jobs_of_cluster(controller)}
    present = [str(job) for job in jobs if job in known]
    if present:
        await controller.run("scancel", *present, check=False)


async def cancel_canaries(controller: Machine) -> None:
    """Cancel first jobs whose commands an interrupted operation has left."""
    left = tuple(job.job_id for job in await jobs_of_cluster(controller) if job.name == CANARY)
    await cancel(controller, left)


async def jobs_with_commands(controller: Machine) -> tuple[state.Job, ...]:
    """Return the jobs for which commands of people wait. First jobs of the app are left out."""
    return tuple(job for job in state.interactive(await jobs_of_cluster(controller)) if job.name != CANARY)


async def show(controller: Machine, *what: str) -> str:
    """Return what `scontrol show` prints."""
    return (await _query(controller, "scontrol", "show", *what)).stdout


async def partitions_text(controller: Machine) -> str:
    """Return the partitions as `choices` reads them."""
    return await show(controller, "partition", "-o")


async def set_partition(controller: Machine, partition: str, wanted: str) -> None:
    """Open or close a partition: `up`, `down`, or `inactive`, which also refuses new jobs. Running jobs continue."""
    await _change(controller, "update", f"partitionname={partition}", f"state={wanted}")


async def drain(controller: Machine, name: str, reason: str) -> None:
    """Drain the node. If the node is drained already, the reason of that drain stays."""
    node = await read(controller, name)
    if node is None:
        raise Refused(f"Slurm has no node {name}", fix="sinfo -N")
    if "DRAIN" not in node.flags:
        await set_drain(controller, name, reason)


async def set_drain(controller: Machine, name: str, reason: str) -> None:
    """Drain the node with this reason, also if it is drained for another one."""
    await _change(controller, "update", f"nodename={name}", "state=drain", f"reason={reason}")


async def set_resume(controller: Machine, name: str) -> None:
    """Lift the drain of the node, also one by another user."""
    await _change(controller, "update", f"nodename={name}", "state=resume")


async def reboot(controller: Machine, node: state.Node, reason: str) -> None:
    """Have Slurm restart the machine of the node as soon as its jobs have ended. A drain stays, with its reason: with
    ASAP or nextstate, Slurm would lift it."""
    if "DRAIN" in node.flags:
        await _change(controller, "reboot", node.name)
    else:
        await _change(controller, "reboot", "ASAP", "nextstate=RESUME", f"reason={reason}", node.name)


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
    state.refuse_foreign_drain(node)
    if "DRAIN" in node.flags:
        await set_resume(controller, name)


async def undrain(controller: Machine, name: str, operation_id: str) -> None:
    """Lift the drain that this operation has set. A drain by another user stays."""
    node = await read(controller, name)
    if node is not None and state.drained_by_operation(node, operation_id):
        await set_resume(controller, name)


async def delete(controller: Machine, name: str) -> None:
    """Delete the node. Slurm refuses to delete a node with running jobs, and this function does not bypass that."""
    if await read(controller, name) is not None:
        await _change(controller, "delete", f"nodename={name}")


async def give_up(controller: Machine, name: str, operation_id: str) -> None:
    """End the jobs of the node in Slurm, and keep jobs off it from now on. Its machine does not answer.

    The record of the node stays: slurmd on the machine still has the key of the cluster, and a node that was deleted
    would register again and take jobs as soon as the machine has power. A drain outlasts the registration."""
    node = await read(controller, name)
    if node is None or state.is_given_up(node):
        return
    reason = f"reason={state.given_up_reason(operation_id)}"
    await _change(controller, "update", f"nodename={name}", "state=down", reason)
    await _change(controller, "update", f"nodename={name}", "state=drain", reason)


async def delete_by_force(controller: Machine, name: str) -> None:
    """Mark the node as down, which ends its jobs in Slurm even if slurmd does not answer, and delete it."""
    if await read(controller, name) is not None:
        await _change(controller, "update", f"nodename={name}", "state=down", "reason=gpuaas: removed by force")
        await _change(controller, "delete", f"nodename={name}")


async def canary(
    controller: Machine, user: str | None, names: tuple[str, ...], timeout_s: float, partition: str = ""
) -> Check:
    """Run a job as a normal user, or as root, on exactly these nodes, and return whether it ran on all of them.

    If srun ends while slurmctld does not answer, its job stays in the queue. Slurm removes it then by its deadline."""
    srun = ("srun", f"--nodes={len(names)}", "--ntasks-per-node=1", f"--nodelist={','.join(names)}", "--mem=16")
    deadline = f"--deadline=now+{timeout_s + CANARY_SPARE_S:.0f}seconds"
    where = (f"--partition={partition}",) if partition else ()
    limits = ("--time=2", deadline, f"--job-name={CANARY}", "--quiet", *where)
    argv = ("timeout", "--kill-after=5", f"{timeout_s:g}", *srun, *limits, "hostname", "-s")
    ran = await controller.run(*argv, as_user=user, check=False, timeout_s=timeout_s + 10)
    if ran.exit_status != 0:
        is_late = ran.exit_status in TIMED_OUT
        error = f"{LATE} {timeout_s:g} s" if is_late else f"failed: {ran.stderr.strip()[-500:]}"
        return Check(False, f"the first job of {user or 'root'} {error}")
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
    if "busy" in error.lower() or state.is_no_answer(error):
        raise Temporary(f"`scontrol {' '.join(argv)}` failed: {error}", after_s=2.0)
    raise Permanent(f"`scontrol {' '.join(argv)}` on {controller.hostname} failed: {error}", fix="scontrol show nodes")
