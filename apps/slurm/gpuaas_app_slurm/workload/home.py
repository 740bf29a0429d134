"""Where people's home folders are: the input `home`, the check of a shared folder, and the mount at /home/people.

People's homes are /home/people/LOGIN on every machine. The app makes /home/people be the shared folder with a systemd
mount unit, and removes only that unit later: files on the shared folder stay. Used by `slurm` and `uninstall`."""

import asyncio
import secrets
from collections.abc import Sequence
from typing import Literal

import msgspec
from gpuaas_sdk.failures import Refused
from gpuaas_sdk.installs import units
from gpuaas_sdk.machine import Command, File, Machine, commands

from gpuaas_app_slurm.workload import facts

PEOPLE = "/home/people"
UNIT = "home-people.mount"
UNIT_PATH = f"/etc/systemd/system/{UNIT}"
EXPORTED_FOLDER = "/srv/gpuaas-home"
EXPORTS_PATH = "/etc/exports.d/gpuaas-slurm.exports"
CLIENT_PACKAGES = ("nfs-common",)
SERVER_PACKAGES = ("nfs-kernel-server",)
EXPORT_WAIT_S = 600
"""How long a machine tries to mount a folder whose server is still being installed."""
MOUNT_S = EXPORT_WAIT_S + 120
"""Time limit of the commands of `mount`."""
AUTO = "auto"
LOCAL_WARNING = (
    "home folders are local to each machine: the output of a batch job is on the machine that ran it, and a program "
    "in ~ is not on the other machines"
)

# The probe is written into the deepest folder that exists, so that a refusal leaves no folder behind. Its owner is
# compared by number: with other numbers on another machine, people could not read their own files there.
WRITE_PROBE = r"""
folder=$1 name=$2 token=$3
while [ ! -d "$folder" ]; do folder=$(dirname -- "$folder"); done
[ "$folder" != / ] || { echo "missing"; exit 0; }
probe="$folder/$name"
( umask 022; printf '%s\n' "$token" > "$probe" ) 2>/dev/null || { echo "not-writable $folder"; exit 0; }
chown 20001:20002 "$probe" 2>/dev/null || { rm -f -- "$probe"; echo "no-owner $folder"; exit 0; }
echo "written $probe"
"""
READ_PROBE = r"""
[ -r "$1" ] || { echo "missing"; exit 0; }
echo "read $(cat -- "$1") $(stat -c %u:%g -- "$1")"
"""
# Loading a module would change the machine, so modprobe only looks whether it could.
KERNEL_CAN = r"""
for name in "$@"; do
  grep -qw "$name" /proc/filesystems || modprobe -n -q "$name" 2>/dev/null || echo "$name"
done
"""
PEOPLE_BUSY = r"""
if mountpoint -q "$1" && [ ! -e "$2" ]; then findmnt -n -o SOURCE "$1"; fi
"""
# Homes that were made before the cluster are copied once. Their local copies are visible again after the removal. A
# copy gets its name when it is complete: another machine may copy the home of the same person now, or this one stop.
MOUNT = r"""
source=$1 people=$2 unit=$3 wait_s=$4
if [ -n "$source" ] && [ ! -d "$source" ]; then mkdir -p -m 755 -- "$source"; fi
[ -d "$people" ] || install -d -m 755 "$people"
if [ -n "$source" ] && ! mountpoint -q "$people"; then
  for home in "$people"/*/; do
    [ -d "$home" ] || continue
    name=$(basename -- "$home")
    [ ! -e "$source/$name" ] || continue
    copy=$(mktemp -d -- "$source/.$name-XXXXXX")
    cp -aT -- "$home" "$copy"
    mv -nT -- "$copy" "$source/$name" 2>/dev/null || true
    [ ! -d "$copy" ] || rm -rf -- "$copy"
    [ -d "$source/$name" ]
  done
fi
systemctl enable -q --no-reload "$unit"
systemctl daemon-reload
# The machine that exports the folder may still be installing its server.
ends=$(( $(date +%s) + wait_s ))
until systemctl start "$unit" 2>/dev/null; do
  if [ "$(date +%s)" -ge "$ends" ]; then systemctl start "$unit"; break; fi
  sleep 2
done
mountpoint -q "$people"
"""
# A process that still uses a home keeps the mount busy; then it is detached and ends with that process.
UNMOUNT = r"""
people=$1 unit=$2 path=$3
if [ -e "$path" ]; then
  systemctl disable -q "$unit" 2>/dev/null || true
  systemctl stop "$unit" 2>/dev/null || true
  if mountpoint -q "$people"; then umount -l "$people"; fi
  rm -f -- "$path"
  systemctl daemon-reload
fi
"""
# A bash function for scripts that make accounts. The folder gets its name when it is complete: another machine may make
# the same one on the shared disk now.
MAKE_HOME = r"""
make_home() {
  [ ! -d "/home/people/$1" ] || return 0
  made=$(mktemp -d "/home/people/.$1-XXXXXX")
  cp -a /etc/skel/. "$made"
  chown -R "$2:$3" "$made"
  chmod 700 "$made"
  mv -nT -- "$made" "/home/people/$1" 2>/dev/null || true
  [ ! -d "$made" ] || rm -rf -- "$made"
}
"""
LEAVE_PEOPLE = r"""
[ ! -d "$1" ] || rmdir --ignore-fail-on-non-empty -- "$1"
"""

