"""The inputs of a deploy and of actions, and the configuration files that are made from them. Pure."""

import re
from collections.abc import Sequence
from importlib import resources
from string import Template
from typing import Any, Literal

import msgspec
from gpuaas_sdk.failures import Permanent, Refused
from gpuaas_sdk.machine import File

from gpuaas_app_slurm.workload import choices, containers, facts, footprint, home, keys
from gpuaas_app_slurm.workload.containers import Containers

NODES_MAX = 128

SYSTEM_USERS = frozenset(
    {
        *("root", "daemon", "bin", "sys", "sync", "games", "man", "lp", "mail", "news", "uucp", "proxy", "www-data"),
        *("backup", "list", "irc", "nobody", "_apt", "sshd", "messagebus", "polkitd", "_chrony"),
        *("systemd-network", "systemd-resolve", "systemd-timesync", "slurm", "munge", "mysql"),
    }
)
"""Accounts that Debian and the packages of Slurm create. The deploy form refuses the same names."""
SLURM_FOLDER = "/etc/slurm"
SLURM_CONF = f"{SLURM_FOLDER}/slurm.conf"
OWN_FOLDER = "/etc/slurm/gpuaas"
"""Programs and files of this app on each machine. Slurm runs the programs."""
GRES_DEVICES_PATH = "/etc/slurm/gpuaas-gres.conf"
SLURMD_UNIT_PATH = "/etc/systemd/system/slurmd.service.d/gpuaas.conf"
"""It names the machine from which slurmd gets its configuration."""
REST_PORT = 6820
MARIADB_PATH = "/etc/mysql/mariadb.conf.d/60-gpuaas-slurm.cnf"

SLURMD_TIMEOUT_S = 60
"""After this time, a node whose slurmd does not answer is down, and its jobs end."""
SLURMD_TIMEOUT_HELD_S = 3600
"""The same during an upgrade: if a slurmd does not start, people have this time to repair it before jobs end."""


class Inputs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The deploy form, as the manifest's JSON Schema describes it."""

    cluster_name: str
    controller_allocation_id: str
    worker_allocation_ids: tuple[str, ...] = ()
    login_allocation_ids: tuple[str, ...] = ()
    partition: str = "main"
    default_time: str = "1-00:00:00"
    max_time: str = "7-00:00:00"
    auth: keys.Auth = "slurm"
    home: str = home.AUTO
    users: tuple[str, ...] = ("researcher",)
    priority: choices.Priority = choices.Priority()
    preemption: choices.Preemption = "off"
    partitions: tuple[choices.Partition, ...] = ()
    extra_settings: dict[str, str | int] = {}
    packages: Literal["auto", "present", "distribution", "bundle"] = "auto"
    replace_lost_after_minutes: int | None = None
    rest_api: bool = False
    containers: Containers = "none"

    @property
    def scheduler(self) -> choices.Choices:
        """The settings of the scheduler, with the main partition as the first one."""
        main = choices.Partition(self.partition, self.default_time, self.max_time)
        return choices.Choices((main, *self.partitions), self.priority, self.preemption, self.extra_settings)


class Cluster(msgspec.Struct, frozen=True):
    """The values that the configuration files of one cluster are made from."""

    instance_id: str
    cluster_name: str
    controller_hostname: str
    controller_address: str
    cgroup: facts.Cgroup
    memory_per_cpu_mb: int
    auth: keys.Auth = "slurm"
    rest_api: bool = False
    """People can use slurmrestd with tokens."""
    containers: Containers = "none"
    scheduler: choices.Choices = choices.Choices()
    is_held: bool = False
    """No queued job starts, because daemons of two versions run. Running jobs continue."""
    first_job_id: int = 0
    """Smallest number of a new job; 0: Slurm decides."""
    mpi: str = "pmix"
    """The interface with which srun starts MPI programs. The installed Slurm must have it."""


class Present(msgspec.Struct, frozen=True):
    """Values of a slurm.conf that came from the machines at the deploy, or from an upgrade or a rollback. They stay as
    they are when settings change."""

    controller_hostname: str
    controller_address: str
    cgroup: facts.Cgroup
    memory_per_cpu_mb: int
    is_held: bool = False
    first_job_id: int = 0
    mpi: str = "pmix"


