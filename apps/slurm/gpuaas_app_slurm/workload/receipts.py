"""The receipt lists what the app changes on a machine. It is written before each change; `uninstall` undoes the list.

It is stored on the machine, so that it is not lost when the controller process ends."""

import msgspec
from gpuaas_sdk.failures import Refused
from gpuaas_sdk.machine import Machine

FOLDER = "/var/lib/gpuaas-app/slurm"

UNITS = ("slurmd", "slurmctld", "slurmdbd", "mariadb", "munge")
UNITS_TOUCHED = (*(f"{unit}.service" for unit in UNITS), "network-online.target", "logrotate.timer")
PACKAGE_USERS = ("slurm", "munge", "mysql")

CONFIGURATION = (
    "/etc/slurm/slurm.conf",
    "/etc/slurm/slurmdbd.conf",
    "/etc/slurm/cgroup.conf",
    "/etc/slurm/gres.conf",
    "/etc/slurm/slurm.key",
)
"""Configuration files of Slurm. If one exists on a machine without a receipt of this app, the machine has another
Slurm."""

STATE_FOLDERS = ("/var/lib/slurm/slurmctld", "/var/lib/slurm/slurmd")

OVERWRITTEN = ("/etc/slurm/plugstack.conf",)
"""Files of packages that the app replaces. If they existed before, the receipt contains their old content."""

REPORTER_UNIT = "gpuaas-slurm-health"
REPORTER_FOLDER = "/usr/local/lib/gpuaas-slurm"
FILES_LIST = "/etc/slurm/gpuaas-files"
"""Path and digest of each file that the app wrote, as `sha256sum` prints them."""

REPORTER_PATHS = (
    REPORTER_FOLDER,
    f"/etc/systemd/system/{REPORTER_UNIT}.service",
    "/run/gpuaas-slurm",
    FILES_LIST,
    f"{FILES_LIST}.tar",
)
"""Paths of the health reporter. A receipt from before the reporter does not list them, and only this app makes them."""

WRITTEN = (
    *CONFIGURATION,
    *OVERWRITTEN,
    "/etc/slurm/gpuaas-gres.conf",
    *(f"/etc/systemd/system/{unit}.service.d/gpuaas.conf" for unit in UNITS),
    "/etc/mysql/mariadb.conf.d/60-gpuaas-slurm.cnf",
    *(f"/etc/slurm/gpuaas/{name}" for name in ("task-prolog", "health-check", "plugstack.conf")),
    "/etc/slurm/plugstack.conf.d/00-gpuaas.conf",
    "/etc/slurm/prolog.d/00-gpuaas",
    "/etc/slurm/epilog.d/00-gpuaas",
)
"""Files whose content the app decides. Each machine has those of its roles."""

PATHS = (
    "/usr/sbin/policy-rc.d",
    "/etc/slurm",
    *CONFIGURATION,
    *OVERWRITTEN,
    "/etc/slurm/gpuaas-gres.conf",
    "/etc/slurm/gpuaas",
    "/etc/slurm/prolog.d",
    "/etc/slurm/prolog.d/00-gpuaas",
    "/etc/slurm/epilog.d",
    "/etc/slurm/epilog.d/00-gpuaas",
    "/etc/slurm/plugstack.conf.d",
    "/etc/slurm/plugstack.conf.d/00-gpuaas.conf",
    "/etc/exports.d",
    "/etc/exports.d/gpuaas-slurm.exports",
    *(f"/etc/systemd/system/{unit}.service.d" for unit in UNITS),
    *(f"/etc/systemd/system/{unit}.service.d/gpuaas.conf" for unit in UNITS),
    *REPORTER_PATHS,
    "/etc/mysql",
    "/etc/mysql/mariadb.conf.d/60-gpuaas-slurm.cnf",
    "/etc/munge",
    "/var/lib/slurm",
    *STATE_FOLDERS,
    "/var/lib/mysql",
    "/var/lib/mysql/multi-master.info",
    "/var/lib/munge",
    "/var/log/slurm",
    "/var/log/mysql",
    "/var/log/munge",
    "/run/slurm",
    "/run/slurmctld",
    "/run/slurmdbd",
    "/run/mysqld",
    "/run/munge",
    # These are created by the package tools and by useradd, not by the packages.
    "/run/adduser",
    "/etc/subuid-",
    "/etc/subgid-",
    "/var/cache/debconf/tmp.ci",
    "/var/lib/systemd/timers/stamp-logrotate.timer",
    "/var/lib/ucf/hashfile.1",
    "/var/lib/ucf/hashfile.2",
)
"""Every path that the app, its packages or their tools may create. Uninstalling deletes those that did not exist."""

