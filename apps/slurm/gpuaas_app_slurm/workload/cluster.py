"""Decide the properties of a cluster from the facts of its machines, and refuse unusable machines. Pure."""

from collections.abc import Sequence

from gpuaas_sdk.failures import Permanent

from gpuaas_app_slurm.workload import config, facts

MEMORY_PER_CPU_MIN_MB = 64


def cluster_of(
    instance_id: str, inputs: config.Inputs, controller: facts.Facts, address: str, workers: Sequence[facts.Facts]
) -> config.Cluster:
    return config.Cluster(
        instance_id=instance_id,
        cluster_name=inputs.cluster_name,
        controller_hostname=controller.hostname,
        controller_address=address,
        cgroup=cgroup_for(workers or (controller,)),
        memory_per_cpu_mb=memory_per_cpu_mb(workers or (controller,)),
        auth=inputs.auth,
        rest_api=inputs.rest_api,
        containers=inputs.containers,
        scheduler=inputs.scheduler,
    )


def changed(instance_id: str, inputs: config.Inputs, present: config.Present) -> config.Cluster:
    """Return the properties of a running cluster with other inputs. What came from the machines stays."""
    return config.Cluster(
        instance_id=instance_id,
        cluster_name=inputs.cluster_name,
        controller_hostname=present.controller_hostname,
        controller_address=present.controller_address,
        cgroup=present.cgroup,
        memory_per_cpu_mb=present.memory_per_cpu_mb,
        auth=inputs.auth,
        rest_api=inputs.rest_api,
        containers=inputs.containers,
        scheduler=inputs.scheduler,
        is_held=present.is_held,
        first_job_id=present.first_job_id,
        mpi=present.mpi,
    )


def cgroup_for(workers: Sequence[facts.Facts]) -> facts.Cgroup:
    """Return one mode for all nodes: slurmd with cgroups does not start on a machine without a pure cgroup v2 tree."""
    return "v2" if all(machine.cgroup == "v2" for machine in workers) else "disabled"


def memory_per_cpu_mb(workers: Sequence[facts.Facts]) -> int:
    """Return the default memory per core: a job on all cores of the node with the least memory per core must fit."""
    shares = [facts.schedulable_memory_mb(machine.memory_mb) // machine.cpus for machine in workers]
    return max(MEMORY_PER_CPU_MIN_MB, min(shares))


def refuse_same_names(machines: Sequence[facts.Facts]) -> None:
    names = [machine.hostname for machine in machines]
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise Permanent(
            f"two machines have the host name {', '.join(duplicates)}; Slurm identifies a node by its host name",
            fix="hostnamectl set-hostname NAME",
        )


def refuse_other_cgroup(machine: facts.Facts, used: facts.Cgroup) -> None:
    if used == "v2" and machine.cgroup != "v2":
        raise Permanent(
            f"machine {machine.hostname} has no pure cgroup v2 tree, but the jobs of this cluster need it",
            fix="boot the machine with systemd.unified_cgroup_hierarchy=1",
        )
