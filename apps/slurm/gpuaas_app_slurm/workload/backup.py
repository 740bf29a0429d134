"""The backup of Slurm's state and database before an upgrade, on the controller machine, and its restore.

A backup belongs to one upgrade and is replaced by that of the next one."""

import datetime
import re
from typing import Final, Literal

import msgspec
from gpuaas_sdk.failures import Permanent, Refused
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm.workload import accounting, footprint, nodes, state

FOLDER = footprint.BACKUP_FOLDER
BEFORE: Final = "before.json"
"""The queue and the versions at the time of the backup."""
AFTER: Final = "after.json"
"""The queue at the time of the rollback."""
RETURNED: Final = "returned"
"""The operation that returned to the backup. The packages may be patched later, so their version does not show it."""

TIMEOUT_S = 3600.0
"""How long the dump of a large database, or its restore, may take."""

# Only a complete backup has the file `done`, with the sums of the others. slurmctld stops first, so that its state and
# the database fit together.
SAVE = r"""
folder=$1 database=$2
[ ! -e "$folder/done" ] || exit 0
umask 077
systemctl stop slurmctld
tar -C /var/lib/slurm -cf "$folder/state.tar" slurmctld
tar -C /etc -cf "$folder/etc.tar" slurm
systemctl stop slurmdbd
mariadb-dump --single-transaction --databases "$database" > "$folder/database.sql"
sync -f "$folder/database.sql"
(cd -- "$folder" && sha256sum state.tar database.sql > done.new && mv -f done.new done)
"""
# What is missing or not as it was written. Backups of earlier releases have no sums.
DAMAGE = r"""
cd -- "$1"
for name in state.tar database.sql; do [ -s "$name" ] || echo "$name is missing"; done
[ ! -s done ] || sha256sum --check --quiet done 2>/dev/null |
  sed -n 's/: FAILED$/ is not as it was written/p; s/: FAILED open or read$/ cannot be read/p' || true
"""
# What the newer version has written is kept beside the backup, for people who need a record of it.
RESTORE = r"""
folder=$1 database=$2
umask 077
systemctl stop slurmctld slurmdbd
if [ ! -e "$folder/newer" ]; then
  tar -C /var/lib/slurm -cf "$folder/newer-state.tar" slurmctld
  mariadb-dump --single-transaction --databases "$database" > "$folder/newer-database.sql"
  touch "$folder/newer"
fi
mariadb -e "DROP DATABASE IF EXISTS $database"
mariadb < "$folder/database.sql"
rm -rf /var/lib/slurm/slurmctld
tar -C /var/lib/slurm -xpf "$folder/state.tar"
"""

FORGET = r"""
find "$1" -xdev -mindepth 1 ! -name 'newer-*' -delete
rmdir --ignore-fail-on-non-empty "$1"
"""


class Queue(msgspec.Struct, frozen=True):
    """The jobs and the drains of the cluster at one moment."""

    operation_id: str
    """The upgrade or the rollback that noted them."""
    noted_at: datetime.datetime
    next_job_id: int
    running: tuple[int, ...] = ()
    queued: tuple[int, ...] = ()
    package_version: str = ""
    """The installed version of Slurm."""
    from_version: str = ""
    to_version: str = ""
    """App versions of the operation."""
    drains: dict[str, str] | None = None
    """Every node -> the reason of its drain; empty if it is not drained. None in notes of earlier releases."""

    @property
    def jobs(self) -> frozenset[int]:
        return frozenset((*self.running, *self.queued))


async def note(
    machine: Machine, name: Literal["before.json", "after.json"], queue: Queue, *, keep: bool = False
) -> None:
    """Write what the queue is now, unless this operation did so already. A new upgrade deletes the backup of the last
    one, unless it continues that one."""
    present = await read(machine, name)
    if present is not None and present.operation_id == queue.operation_id:
        return
    if name == BEFORE and not keep:
        await machine.run("rm", "-rf", "--one-file-system", FOLDER)
    await machine.run("install", "-d", "-m", "0700", FOLDER)
    await machine.put(f"{FOLDER}/{name}", msgspec.json.encode(queue), mode=0o600)


async def read(machine: Machine, name: Literal["before.json", "after.json"] = "before.json") -> Queue | None:
    content = await machine.get(f"{FOLDER}/{name}")
    return None if content is None else msgspec.json.decode(content, type=Queue)