def parse_inputs(inputs: dict[str, Any]) -> Inputs:
    try:
        return msgspec.convert(inputs, Inputs)
    except msgspec.ValidationError as error:
        raise Permanent(
            f"the deploy inputs are not valid: {error}", fix="deploy again with corrected inputs"
        ) from error


def check_users(names: Sequence[str]) -> None:
    """Refuse accounts of the system: jobs would run with their rights, and a decommission would delete them."""
    reserved = [name for name in names if name in SYSTEM_USERS or name.startswith("systemd-")]
    if reserved:
        raise Permanent(
            f"{', '.join(reserved)} cannot be a Slurm user: it is an account of the system or of Slurm itself",
            fix="deploy again with other names in `users`",
        )


def slurm_conf(cluster: Cluster) -> str:
    return _render("slurm.conf", **_slurm_conf_values(cluster))


def present(text: str) -> Present:
    """Read the values of the machines from the slurm.conf of a cluster."""
    host = re.search(r"^SlurmctldHost=([^\s(]+)\(([^)\s]+)\)", text, re.MULTILINE)
    memory = re.search(r"^DefMemPerCPU=(\d+)", text, re.MULTILINE)
    if host is None or memory is None or "\nNodeSet=workers " not in text:
        raise Refused(
            f"{SLURM_CONF} was not written by this release of the app, so its settings cannot be changed",
            fix="put the file back as the app wrote it, or deploy the instance again",
        )
    cgroup: facts.Cgroup = "v2" if "\nProctrackType=proctrack/cgroup" in text else "disabled"
    first = re.search(r"^FirstJobId=(\d+)", text, re.MULTILINE)
    mpi = re.search(r"^MpiDefault=(\S+)", text, re.MULTILINE)
    return Present(
        host[1],
        host[2],
        cgroup,
        int(memory[1]),
        is_held(text),
        int(first[1]) if first else 0,
        mpi[1] if mpi else "pmix",
    )


def is_held(text: str) -> bool:
    """Return whether a slurm.conf holds queued jobs for an upgrade."""
    return f"\nPartitionName={choices.UPGRADE} " in text


def controller_files(cluster: Cluster) -> tuple[File, ...]:
    return (
        File(SLURM_CONF, slurm_conf(cluster)),
        File(f"{SLURM_FOLDER}/cgroup.conf", _render(f"cgroup-{cluster.cgroup}.conf")),
        File(f"{SLURM_FOLDER}/gres.conf", _render("gres.conf")),
        File(f"{SLURM_FOLDER}/slurmdbd.conf", _render("slurmdbd.conf", **_values(cluster)), 0o600, "slurm:slurm"),
        File(MARIADB_PATH, _render("mariadb.cnf")),
        _drop_in("slurmctld", _render("slurmctld.service.conf")),
        _drop_in("slurmdbd", _render("slurmdbd.service.conf")),
        *_rest(cluster),
        *_containers(cluster),
        File(f"{SLURM_FOLDER}/plugstack.conf", _text("plugstack.conf")),
        *_files_of_every_machine(),
    )


def worker_files(controller_address: str, machine: facts.Facts, homes: home.Home) -> tuple[File, ...]:
    """Return the files of a worker."""
    options = facts.node_options(machine)
    gpus = File(GRES_DEVICES_PATH, gres_devices(machine))
    return gpus, _slurmd(controller_address, options, homes), *_files_of_every_machine()


def login_files(controller_address: str, machine: facts.Facts, homes: home.Home) -> tuple[File, ...]:
    """Return the files of a login machine: a worker without GPUs, in no partition."""
    options = facts.login_options(machine)
    gpus = File(GRES_DEVICES_PATH, gres_devices(None))
    return gpus, _slurmd(controller_address, options, homes), *_files_of_every_machine()


def conf_server(controller_address: str) -> str:
    """Return where slurmd gets its configuration."""
    return f"{controller_address}:6817"


def rest_url(controller_address: str) -> str:
    """Return the address of the REST API."""
    return f"http://{controller_address}:{REST_PORT}"


