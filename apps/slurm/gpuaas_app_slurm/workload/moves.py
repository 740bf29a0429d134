"""Carry the state of slurmctld and the accounting database from one machine to another, and point nodes there.

The daemons are stopped while they are packed, so that both fit together. Every function can be repeated after an
interruption: files in FOLDER show what is done. `footprint` lists the folder, so it is removed with Slurm."""

import re
from typing import Literal

import msgspec
from gpuaas_sdk.checks import Show
from gpuaas_sdk.failures import Permanent, Refused
from gpuaas_sdk.installs import units
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm import roles as role_names
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import (
    accounting,
    accounting_backups,
    config,
    footprint,
    keys,
    reporter,
    reporter_program,
    rest,
    slurm,
)

FOLDER = footprint.MOVE_FOLDER
OUT, IN = f"{FOLDER}/out", f"{FOLDER}/in"
PART_BYTES = 8 * 1024 * 1024
"""The content is copied in parts, so that a large database needs little memory in the app's controller."""
TIMEOUT_S = 3600.0
CARRIED = ("/var/lib/slurm/slurmctld", accounting_backups.FOLDER, footprint.BACKUP_FOLDER)
"""Folders that are copied if they exist: the state of slurmctld, backups of accounting, the backup of an upgrade."""

BEGUN = reporter_program.MOVE
"""Noted on the old machine before its daemons are stopped, with the machine to which they move. While it is there, only
the move itself may start them again: the new machine may have a newer state, and run slurmctld."""
Mark = Literal["started", "returning"]
"""What else is noted on the old machine. `started`: slurmctld may have run on the new machine, so the state there is
the newer one. `returning`: the move is being undone."""

# The units are disabled too: the machine must not start a second slurmctld if it reboots.
PACK = r"""
out=$1 database=$2 part_bytes=$3; shift 3
if [ ! -e "$out/done" ]; then
  umask 077
  systemctl disable -q --now slurmctld
  systemctl disable -q --now slurmdbd
  systemctl start mariadb
  rm -rf -- "$out"; mkdir -p -- "$out/parts"
  mariadb-dump --single-transaction --databases "$database" > "$out/database.sql"
  present=("${out#/}/database.sql")
  for path in "$@"; do [ ! -e "$path" ] || present+=("${path#/}"); done
  tar -C / -cf - -- "${present[@]}" | gzip -1 | split -b "$part_bytes" - "$out/parts/"
  rm -- "$out/database.sql"
  cat -- "$out"/parts/* | sha256sum | cut -d' ' -f1 > "$out/sha256"
  sync
  touch -- "$out/done"
fi
cat -- "$out/sha256"
ls -- "$out/parts"
"""
# The database is named in its dump. Only a complete copy has the file `done`, and nothing of it is in use before.
UNPACK = r"""
in=$1 sha256=$2 out=$3 database=$4 state=$5
[ ! -e "$in/done" ] || exit 0
[ "$(cat -- "$in"/parts/* | sha256sum | cut -d' ' -f1)" = "$sha256" ] || { echo "the copy is damaged" >&2; exit 1; }
systemctl stop slurmctld slurmdbd
systemctl enable -q --now mariadb
rm -rf -- "$state"
cat -- "$in"/parts/* | tar -C / -xzpf -
mariadb -e "DROP DATABASE IF EXISTS $database"
mariadb < "$out/database.sql"
rm -rf -- "$out/database.sql" "$in/parts"
sync
touch -- "$in/done"
"""
RUNS_WITH = r"""
pid=$(systemctl show -p MainPID --value slurmd)
[ "$pid" -gt 0 ] && tr '\0' '\n' < "/proc/$pid/cmdline" | grep -qxF -- "$1"
"""


class Packed(msgspec.Struct, frozen=True):
    """What is to be copied: the names of the parts, and the digest of all of them together."""

    sha256: str
    parts: tuple[str, ...]


class Begun(msgspec.Struct, frozen=True):
    """Where a move that has begun goes."""

    allocation_id: str
    node_name: str
    operation_id: str
    """The newest operation that moves the controller there."""


class Original(msgspec.Struct, frozen=True):
    """What the new machine gets from the old one before anything is stopped."""

    present: config.Present
    key: bytes
    version: str
    """The version of the installed packages of Slurm."""


async def pack(machine: Machine) -> Packed:
    """Stop slurmctld and slurmdbd, and pack what they have written. Jobs continue."""
    await rest.stop(machine)
    ran = await machine.script(PACK, OUT, accounting.DATABASE, str(PART_BYTES), *CARRIED, timeout_s=TIMEOUT_S)
    sha256, *parts = ran.stdout.split()
    return Packed(sha256, tuple(parts))