Kind = Literal["local", "shared", "nfs"]


class Home(msgspec.Struct, frozen=True):
    """Where the homes of one cluster are. `source` is the folder, or SERVER:/PATH; empty if homes are local."""

    kind: Kind
    source: str = ""
    is_exported: bool = False
    """The controller machine exports the folder to the other machines."""
    clients: tuple[str, ...] = ()
    """Addresses of the machines that may mount the exported folder; empty if they are exported to already."""

    @property
    def is_mounted(self) -> bool:
        """Whether the app mounts the folder. A machine that already has it at /home/people needs no mount."""
        return self.kind != "local" and self.source != PEOPLE

    @property
    def shown(self) -> str:
        return self.kind if self.kind == "local" else f"{self.kind}:{self.source}"


LOCAL = Home("local")


def resolve(wanted: str, controller_address: str, machines: Sequence[facts.Facts]) -> Home:
    """Return where homes are. `auto` takes a shared folder that every machine declares, otherwise homes are local."""
    if wanted == AUTO:
        declared = [set(machine.shared_folders) for machine in machines]
        common = sorted(set.intersection(*declared)) if declared else []
        return Home("shared", f"{common[0].rstrip('/')}/home") if common else LOCAL
    if wanted == "nfs":
        return Home("nfs", f"{controller_address}:{EXPORTED_FOLDER}", is_exported=True)
    kind, _, source = wanted.partition(":")
    if kind == "shared":
        return Home("shared", source.rstrip("/"))
    return Home("nfs", source) if kind == "nfs" else LOCAL


