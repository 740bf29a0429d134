"""Backups of the accounting database on the controller machine, and their restore.

A backup is complete when it has its name: it is written beside it first. A restore loads the backup into a second
database while the cluster runs, and exchanges the tables while slurmdbd and slurmctld are stopped."""

import datetime

import msgspec
from gpuaas_sdk.failures import Permanent, Refused
from gpuaas_sdk.machine import Machine, Ran

from gpuaas_app_slurm.workload import accounting

FOLDER = "/var/lib/slurm/accounting-backups"
"""It is removed with Slurm. Only root reads it."""
STAGED, BEFORE = f"{accounting.DATABASE}_restore", f"{accounting.DATABASE}_before"
NOT_A_BACKUP = 65
"""Exit status of a script here if the file is missing, damaged or of another cluster."""
TIMEOUT_S = 3600.0

BACK_UP = r"""
folder=$1 name=$2 database=$3
install -d -m 0700 "$folder"
cd -- "$folder"
if [ ! -e "$name" ]; then
  umask 077
  trap 'rm -f -- "$name.new"' EXIT
  mariadb-dump --single-transaction --quick "$database" | gzip -c > "$name.new"
  sha256sum < "$name.new" | cut -d' ' -f1 > "$name.sha256"
  sync
  mv -f -- "$name.new" "$name"
fi
"""
LIST = r"""
folder=$1
[ -d "$folder" ] || exit 0
cd -- "$folder"
for name in *.sql.gz; do
  [ -e "$name" ] || continue
  echo "$name $(stat -c '%s %Y' "$name") $(cat "$name.sha256" 2>/dev/null || echo none)"
done
"""
STAGE = rf"""
folder=$1 name=$2 staged=$3 cluster=$4 live=$5
cd -- "$folder"
refuse() {{ echo "$1" >&2; exit {NOT_A_BACKUP}; }}
[ -e "$name" ] || refuse "there is no such file"
[ "$(sha256sum < "$name" | cut -d' ' -f1)" = "$(cat "$name.sha256")" ] || refuse "its content is not what was written"
mariadb -e "DROP DATABASE IF EXISTS $staged; CREATE DATABASE $staged"
gzip -dc "$name" | mariadb "$staged"
found=$(mariadb -N -B -e "SELECT COUNT(*) FROM $staged.cluster_table WHERE name = '$cluster' AND deleted = 0")
[ "$found" = 1 ] || refuse "it is of another cluster"
version() {{ mariadb -N -B -e "SELECT version FROM $1.convert_version_table" | sort -n | tail -n 1; }}
theirs=$(version "$staged") ours=$(version "$live" || true)
theirs=${{theirs:-0}}
[ "$theirs" -le "${{ours:-$theirs}}" ] || refuse "its tables have a newer version than those of this Slurm"
"""  # noqa: S608 - the values are arguments of the script
# The daemons start again in every case. RENAME TABLE exchanges all tables in one statement, or none of them.
EXCHANGE = r"""
live=$1 staged=$2 before=$3
tables() { mariadb -N -B -e "SELECT table_name FROM information_schema.tables WHERE table_schema = '$1'"; }
mariadb -e "DROP DATABASE IF EXISTS $before; CREATE DATABASE $before"
trap 'systemctl start slurmdbd; systemctl start slurmctld' EXIT
systemctl stop slurmctld slurmdbd
moves=$( { for name in $(tables "$live"); do echo "$live.$name TO $before.$name"; done
  for name in $(tables "$staged"); do echo "$staged.$name TO $live.$name"; done; } | paste -sd, )
mariadb -e "RENAME TABLE $moves"
mariadb -e "DROP DATABASE $staged; DROP DATABASE $before"
"""


class Backup(msgspec.Struct, frozen=True):
    name: str
    size_bytes: int
    made_at: datetime.datetime
    sha256: str


def name_of(operation_id: str, prefix: str = "accounting") -> str:
    """Return the name of the backup that an operation makes. After a crash the operation finds its own file."""
    return f"{prefix}-{operation_id}.sql.gz"


async def back_up(controller: Machine, name: str) -> Backup:
    """Write the backup unless it exists, and return it."""
    ran = await controller.script(BACK_UP, FOLDER, name, accounting.DATABASE, check=False, timeout_s=TIMEOUT_S)
    if ran.exit_status != 0:
        raise Permanent(
            f"the accounting database on {controller.hostname} was not backed up: {_error(ran)}",
            fix=f"gpuaas ssh {controller.hostname} --root -- df -h /var/lib/slurm",
        )
    return next(backup for backup in await listed(controller) if backup.name == name)


async def listed(controller: Machine) -> list[Backup]:
    """Return the backups, newest first."""
    ran = await controller.script(LIST, FOLDER)
    return sorted(parse(ran.stdout), key=lambda backup: backup.made_at, reverse=True)


def parse(text: str) -> list[Backup]:
    rows = [line.split() for line in text.splitlines()]
    return [
        Backup(name, int(size), datetime.datetime.fromtimestamp(int(made_at), datetime.UTC), sha256)
        for name, size, made_at, sha256 in rows
    ]


async def stage(controller: Machine, name: str, cluster_name: str) -> None:
    """Load the backup into a database of its own. The cluster is not changed; a wrong file is refused."""
    ran = await controller.script(
        STAGE, FOLDER, name, STAGED, cluster_name, accounting.DATABASE, check=False, timeout_s=TIMEOUT_S
    )
    if ran.exit_status == NOT_A_BACKUP:
        raise Refused(f"the backup {name} cannot be restored: {_error(ran)}", fix="choose another backup")
    if ran.exit_status != 0:
        raise Permanent(f"the backup {name} could not be loaded: {_error(ran)}", fix="choose another backup")


async def exchange(controller: Machine) -> None:
    """Put the loaded tables in the place of the present ones."""
    await controller.script(EXCHANGE, accounting.DATABASE, STAGED, BEFORE, timeout_s=TIMEOUT_S)


def _error(ran: Ran) -> str:
    return ran.stderr.strip()[-500:] or f"exit status {ran.exit_status}"
