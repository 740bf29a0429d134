"""The receipt lists what the app changes on a machine. It is written before each change; `uninstall` undoes the list.

It is stored on the machine, so that it is not lost when the controller process ends."""

from collections.abc import Sequence

import msgspec

from gpuaas_sdk.failures import Refused, Temporary
from gpuaas_sdk.installs.footprint import Footprint
from gpuaas_sdk.machine import Command, File, Machine, commands

# Every program that it starts takes time on a busy machine, so it asks once for all users, groups and units.
INSPECT = r"""
shopt -s nullglob dotglob
users=() groups=() units=()
while [ $# -gt 0 ]; do
  kind=$1 name=$2; shift 2
  case $kind in
    path)
      if [ ! -e "$name" ] && [ ! -L "$name" ]; then echo "absent $name"
      elif [ -d "$name" ] && inside=("$name"/*) && [ ${#inside[@]} -eq 0 ]; then echo "empty $name"
      else echo "present $name"; fi ;;
    content) [ ! -f "$name" ] || echo "content $name $(base64 -w0 "$name")" ;;
    user) users+=("$name") ;;
    group) groups+=("$name") ;;
    unit) units+=("$name") ;;
  esac
done
# Prints those of the names that the database of the system has not.
unknown() {
  local database=$1 kind=$2 known name; shift 2
  [ $# -gt 0 ] || return 0
  known=$'\n'$(getent "$database" "$@" || true)
  for name in "$@"; do [[ $known == *$'\n'"$name:"* ]] || echo "$kind $name"; done
}
unknown passwd no-user "${users[@]}"
unknown group no-group "${groups[@]}"
if [ ${#units[@]} -gt 0 ]; then
  declare -A shown=()
  # A block for each unit, in any order of its properties, and an empty line between two.
  at=0
  while IFS== read -r property value; do
    if [ -z "$property" ]; then at=$((at + 1)); else shown[$at.$property]=$value; fi
  done < <(systemctl show -p UnitFileState -p ActiveState -- "${units[@]}")
  for at in "${!units[@]}"; do
    echo "unit ${units[at]} ${shown[$at.UnitFileState]:-absent} ${shown[$at.ActiveState]:-inactive}"
  done
fi
"""


class UnitBefore(msgspec.Struct, frozen=True):
    """A unit before the app changed it, in the words of `systemctl is-enabled` and `is-active`.

    UnitBefore("database.service", enabled="enabled", active="active")"""

    name: str
    enabled: str
    active: str


class Receipt(msgspec.Struct):
    """The changes of one instance on one machine. Its packages, paths, users and groups did not exist before.

    receipt = await receipts.open_for(machine, KV, op.instance.instance_id, ("server",))
    await receipts.write(machine, KV, receipt)"""

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
    automatic: list[str] = []
    """Packages that existed before and that apt may remove when nothing needs them."""


def path_of(footprint: Footprint, instance_id: str) -> str:
    """Return the path of an instance's receipt on a machine.

    path_of(KV, "inst_1")  # /var/lib/gpuaas-app/kv/inst_1.json"""
    return f"{footprint.folder}/{instance_id}.json"


async def read(machine: Machine, footprint: Footprint, instance_id: str) -> Receipt | None:
    """Return the receipt of the machine; None if the instance changed nothing there.

    receipt = await receipts.read(machine, KV, op.instance.instance_id)"""
    content = await machine.get(path_of(footprint, instance_id))
    return None if content is None else msgspec.json.decode(content, type=Receipt)


async def write(machine: Machine, footprint: Footprint, receipt: Receipt) -> None:
    """Write the receipt. Call it before each change that the receipt did not list.

    receipt.paths.append("/srv/kv")
    await receipts.write(machine, KV, receipt)"""
    await machine.run_all(put(footprint, receipt))


def put(footprint: Footprint, receipt: Receipt) -> Command:
    """Return the command that writes the receipt, to run it with the change in one round trip.

    await machine.run_all(receipts.put(KV, receipt), commands.run("mkdir", "/srv/kv"))"""
    content = msgspec.json.format(msgspec.json.encode(receipt)) + b"\n"
    return commands.put_all([File(path_of(footprint, receipt.instance_id), content, mode=0o600)])