INSPECT = r"""
while [ $# -gt 0 ]; do
  kind=$1 name=$2; shift 2
  case $kind in
    path)
      if [ ! -e "$name" ] && [ ! -L "$name" ]; then echo "absent $name"
      elif [ -d "$name" ] && [ -z "$(ls -A "$name")" ]; then echo "empty $name"
      else echo "present $name"; fi ;;
    content) [ ! -f "$name" ] || echo "content $name $(base64 -w0 "$name")" ;;
    user) getent passwd "$name" >/dev/null || echo "no-user $name" ;;
    group) getent group "$name" >/dev/null || echo "no-group $name" ;;
    unit)
      enabled=$(systemctl is-enabled "$name" 2>/dev/null || true)
      active=$(systemctl is-active "$name" 2>/dev/null || true)
      echo "unit $name ${enabled:-absent} ${active:-inactive}" ;;
  esac
done
"""


class UnitBefore(msgspec.Struct, frozen=True):
    name: str
    enabled: str
    active: str


class Receipt(msgspec.Struct):
    """The changes of one instance on one machine. Its packages, paths, users and groups did not exist before."""

    instance_id: str
    roles: list[str] = []
    packages: list[str] = []
    paths: list[str] = []
    folders_to_empty: list[str] = []
    users: list[str] = []
    groups: list[str] = []
    units: list[UnitBefore] = []
    contents: dict[str, str] = {}
    """The old content (base64) of existing files that the app replaces, by path."""


def path_of(instance_id: str) -> str:
    return f"{FOLDER}/{instance_id}.json"


async def read(machine: Machine, instance_id: str) -> Receipt | None:
    content = await machine.get(path_of(instance_id))
    return None if content is None else msgspec.json.decode(content, type=Receipt)


async def write(machine: Machine, receipt: Receipt) -> None:
    content = msgspec.json.format(msgspec.json.encode(receipt)) + b"\n"
    await machine.put(path_of(receipt.instance_id), content, mode=0o600)


async def open_for(machine: Machine, instance_id: str, roles: tuple[str, ...], users: tuple[str, ...]) -> Receipt:
    """Return the receipt of the machine. If there is none, make it by inspecting the machine, still unchanged."""
    receipt = await read(machine, instance_id)
    if receipt is None:
        receipt = first_receipt(instance_id, machine.hostname, await _inspect(machine, users))
        await machine.run("install", "-d", "-m", "0700", FOLDER)
    missing = [role for role in roles if role not in receipt.roles]
    if missing:
        receipt.roles.extend(missing)
        await write(machine, receipt)
    return receipt


async def others(machine: Machine, instance_id: str) -> tuple[str, ...]:
    """Return the ids of the other instances that have a receipt on the machine."""
    listing = await machine.run("find", FOLDER, "-maxdepth", "1", "-name", "*.json", check=False)
    paths = [line for line in listing.stdout.splitlines() if line != path_of(instance_id)]
    return tuple(path.rsplit("/", 1)[-1].removesuffix(".json") for path in paths)


def first_receipt(instance_id: str, hostname: str, inspection: str) -> Receipt:
    """Make a receipt from the inspection of an unchanged machine; refuse a machine with another Slurm. Pure."""
    receipt = Receipt(instance_id)
    for line in inspection.splitlines():
        kind, name, *rest = line.split()
        if kind == "absent":
            receipt.paths.append(name)
        elif kind == "empty":
            receipt.folders_to_empty.append(name)
        elif kind == "present" and name in (*CONFIGURATION, *STATE_FOLDERS):
            raise Refused(
                f"machine {hostname} already has Slurm files that this app did not write: {name}",
                fix=f"check {name}; if that Slurm is no longer used, move the file away and retry",
            )
        elif kind == "no-user":
            receipt.users.append(name)
        elif kind == "no-group":
            receipt.groups.append(name)
        elif kind == "unit":
            receipt.units.append(UnitBefore(name, *rest))
        elif kind == "content":
            receipt.contents[name] = rest[0] if rest else ""
    return receipt


async def _inspect(machine: Machine, users: tuple[str, ...]) -> str:
    names = (*PACKAGE_USERS, *users)
    questions = [("path", path) for path in PATHS]
    questions += [("content", path) for path in OVERWRITTEN]
    questions += [("user", name) for name in names]
    questions += [("group", name) for name in names]
    questions += [("unit", name) for name in UNITS_TOUCHED]
    return (await machine.script(INSPECT, *(word for question in questions for word in question))).stdout