async def is_complete(machine: Machine) -> bool:
    return await machine.get(f"{FOLDER}/done") is not None


async def require_whole(machine: Machine) -> None:
    """Refuse to return to a damaged backup: its restore deletes the present state and database first."""
    damage = (await machine.script(DAMAGE, FOLDER, timeout_s=TIMEOUT_S)).stdout.splitlines()
    if damage:
        raise Refused(
            f"the backup from before the upgrade on {machine.hostname} is damaged, so Slurm cannot return to it: "
            f"{'; '.join(damage)} in {FOLDER}",
            fix="put the files back from a copy. Otherwise the newer Slurm stays; if its upgrade has not ended, finish "
            "it: gpuaas op retry ID --reason TEXT",
        )


async def note_return(machine: Machine, operation_id: str) -> None:
    """Note that this operation has returned to the backup. It stays, so that the operation can be retried."""
    await machine.put(f"{FOLDER}/{RETURNED}", operation_id, mode=0o600)


async def forget(machine: Machine, operation_id: str) -> None:
    """Delete the backup if this operation made it. An undo does so at its end: the cluster is as it was before. What
    the newer version has written is kept: it is the only record of jobs that the undo deleted."""
    present = await read(machine)
    if present is not None and present.operation_id == operation_id:
        await machine.script(FORGET, FOLDER)


async def is_returned(machine: Machine) -> bool:
    """Return whether the cluster has returned to the backup: the upgrade that made it has ended."""
    return await machine.get(f"{FOLDER}/{RETURNED}") is not None


async def unfinished_return(machine: Machine, before: Queue) -> Queue | None:
    """Return what an earlier return to this backup noted that did not end; None if there was none."""
    after = await read(machine, AFTER)
    is_of_backup = after is not None and after.noted_at >= before.noted_at
    return after if is_of_backup and not await is_returned(machine) else None


async def save(machine: Machine) -> None:
    """Stop slurmctld and slurmdbd and save what they have written. Jobs continue."""
    ran = await machine.script(SAVE, FOLDER, accounting.DATABASE, check=False, timeout_s=TIMEOUT_S)
    if ran.exit_status != 0:
        raise Permanent(
            f"the state and the database of Slurm on {machine.hostname} were not saved, so nothing was upgraded: "
            f"{ran.stderr.strip()[-500:]}",
            fix=f"make room, then retry the operation: gpuaas ssh {machine.hostname} --root -- df -h {FOLDER}",
        )


async def restore(machine: Machine) -> None:
    """Put state and database back as they were. The daemons are stopped afterwards."""
    await machine.script(RESTORE, FOLDER, accounting.DATABASE, timeout_s=TIMEOUT_S)


async def queue_now(machine: Machine, operation_id: str) -> Queue:
    """Return the jobs that Slurm has now. Raise Temporary while it does not answer."""
    jobs = await nodes.jobs_of_cluster(machine)
    pending = tuple(job.job_id for job in jobs if "PENDING" in job.state)
    return Queue(
        operation_id=operation_id,
        noted_at=datetime.datetime.now(datetime.UTC),
        next_job_id=next_job_id(await nodes.show(machine, "config"), jobs),
        running=tuple(job.job_id for job in jobs if job.job_id not in pending),
        queued=pending,
        drains={node.name: _drain(node) for node in await nodes.read_all(machine)},
    )


def is_between(before: Queue | None, app_version: str, installed: str, after: Queue | None = None) -> bool:
    """Return whether an upgrade or a rollback has moved the cluster and did not end: the instance still has the other
    app version. `before`: what the last upgrade noted, if the cluster has not returned to it. `after`: what the last
    return noted. Without one, the packages of before show no rollback: the upgrade changed only other machines.
    Pure."""
    if before is None:
        return False
    is_old = installed == before.package_version
    is_returning = after is not None and after.noted_at >= before.noted_at
    return (before.from_version == app_version and not is_old) or (
        before.to_version == app_version and is_old and is_returning
    )


def _drain(node: state.Node) -> str:
    return (node.reason or "no reason given") if "DRAIN" in node.flags else ""


def next_job_id(config_text: str, jobs: tuple[state.Job, ...]) -> int:
    """Return the number of the next job; after the largest known one if `scontrol show config` does not show it."""
    shown = re.search(r"^NEXT_JOB_ID\s*=\s*(\d+)", config_text, re.MULTILINE)
    return int(shown[1]) if shown else max((job.job_id for job in jobs), default=0) + 1