async def open_for(
    machine: Machine, footprint: Footprint, instance_id: str, roles: tuple[str, ...], users: tuple[str, ...] = ()
) -> Receipt:
    """Return the receipt of the machine. If there is none, make it by inspecting the machine, still unchanged.

    `users` are those that the app itself makes. A machine with another installation is refused.

    receipt = await receipts.open_for(machine, KV, op.instance.instance_id, ("server",))"""
    path = path_of(footprint, instance_id)
    read_now, inspected = await machine.run_all(commands.get_all(path), _inspect(footprint, users))
    content = commands.contents((path,), read_now.stdout)[path]
    if content is None:
        receipt = first_receipt(footprint, instance_id, machine.hostname, inspected.stdout)
    else:
        receipt = msgspec.json.decode(content, type=Receipt)
    missing = [role for role in roles if role not in receipt.roles]
    if missing:
        receipt.roles.extend(missing)
        made = commands.run("install", "-d", "-m", "0700", footprint.folder)
        await machine.run_all(made, put(footprint, receipt))
    return receipt


async def add_users(machine: Machine, footprint: Footprint, instance_id: str, names: Sequence[str]) -> None:
    """Note which of these users and groups the machine does not have yet, before they are made.

    await receipts.add_users(machine, KV, op.instance.instance_id, ["backup"])"""
    receipt = await read(machine, footprint, instance_id)
    if receipt is None:
        return
    questions = [(kind, name) for kind in ("user", "group") for name in names]
    ran = await machine.script(INSPECT, *(word for question in questions for word in question))
    before = len(receipt.users) + len(receipt.groups)
    for kind, name in (line.split() for line in ran.stdout.splitlines()):
        listed = receipt.users if kind == "no-user" else receipt.groups
        listed += [] if name in listed else [name]
    if len(receipt.users) + len(receipt.groups) != before:
        await write(machine, footprint, receipt)


async def others(machine: Machine, footprint: Footprint, instance_id: str) -> tuple[str, ...]:
    """Return the ids of the other instances of the app that have a receipt on the machine.

    if await receipts.others(machine, KV, op.instance.instance_id):
        raise Refused("another instance uses the machine")"""
    listing = await machine.run("find", footprint.folder, "-maxdepth", "1", "-name", "*.json", check=False)
    if listing.exit_status != 0 and await machine.exists(footprint.folder):
        raise Temporary(f"cannot read {footprint.folder} of {machine.hostname}: {listing.stderr.strip()[-500:]}")
    paths = [line for line in listing.stdout.splitlines() if line != path_of(footprint, instance_id)]
    return tuple(path.rsplit("/", 1)[-1].removesuffix(".json") for path in paths)


def first_receipt(footprint: Footprint, instance_id: str, hostname: str, inspection: str) -> Receipt:
    """Make a receipt from the inspection of an unchanged machine; refuse one with another installation. Pure.

    first_receipt(KV, "inst_1", "gpu-1", "absent /var/lib/kv\\nno-user kv\\n").paths  # ["/var/lib/kv"]"""
    receipt = Receipt(instance_id)
    for line in inspection.splitlines():
        kind, name, *rest = line.split()
        if kind == "absent":
            receipt.paths.append(name)
        elif kind == "empty":
            receipt.folders_to_empty.append(name)
        elif kind == "present" and name in footprint.foreign:
            raise Refused(
                f"machine {hostname} already has {footprint.name} files that this app did not write: {name}",
                fix=f"check {name}; if that {footprint.name} is no longer used, move the file away and retry",
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


def _inspect(footprint: Footprint, users: tuple[str, ...]) -> Command:
    names = (*footprint.users, *users)
    questions = [("path", path) for path in footprint.paths]
    questions += [("content", path) for path in footprint.overwritten]
    questions += [("user", name) for name in names]
    questions += [("group", name) for name in names]
    questions += [("unit", name) for name in footprint.units]
    return commands.script(INSPECT, *(word for question in questions for word in question))
