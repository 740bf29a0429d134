"""Slurm's nodes and jobs, asked and told through the controller machine.  Called by the handlers and by `slurm`."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Literal

from gpuaas_sdk.failures import Permanent, Temporary
from gpuaas_sdk.machine import Machine, Ran

from gpuaas_app_slurm import state

Say = Callable[[str], Awaitable[None]]
Ask = Callable[[], Awaitable[state.Check]]

HOLDS_NODE = "running,completing,suspended,configuring,stopped,signaling,stage_out"


async def until(ask: Ask, *, timeout_s: float, every_s: float, say: Say) -> state.Check:
    """Ask until the answer is yes or the time is up; tell each new reason once."""
    ends_at = time.monotonic() + timeout_s
    told = ""
    while True:
        check = await ask()
        if check.ok or time.monotonic() >= ends_at:
            return check
        if check.reason != told:
            told = check.reason
            await say(told)
        await asyncio.sleep(every_s)


async def read_all(controller: Machine) -> tuple[state.Node, ...]:
    return state.parse_nodes((await _ask(controller, "scontrol", "show", "nodes", "--json")).stdout)


async def read(controller: Machine, name: str) -> state.Node | None:
    return next((node for node in await read_all(controller) if node.name == name), None)


async def jobs_on(controller: Machine, name: str) -> tuple[state.Job, ...]:
    argv = ("squeue", "--json", "-w", name, "-t", HOLDS_NODE)
    return state.parse_jobs((await _ask(controller, *argv)).stdout)


async def jobs_of_cluster(controller: Machine) -> tuple[state.Job, ...]:
    return state.parse_jobs((await _ask(controller, "squeue", "--json")).stdout)


async def cancel_all_jobs(controller: Machine, *, timeout_s: float, say: Say) -> state.Check:
    async def quiet() -> state.Check:
        jobs = await jobs_of_cluster(controller)
        if jobs:
            await controller.run("scancel", *(str(job.job_id) for job in jobs), check=False)
        return state.cluster_quiet(jobs)

    return await until(quiet, timeout_s=timeout_s, every_s=1, say=say)


async def set_partition(controller: Machine, partition: str, wanted: Literal["up", "down"]) -> None:
    """A partition that is down starts no job; jobs that run go on."""
    await _tell(controller, "update", f"partitionname={partition}", f"state={wanted}")


async def drain(controller: Machine, name: str, reason: str) -> None:
    """Idempotent, and a drain set by somebody else keeps its reason."""
    node = await read(controller, name)
    if node is None:
        raise Permanent(f"Slurm does not know node {name}", fix="sinfo -N")
    if "DRAIN" not in node.flags:
        await _tell(controller, "update", f"nodename={name}", "state=drain", f"reason={reason}")


async def drained(controller: Machine, name: str) -> state.Check:
    node = await read(controller, name)
    jobs = await jobs_on(controller, name) if node is not None else ()
    return state.node_drained(name, node, jobs)


async def resume(controller: Machine, name: str) -> None:
    """Lifts our own drain only."""
    node = await read(controller, name)
    if node is None:
        raise Permanent(f"Slurm does not know node {name}", fix="sinfo -N")
    if state.drained_by_others(node):
        raise Permanent(
            f"node {name} was drained by {node.reason_by or 'somebody else'}: {node.reason or 'no reason given'}; "
            "only they should lift it",
            fix=f"scontrol update nodename={name} state=resume",
        )
    if "DRAIN" in node.flags:
        await _tell(controller, "update", f"nodename={name}", "state=resume")


async def delete(controller: Machine, name: str, *, although_unreachable: bool = False) -> None:
    """Slurm itself refuses to delete a node with work on it: the last guard, and it is never gone around."""
    if await read(controller, name) is None:
        return
    if although_unreachable:
        await _tell(controller, "update", f"nodename={name}", "state=down", "reason=gpuaas: machine is gone")
    await _tell(controller, "delete", f"nodename={name}")


async def canary(controller: Machine, user: str, names: tuple[str, ...], timeout_s: float) -> state.Check:
    """A real job of a normal user on exactly these nodes."""
    srun = ("srun", f"--nodes={len(names)}", "--ntasks-per-node=1", f"--nodelist={','.join(names)}", "--mem=16")
    limits = ("--time=2", "--job-name=gpuaas-canary", "--quiet")
    argv = ("timeout", "--kill-after=5", f"{timeout_s:g}", *srun, *limits, "hostname", "-s")
    ran = await controller.run(*argv, as_user=user, check=False, timeout_s=timeout_s + 10)
    if ran.exit_status != 0:
        said = ran.stderr.strip()[-500:] or f"no answer within {timeout_s:g} s"
        return state.Check(False, f"the first job of {user} failed: {said}")
    return state.canary_ran(ran.stdout, names)


async def _ask(controller: Machine, *argv: str) -> Ran:
    """A question that Slurm did not answer is no answer: the caller must not go on as if it were."""
    ran = await controller.run(*argv, check=False)
    if ran.exit_status != 0:
        said = ran.stderr.strip()[-500:]
        raise Temporary(f"could not read Slurm's state on {controller.hostname} (`{' '.join(argv)}`): {said}")
    return ran


async def _tell(controller: Machine, *argv: str) -> None:
    ran = await controller.run("scontrol", *argv, check=False)
    if ran.exit_status == 0:
        return
    said = (ran.stderr.strip() or ran.stdout.strip())[-500:]
    if "busy" in said.lower() or "contact" in said.lower():
        raise Temporary(f"`scontrol {' '.join(argv)}`: {said}", after_s=2.0)
    raise Permanent(f"`scontrol {' '.join(argv)}` on {controller.hostname}: {said}", fix="scontrol show nodes")