def unit_text(home: Home, *, on_controller: bool) -> str:
    """Return the mount unit. The machine that exports the folder mounts it from its own disk."""
    folder = EXPORTED_FOLDER if home.is_exported and on_controller else home.source
    is_nfs = home.kind == "nfs" and not (home.is_exported and on_controller)
    waits = "Wants=network-online.target\nAfter=network-online.target" if is_nfs else f"RequiresMountsFor={folder}"
    mount_type, options = ("nfs4", "hard,_netdev") if is_nfs else ("none", "bind")
    return (
        "# Written by the GPUaaS Slurm app. Homes are the same on every machine of the cluster.\n"
        f"[Unit]\nDescription=Home folders of people, shared by the cluster\n{waits}\nBefore=slurmd.service\n\n"
        f"[Mount]\nWhat={folder}\nWhere={PEOPLE}\nType={mount_type}\nOptions={options}\n\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )


def parse_unit(text: str) -> Home:
    """Return the home that a mount unit of this app describes; local if there is none."""
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    source = values.get("What", "")
    if not source:
        return LOCAL
    return Home("nfs" if values.get("Type") == "nfs4" else "shared", source)


def exports_text(addresses: Sequence[str]) -> str:
    """Return the list of machines that may mount the folder. Their root makes homes there, so it is not squashed."""
    clients = " ".join(f"{address}(rw,sync,no_root_squash,no_subtree_check)" for address in sorted(set(addresses)))
    return f"# Written by the GPUaaS Slurm app.\n{EXPORTED_FOLDER} {clients}\n"


async def in_use(controller: Machine, wanted: str, address: str) -> Home:
    """Return where the homes of a deployed cluster are. Its mount unit counts more than the form: `auto` may have
    meant something else at that time."""
    return of_unit(wanted, address, await controller.get(UNIT_PATH))


def of_unit(wanted: str, address: str, content: bytes | None) -> Home:
    """Return where the homes are, from the mount unit of the controller machine."""
    if wanted == "nfs":
        return resolve(wanted, address, ())
    if content is not None:
        return parse_unit(content.decode())
    return Home("shared", PEOPLE) if wanted == f"shared:{PEOPLE}" else LOCAL


async def check(home: Home, writer: Machine, readers: Sequence[Machine]) -> None:
    """Refuse a folder that is not the same on all machines. Changes nothing that stays on a machine."""
    machines = (writer, *readers)
    if home.is_mounted:
        await _refuse_busy(machines)
    if home.kind == "shared":
        await _check_shared(home.source, writer, readers)
    if home.kind == "nfs":
        for machine in machines:
            needed = ("nfsd",) if home.is_exported and machine is writer else ("nfs4",)
            await _check_kernel(machine, needed)


def mount(home: Home, *, on_controller: bool) -> tuple[Command, ...]:
    """Return the commands that make /home/people be the shared folder, now and after each start of the machine. They
    also make systemd read its files again. They can take `MOUNT_S`."""
    if not home.is_mounted:
        return commands.run("install", "-d", "-m", "0755", PEOPLE), units.RELOAD
    is_export = home.is_exported and on_controller
    exported = _export(home.clients) if is_export and home.clients else ()
    unit = File(UNIT_PATH, unit_text(home, on_controller=on_controller))
    source = EXPORTED_FOLDER if is_export else home.source if home.kind == "shared" else ""
    wait_s = EXPORT_WAIT_S if home.kind == "nfs" else 0
    return *exported, commands.put_all([unit]), commands.script(MOUNT, source, PEOPLE, UNIT, str(wait_s))


async def export(controller: Machine, addresses: Sequence[str]) -> None:
    """Export the folder to these machines."""
    await controller.run_all(*_export(addresses), timeout_s=120)


def _export(addresses: Sequence[str]) -> tuple[Command, ...]:
    return (
        commands.run("install", "-d", "-m", "0755", EXPORTED_FOLDER),
        commands.put_all([File(EXPORTS_PATH, exports_text(addresses))]),
        units.enable("nfs-server"),
        commands.run("systemctl", "start", "nfs-server"),
        commands.run("exportfs", "-ra"),
    )


async def unmount(machine: Machine) -> None:
    """Remove the mount; files on the shared folder stay."""
    await machine.script(UNMOUNT, PEOPLE, UNIT, UNIT_PATH)


async def _check_shared(source: str, writer: Machine, readers: Sequence[Machine]) -> None:
    name, token = f".gpuaas-check-{secrets.token_hex(8)}", secrets.token_hex(16)
    answer = (await writer.script(WRITE_PROBE, source, name, token, timeout_s=60)).stdout.strip()
    outcome, _, path = answer.partition(" ")
    if outcome != "written":
        raise Refused(_cannot_write(writer.hostname, source, outcome, path), fix=f"findmnt -T {source}")
    try:
        answers = await asyncio.gather(*(reader.script(READ_PROBE, path, timeout_s=60) for reader in readers))
        for reader, ran in zip(readers, answers, strict=True):
            seen = ran.stdout.strip()
            if seen != f"read {token} 20001:20002":
                raise Refused(
                    _differs(source, writer.hostname, reader.hostname, seen, token), fix=f"findmnt -T {source}"
                )
    finally:
        await writer.run("rm", "-f", "--", path)


def _cannot_write(hostname: str, source: str, outcome: str, folder: str) -> str:
    why = {
        "missing": f"{source} does not exist there, and no folder above it",
        "not-writable": f"root cannot write to {folder} there",
        "no-owner": f"root cannot change the owner of files in {folder} there, as on an export with root_squash",
    }.get(outcome, f"the check printed {outcome!r}")
    return f"home shared:{source} cannot be used on machine {hostname}: {why}"


def _differs(source: str, writer: str, reader: str, seen: str, token: str) -> str:
    words = seen.split()
    if len(words) == 3 and words[1] == token:
        return (
            f"home shared:{source} has other owners on machine {reader} than on {writer}: a file of 20001:20002 "
            f"belongs to {words[2]} there"
        )
    return (
        f"home shared:{source} is not shared: machine {reader} does not have a file that machine {writer} wrote there"
    )


async def _check_kernel(machine: Machine, needed: Sequence[str]) -> None:
    missing = (await machine.script(KERNEL_CAN, *needed, timeout_s=60)).stdout.split()
    if missing:
        raise Refused(
            f"home nfs cannot be used on machine {machine.hostname}: its kernel has no {', '.join(missing)}",
            fix="use a kernel with NFS, or deploy with home shared:/PATH or local",
        )


async def _refuse_busy(machines: Sequence[Machine]) -> None:
    answers = await asyncio.gather(
        *(machine.script(PEOPLE_BUSY, PEOPLE, UNIT_PATH, timeout_s=60) for machine in machines)
    )
    for machine, ran in zip(machines, answers, strict=True):
        if source := ran.stdout.strip():
            raise Refused(
                f"machine {machine.hostname} already has {source} mounted at {PEOPLE}, which this app did not mount",
                fix=f"deploy with home shared:{PEOPLE}, or unmount it",
            )
