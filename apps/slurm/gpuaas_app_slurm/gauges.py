"""What a look at a cluster measures, for the page /metrics of the controller. Pure; `health` publishes it.

A value that is not known is left out: a graph with a gap is right, one with a zero is not."""

from collections.abc import Mapping, Sequence

from gpuaas_sdk.controller import Gauge

from gpuaas_app_slurm.workload.observed import Measured, Observed

NODE_STATES = ("allocated", "mixed", "completing", "idle", "draining", "drained", "down", "not_responding", "other")
JOB_STATES = ("running", "pending")
"""States that are always shown, also with 0. Others are shown while there are jobs in them."""

_SCHEDULER = "gpuaas_slurm_scheduler_up"
_SCHEDULER_HELP = "1 if slurmctld answers."


def of(seen: Observed, measured: Measured | None) -> list[Gauge]:
    """Return what the look shows."""
    return [
        Gauge(_SCHEDULER, _SCHEDULER_HELP, int(seen.scheduler.ok)),
        Gauge("gpuaas_slurm_accounting_up", "1 if slurmdbd and its database answer.", int(seen.accounting.ok)),
        *(_counts(measured) if measured is not None else ()),
    ]


def unknown() -> list[Gauge]:
    """Return what is shown while the machine of slurmctld does not answer, or the cluster is stopped."""
    return [Gauge(_SCHEDULER, _SCHEDULER_HELP, 0)]


def _counts(measured: Measured) -> list[Gauge]:
    nodes = _by_state("gpuaas_slurm_nodes", "Workers by state.", measured.nodes, NODE_STATES)
    jobs = "Jobs by state. An array that waits counts as one."
    return [
        *nodes,
        *(_by_state("gpuaas_slurm_jobs", jobs, measured.jobs, JOB_STATES) if measured.jobs is not None else ()),
        Gauge("gpuaas_slurm_cpus_allocated", "CPUs of workers that jobs use.", measured.cpus[0]),
        Gauge("gpuaas_slurm_cpus_total", "CPUs of all workers.", measured.cpus[1]),
        Gauge("gpuaas_slurm_gpus_allocated", "GPUs of workers that jobs use.", measured.gpus[0]),
        Gauge("gpuaas_slurm_gpus_total", "GPUs of all workers.", measured.gpus[1]),
    ]


def _by_state(name: str, text: str, counts: Mapping[str, int], always: Sequence[str]) -> list[Gauge]:
    states = [*always, *sorted(set(counts) - set(always))]
    return [Gauge(name, text, counts.get(state, 0), {"state": state}) for state in states]
