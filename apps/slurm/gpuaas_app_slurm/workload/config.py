"""The deploy inputs, and the configuration files that are made from them. Pure."""

from collections.abc import Sequence
from importlib import resources
from string import Template
from typing import Any

import msgspec
from gpuaas_sdk.failures import Permanent

from gpuaas_app_slurm.workload import facts, home, keys

FIRST_USER_ID = 6000
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
OWN_FOLDER = "/etc/slurm/gpuaas"
"""Programs and files of this app on each machine. Slurm runs the programs."""
GRES_DEVICES_PATH = "/etc/slurm/gpuaas-gres.conf"
MARIADB_PATH = "/etc/mysql/mariadb.conf.d/60-gpuaas-slurm.cnf"


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

    def user_ids(self) -> dict[str, int]:
        """Return the uid of each user, the same on all machines, so that files and jobs belong to the same user."""
        return {name: FIRST_USER_ID + position for position, name in enumerate(self.users)}


class Cluster(msgspec.Struct, frozen=True):
    """The values that the configuration files of one cluster are made from."""

    instance_id: str
    cluster_name: str
    partition: str
    controller_hostname: str
    controller_address: str
    cgroup: facts.Cgroup
    memory_per_cpu_mb: int
    auth: keys.Auth = "slurm"
    default_time: str = "1-00:00:00"
    max_time: str = "7-00:00:00"


class File(msgspec.Struct, frozen=True):
    """One file to put on a machine."""

    path: str
    content: str
    mode: int = 0o644
    owner: str = "root:root"


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


def check_times(inputs: Inputs) -> None:
    """Refuse a default time limit over the maximum: Slurm would give jobs the maximum and report no error."""
    if seconds(inputs.default_time) > seconds(inputs.max_time):
        raise Permanent(
            f"default_time {inputs.default_time} is longer than max_time {inputs.max_time}",
            fix="deploy again with a shorter default_time",
        )


def seconds(limit: str) -> float:
    """Return the length of a time limit such as 1-00:00:00, 12:30:00 or UNLIMITED."""
    if limit == "UNLIMITED":
        return float("inf")
    days, _, clock = limit.rpartition("-")
    hours, minutes, rest = (int(part) for part in clock.split(":"))
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + rest


def controller_files(cluster: Cluster) -> tuple[File, ...]:
    return (
        File(f"{SLURM_FOLDER}/slurm.conf", _render("slurm.conf", **_slurm_conf_values(cluster))),
        File(f"{SLURM_FOLDER}/cgroup.conf", _render(f"cgroup-{cluster.cgroup}.conf")),
        File(f"{SLURM_FOLDER}/gres.conf", _render("gres.conf")),
        File(f"{SLURM_FOLDER}/slurmdbd.conf", _render("slurmdbd.conf", **_values(cluster)), 0o600, "slurm:slurm"),
        File(MARIADB_PATH, _render("mariadb.cnf")),
        _drop_in("slurmctld", _render("slurmctld.service.conf")),
        _drop_in("slurmdbd", _render("slurmdbd.service.conf")),
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


def gres_devices(machine: facts.Facts | None) -> str:
    """Return the GPUs of a machine for gres.conf; none for a machine that runs no jobs."""
    devices = [(device, machine.gpu_type(device)) for device in machine.gpu_devices] if machine else []
    lines = [
        f"Name=gpu Type={kind} File={device}\n" if kind else f"Name=gpu File={device}\n" for device, kind in devices
    ]
    return "".join(["# The GPUs of this machine.\n", *lines])


def _files_of_every_machine() -> tuple[File, ...]:
    return (
        File(f"{OWN_FOLDER}/task-prolog", _text("task-prolog"), 0o755),
        File(f"{OWN_FOLDER}/health-check", _text("health-check"), 0o755),
        File(f"{OWN_FOLDER}/plugstack.conf", _text("plugstack-local.conf")),
        File("/etc/slurm/plugstack.conf.d/00-gpuaas.conf", _text("plugstack-empty.conf")),
        File("/etc/slurm/prolog.d/00-gpuaas", _text("hook"), 0o755),
        File("/etc/slurm/epilog.d/00-gpuaas", _text("hook"), 0o755),
    )


def _slurmd(controller_address: str, node_options: str, homes: home.Home) -> File:
    # Without its homes a node must not take jobs.
    home_first = f"RequiresMountsFor={home.PEOPLE}\n" if homes.is_mounted else ""
    values = {"controller_address": controller_address, "node_options": node_options, "home_first": home_first}
    return _drop_in("slurmd", _render("slurmd.service.conf", **values))


def _slurm_conf_values(cluster: Cluster) -> dict[str, str]:
    if cluster.cgroup == "v2":
        tracking = ("proctrack/cgroup", "task/cgroup,task/affinity", "jobacct_gather/cgroup")
    else:
        tracking = ("proctrack/linuxproc", "task/affinity", "jobacct_gather/linux")
    proctrack, task_plugins, job_accounting = tracking
    return _values(cluster) | {
        "memory_limits": _text(f"memory-{cluster.cgroup}.conf").strip(),
        "nodes_max": str(NODES_MAX),
        "proctrack": proctrack,
        "task_plugins": task_plugins,
        "job_accounting": job_accounting,
    }


def _values(cluster: Cluster) -> dict[str, str]:
    values = {name: str(value) for name, value in msgspec.structs.asdict(cluster).items()}
    authentication = _text(f"auth-{cluster.auth}.conf").strip()
    # slurmdbd does not start with a key that it does not know.
    without_jobs = "\n".join(line for line in authentication.splitlines() if not line.startswith("CredType="))
    return values | {"authentication": authentication, "database_authentication": without_jobs}


def _drop_in(unit: str, content: str) -> File:
    return File(f"/etc/systemd/system/{unit}.service.d/gpuaas.conf", content)


def _render(template: str, **values: str) -> str:
    return Template(_text(template)).substitute(values)


def _text(template: str) -> str:
    return resources.files("gpuaas_app_slurm.workload").joinpath("templates", template).read_text()
