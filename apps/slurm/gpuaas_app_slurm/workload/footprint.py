"""What the app may change on a machine: packages, units, users and paths of Slurm, MariaDB and munge.

The kit records what did not exist before (`gpuaas_sdk.installs`), and takes off exactly that."""

import msgspec
from gpuaas_sdk.installs import Footprint, Role, Software

from gpuaas_app_slurm import roles

CONTROLLER_PACKAGES = (
    "slurmctld",
    "slurmdbd",
    "slurm-client",
    "slurm-wlm-mysql-plugin",
    "mariadb-server",
    "mariadb-client",
    "libpmix2t64",
    "logrotate",
)
WORKER_PACKAGES = ("slurmd", "slurm-client", "libpmix2t64", "logrotate")
LOGIN_PACKAGES = WORKER_PACKAGES
"""Debian 13 has no package of sackd, so slurmd gives a login machine its configuration and its socket."""
REST_PACKAGES = ("slurmrestd", "slurm-wlm-jwt-plugin")
"""The REST API of a cluster that was deployed with it, on its controller machine."""
CONTAINER_PACKAGES = ("crun",)
"""The runtime of containers, on the workers of a cluster that was deployed with it."""
REST_UNIT = "slurmrestd"
UNITS = ("slurmd", "slurmctld", "slurmdbd", "mariadb", "munge", REST_UNIT)
UNITS_TOUCHED = (*(f"{unit}.service" for unit in UNITS), "network-online.target", "logrotate.timer")
PACKAGE_USERS = ("slurm", "munge", "mysql")
# When the unit of slurmd stops, job steps continue to run on purpose, so they are ended here by their name.
END_STEPS = r"""
systemctl stop '*slurmstepd.scope' 2>/dev/null || true
pkill -KILL -x slurmstepd || true
"""

OCI_CONF = "/etc/slurm/oci.conf"
"""How Slurm runs containers. Only the controller machine of a cluster with containers has this file."""

CONFIGURATION = (
    "/etc/slurm/slurm.conf",
    "/etc/slurm/slurmdbd.conf",
    "/etc/slurm/cgroup.conf",
    "/etc/slurm/gres.conf",
    "/etc/slurm/slurm.key",
    OCI_CONF,
)
"""Configuration files of Slurm. If one exists on a machine without a receipt of this app, the machine has another
Slurm."""

KEY_SET = "/etc/slurm/slurm.jwks"
"""The two keys of a cluster while its key is replaced. Slurm uses it instead of slurm.key."""

TOKEN_KEY = "/etc/slurm/gpuaas-jwt.key"  # noqa: S105 - a path
"""Signs the tokens of people for the REST API. It never leaves the controller machine."""
REST_DROP_IN = f"/etc/systemd/system/{REST_UNIT}.service.d/gpuaas.conf"
"""Only the controller machine of a cluster with the REST API has this file."""

STATE_FOLDERS = ("/var/lib/slurm/slurmctld", "/var/lib/slurm/slurmd")

OVERWRITTEN = ("/etc/slurm/plugstack.conf",)
"""Files of packages that the app replaces. If they existed before, the receipt contains their old content."""

REPORTER_UNIT = "gpuaas-slurm-health"
REPORTER_FOLDER = "/usr/local/lib/gpuaas-slurm"
FILES_LIST = "/etc/slurm/gpuaas-files"
"""Path and digest of each file that the app wrote, as `sha256sum` prints them."""

BACKUP_FOLDER = "/var/lib/gpuaas-app/slurm-backup"
"""The state and the database from before the last upgrade, for a rollback."""
MOVE_FOLDER = "/var/lib/gpuaas-app/slurm-move"
"""The state and the database on their way to another machine."""

OWN_PATHS = (
    REPORTER_FOLDER,
    "/var/lib/gpuaas-app/slurm-packages",
    BACKUP_FOLDER,
    MOVE_FOLDER,
    f"/etc/systemd/system/{REPORTER_UNIT}.service",
    "/run/gpuaas-slurm",
    FILES_LIST,
    f"{FILES_LIST}.tar",
    KEY_SET,
    TOKEN_KEY,
)
"""Paths of the health reporter, of bundles, backups, moves, new keys and tokens. A receipt of an earlier release does
not list them, and only this app makes them."""

WRITTEN = (
    *CONFIGURATION,
    *OVERWRITTEN,
    "/etc/slurm/gpuaas-gres.conf",
    TOKEN_KEY,
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
    *OWN_PATHS,
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

_NODE = Role(
    packages=WORKER_PACKAGES,
    units=("slurmd",),
    paths=("/etc/systemd/system/slurmd.service.d/gpuaas.conf",),
    folders=("/var/lib/slurm/slurmd",),
)
_CONTROLLER_UNITS = ("slurmctld", "slurmdbd", "mariadb")
_CONTROLLER_PATHS = tuple(f"/etc/systemd/system/{unit}.service.d/gpuaas.conf" for unit in _CONTROLLER_UNITS)

SLURM = Footprint(
    app="slurm",
    name="Slurm",
    roles={
        roles.WORKER: _NODE,
        roles.LOGIN: msgspec.structs.replace(_NODE, packages=LOGIN_PACKAGES),
        roles.CONTROLLER: Role(
            packages=CONTROLLER_PACKAGES,
            units=_CONTROLLER_UNITS,
            paths=(*_CONTROLLER_PATHS, REST_DROP_IN, TOKEN_KEY, OCI_CONF),
        ),
    },
    # Debian's packages of Slurm depend on each other in exactly their version.
    software=Software(
        packages=("slurmctld", "slurmd", "slurm-client", "slurmdbd", "slurm-wlm-mysql-plugin", *REST_PACKAGES),
        source="slurm-wlm",
        patterns=("slurm*", "libslurm*", "libpmi*", "libpam-slurm*"),
    ),
    paths=PATHS,
    own_paths=OWN_PATHS,
    overwritten=OVERWRITTEN,
    foreign=(*CONFIGURATION, KEY_SET, *STATE_FOLDERS),
    units=UNITS_TOUCHED,
    users=PACKAGE_USERS,
    # The reporter stops first, because it reports a stopped unit as a problem.
    helpers=(REPORTER_UNIT,),
)
