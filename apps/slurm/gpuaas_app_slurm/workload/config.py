"""The deploy inputs, and the configuration files that are made from them. Pure."""

from collections.abc import Sequence
from importlib import resources
from string import Template
from typing import Any

import msgspec
from gpuaas_sdk.failures import Permanent

from gpuaas_app_slurm.workload import facts

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
KEY_PATH = "/etc/slurm/slurm.key"
GRES_DEVICES_PATH = "/etc/slurm/gpuaas-gres.conf"
MARIADB_PATH = "/etc/mysql/mariadb.conf.d/60-gpuaas-slurm.cnf"


class Inputs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The deploy form, as the manifest's JSON Schema describes it."""

    cluster_name: str
    controller_allocation_id: str
    worker_allocation_ids: tuple[str, ...] = ()
    partition: str = "main"
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


def controller_files(cluster: Cluster) -> tuple[File, ...]:
    return (
        File(f"{SLURM_FOLDER}/slurm.conf", _render("slurm.conf", **_slurm_conf_values(cluster))),
        File(f"{SLURM_FOLDER}/cgroup.conf", _render(f"cgroup-{cluster.cgroup}.conf")),
        File(f"{SLURM_FOLDER}/gres.conf", _render("gres.conf")),
        File(f"{SLURM_FOLDER}/slurmdbd.conf", _render("slurmdbd.conf", **_values(cluster)), 0o600, "slurm:slurm"),
        File(MARIADB_PATH, _render("mariadb.cnf")),
        _drop_in("slurmctld", _render("slurmctld.service.conf")),
        _drop_in("slurmdbd", _render("slurmdbd.service.conf")),
        File(f"{SLURM_FOLDER}/plugstack.conf", _render("plugstack.conf")),
    )


def worker_files(controller_address: str, machine: facts.Facts) -> tuple[File, ...]:
    drop_in = _render(
        "slurmd.service.conf", controller_address=controller_address, node_options=facts.node_options(machine)
    )
    return File(GRES_DEVICES_PATH, gres_devices(machine.gpu_devices)), _drop_in("slurmd", drop_in)


def gres_devices(devices: tuple[str, ...]) -> str:
    lines = [f"Name=gpu File={device}\n" for device in devices]
    return "".join(["# The GPUs of this machine.\n", *lines])


def _slurm_conf_values(cluster: Cluster) -> dict[str, str]:
    if cluster.cgroup == "v2":
        tracking = ("proctrack/cgroup", "task/cgroup,task/affinity", "jobacct_gather/cgroup")
    else:
        tracking = ("proctrack/linuxproc", "task/affinity", "jobacct_gather/linux")
    proctrack, task_plugins, job_accounting = tracking
    return _values(cluster) | {
        "nodes_max": str(NODES_MAX),
        "proctrack": proctrack,
        "task_plugins": task_plugins,
        "job_accounting": job_accounting,
    }


def _values(cluster: Cluster) -> dict[str, str]:
    return {name: str(value) for name, value in msgspec.structs.asdict(cluster).items()}


def _drop_in(unit: str, content: str) -> File:
    return File(f"/etc/systemd/system/{unit}.service.d/gpuaas.conf", content)


def _render(template: str, **values: str) -> str:
    text = resources.files("gpuaas_app_slurm.workload").joinpath("templates", template).read_text()
    return Template(text).substitute(values)