async def part(machine: Machine, name: str) -> bytes:
    content = await machine.get(f"{OUT}/parts/{name}")
    if content is None:
        raise Permanent(f"{OUT}/parts/{name} is missing on {machine.hostname}", fix="retry the operation")
    return content


async def put_part(machine: Machine, name: str, content: bytes) -> None:
    await machine.run("mkdir", "-p", "-m", "0700", f"{IN}/parts")
    await machine.put(f"{IN}/parts/{name}", content, mode=0o600)


async def drop_parts(machine: Machine) -> None:
    """Delete the parts of an interrupted copy: it may have had more of them."""
    await machine.run("rm", "-rf", "--one-file-system", f"{IN}/parts")


async def is_unpacked(machine: Machine) -> bool:
    return await machine.get(f"{IN}/done") is not None


async def unpack(machine: Machine, packed: Packed) -> None:
    """Put the state and the database in their places. slurmctld and slurmdbd are stopped afterwards."""
    await machine.script(UNPACK, IN, packed.sha256, OUT, accounting.DATABASE, CARRIED[0], timeout_s=TIMEOUT_S)


async def begin(machine: Machine, begun: Begun) -> None:
    await machine.run("mkdir", "-p", "-m", "0700", FOLDER)
    await machine.put(BEGUN, msgspec.json.encode(begun), mode=0o600)


async def begun(machine: Machine) -> Begun | None:
    """Return where the move from this machine goes; None if none has begun, or it has ended."""
    content = await machine.get(BEGUN)
    try:
        return None if content is None else msgspec.json.decode(content, type=Begun)
    except msgspec.DecodeError as error:
        raise Permanent(
            f"{BEGUN} on {machine.hostname} does not name the machine to which the controller was moving",
            fix="if slurmctld runs on no other machine, delete the file: "
            f"gpuaas ssh {machine.hostname} --root -- sudo rm {BEGUN}",
        ) from error


async def refuse_begun(machine: Machine) -> None:
    """Refuse to start daemons of the controller on the old machine of a move that did not end."""
    to = await begun(machine)
    if to is not None:
        raise not_ended(machine.hostname, to)


def not_ended(name: str, to: Begun) -> Refused:
    """Return the refusal while a move from this machine did not end."""
    return Refused(
        f"the move of the controller from {name} to {to.node_name} did not end. {to.node_name} may have the newest "
        "queue and accounting and run slurmctld: do not release it",
        fix=f"gpuaas op retry {to.operation_id} --reason TEXT",
    )


async def mark(machine: Machine, name: Mark) -> None:
    await machine.run("mkdir", "-p", "-m", "0700", FOLDER)
    await machine.put(f"{FOLDER}/{name}", "", mode=0o600)


async def is_marked(machine: Machine, name: Mark) -> bool:
    return await machine.get(f"{FOLDER}/{name}") is not None


async def forget(machine: Machine) -> None:
    """Delete the files of a move. A later move starts from the beginning."""
    await machine.run("rm", "-rf", "--one-file-system", FOLDER)


async def prepare(machine: Machine, original: Original, wanted: config.Cluster) -> None:
    """Write the key and the configuration of the cluster. Nothing of Slurm is started."""
    await keys.give(machine, original.key, wanted.auth)
    if wanted.auth == "slurm":
        await keys.drop_set(machine)  # An earlier attempt may have left one, and Slurm would use it instead.
    await slurm.write_controller(machine, wanted)


async def start(
    machine: Machine, cluster_name: str, users: tuple[str, ...], settings: Settings, progress: Show
) -> None:
    """Start accounting and slurmctld, and report on the machine."""
    await accounting.start(machine, cluster_name, users, settings, progress)
    await slurm.start_scheduler(machine, settings, progress)
    await reporter.start(machine, (role_names.CONTROLLER,))


async def stop(machine: Machine) -> None:
    """Stop the daemons of a machine on which they did not run the cluster yet. It may not have them."""
    await rest.stop(machine)
    for unit in ("slurmctld", "slurmdbd"):
        await machine.run_all(units.stop(unit), check=False)


async def point(machine: Machine, address: str) -> bool:
    """Have slurmd use the controller at this address from its next start. Return whether it must be restarted.

    The running steps of jobs get the address from slurmd when it starts, so they report their end there."""
    text = (await machine.get(config.SLURMD_UNIT_PATH) or b"").decode()
    pointed = re.sub(r"--conf-server \S+", f"--conf-server {config.conf_server(address)}", text)
    if text and pointed != text:
        await machine.put(config.SLURMD_UNIT_PATH, pointed)
        await machine.run("systemctl", "daemon-reload")
        if await reporter.is_remembered(machine):
            await reporter.remember(machine)
        return True
    # An interrupted move may have written the file and not restarted slurmd.
    return (await machine.script(RUNS_WITH, config.conf_server(address), check=False)).exit_status != 0