def gres_devices(machine: facts.Facts | None) -> str:
    """Return the GPUs of a machine for gres.conf; none for a machine that runs no jobs."""
    devices = [(device, machine.gpu_type(device)) for device in machine.gpu_devices] if machine else []
    lines = [
        f"Name=gpu Type={kind} File={device}\n" if kind else f"Name=gpu File={device}\n" for device, kind in devices
    ]
    return "".join(["# The GPUs of this machine.\n", *lines])


def health_check() -> File:
    """Return the program that slurmd runs every few minutes."""
    return File(f"{OWN_FOLDER}/health-check", _text("health-check"), 0o755)


def _files_of_every_machine() -> tuple[File, ...]:
    return (
        File(f"{OWN_FOLDER}/task-prolog", _text("task-prolog"), 0o755),
        health_check(),
        File(f"{OWN_FOLDER}/plugstack.conf", _text("plugstack-local.conf")),
        File("/etc/slurm/plugstack.conf.d/00-gpuaas.conf", _text("plugstack-empty.conf")),
        File("/etc/slurm/prolog.d/00-gpuaas", _text("hook"), 0o755),
        File("/etc/slurm/epilog.d/00-gpuaas", _text("hook"), 0o755),
    )


def _rest(cluster: Cluster) -> tuple[File, ...]:
    text = _render("slurmrestd.service.conf", controller_address=cluster.controller_address, port=str(REST_PORT))
    return (_drop_in(footprint.REST_UNIT, text),) if cluster.rest_api else ()


def _containers(cluster: Cluster) -> tuple[File, ...]:
    text = _render("oci.conf", crun=containers.CRUN, run_options=containers.RUN_OPTIONS)
    return (File(footprint.OCI_CONF, text),) if cluster.containers == "oci" else ()


def _slurmd(controller_address: str, node_options: str, homes: home.Home) -> File:
    # Without its homes a node must not take jobs.
    home_first = f"RequiresMountsFor={home.PEOPLE}\n" if homes.is_mounted else ""
    values = {"conf_server": conf_server(controller_address), "node_options": node_options, "home_first": home_first}
    return _drop_in("slurmd", _render("slurmd.service.conf", **values))


def _slurm_conf_values(cluster: Cluster) -> dict[str, str]:
    if cluster.cgroup == "v2":
        tracking = ("proctrack/cgroup", "task/cgroup,task/affinity", "jobacct_gather/cgroup")
    else:
        tracking = ("proctrack/linuxproc", "task/affinity", "jobacct_gather/linux")
    proctrack, task_plugins, job_accounting = tracking
    chosen = choices.settings(cluster.scheduler)
    if cluster.first_job_id:
        chosen["FirstJobId"] = str(cluster.first_job_id)
    return _values(cluster) | {
        "scheduler_settings": "\n".join(f"{key}={value}" for key, value in chosen.items()),
        "partitions": "\n".join(choices.partition_lines(cluster.scheduler.partitions, is_held=cluster.is_held)),
        "memory_limits": _text(f"memory-{cluster.cgroup}.conf").strip(),
        "nodes_max": str(NODES_MAX),
        "slurmd_timeout_s": str(SLURMD_TIMEOUT_HELD_S if cluster.is_held else SLURMD_TIMEOUT_S),
        "proctrack": proctrack,
        "task_plugins": task_plugins,
        "job_accounting": job_accounting,
    }


def _values(cluster: Cluster) -> dict[str, str]:
    values = {name: str(value) for name, value in msgspec.structs.asdict(cluster).items()}
    tokens = _render("auth-tokens.conf", key=footprint.TOKEN_KEY) if cluster.rest_api else ""
    authentication = f"{_text(f'auth-{cluster.auth}.conf')}{tokens}".strip()
    # slurmdbd does not start with a key that it does not know.
    without_jobs = "\n".join(line for line in authentication.splitlines() if not line.startswith("CredType="))
    return values | {"authentication": authentication, "database_authentication": without_jobs}


def _drop_in(unit: str, content: str) -> File:
    return File(f"/etc/systemd/system/{unit}.service.d/gpuaas.conf", content)


def _render(template: str, **values: str) -> str:
    return Template(_text(template)).substitute(values)


def _text(template: str) -> str:
    return resources.files("gpuaas_app_slurm.workload").joinpath("templates", template).read_text()
