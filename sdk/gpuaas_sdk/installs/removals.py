"""What a removal took off a machine and what it left there, for the statement of the operation.

The receipt lists what did not exist before the app; the machine is asked after the removal which of it still exists. So
an interrupted removal that is repeated has the same lines."""

from collections.abc import Iterable, Sequence

import msgspec

from gpuaas_sdk.installs import undo
from gpuaas_sdk.installs.acts import Acts
from gpuaas_sdk.installs.footprint import Footprint
from gpuaas_sdk.machine import Machine

BEGUN_BY = "removal"
"""Field of a member's detail with the operation that began to take the app off its machine. Only a removal can finish
that."""
NAMES_MAX = 40
"""How many names a line lists. The number of all is always there."""
STILL_THERE = r"""
while [ $# -gt 0 ]; do
  kind=$1 name=$2; shift 2
  case $kind in
    path) if [ -e "$name" ] || [ -L "$name" ]; then echo "$kind $name"; fi ;;
    content) if [ -d "$name" ] && [ -n "$(ls -A -- "$name")" ]; then echo "$kind $name"; fi ;;
    user) if getent passwd "$name" >/dev/null; then echo "$kind $name"; fi ;;
    group) if getent group "$name" >/dev/null; then echo "$kind $name"; fi ;;
    unit) if systemctl is-active -q "$name.service"; then echo "$kind $name"; fi ;;
    package)
      case $(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null) in installed) echo "$kind $name" ;; esac ;;
  esac
done
"""
NOT_REMOVED = "it was still there after the removal"
PACKAGE_RECORDS = (
    "records, caches and logs of the package and account tools, and the journal",
    "every installation changes them; they configure nothing",
)


class Removal(msgspec.Struct, frozen=True):
    """The lines of a statement about one machine.

    async def report(removal: Removal) -> None:
        await op.report(member, removed=list(removal.removed))"""

    removed: tuple[str, ...]
    left: tuple[tuple[str, str], ...]
    """What is still on the machine, and why."""
    packages_kept: tuple[str, ...] = ()


async def look(
    machine: Machine, footprint: Footprint, plan: undo.Undo, role: str, kept: tuple[str, ...], acts: Acts
) -> Removal:
    """Ask the machine what is still there. `kept` are packages that other software needs.

    removal = await removals.look(machine, KV, plan, "server", (), acts.NONE)"""
    questions = _questions(footprint, plan, role, acts)
    answer = (await machine.script(STILL_THERE, *(word for question in questions for word in question))).stdout
    present = {(kind, name) for kind, _, name in (line.partition(" ") for line in answer.splitlines())}
    return observed(footprint, plan, role, present, kept, acts)


def observed(
    footprint: Footprint,
    plan: undo.Undo,
    role: str,
    present: set[tuple[str, str]],
    kept: tuple[str, ...],
    acts: Acts,
) -> Removal:
    """Return the lines of the statement. `present` is what is still there of what was asked for. Pure.

    observed(KV, plan, "server", {("path", "/etc/kv")}, (), acts.NONE).left"""

    def gone(kind: str, names: Iterable[str]) -> list[str]:
        return [name for name in names if (kind, name) not in present]

    services = gone("unit", undo.services(footprint, plan, role))
    if not plan.last:
        why = f"another role of the instance ({', '.join(plan.roles_staying)}) uses the machine"
        removed = _lines(("services that do not run now", services))
        return Removal(
            removed, (*_still(plan, present, kept), (f"packages, users and files of {footprint.name}", why)), kept
        )
    removed = _lines(
        ("services that do not run now", services),
        ("packages", gone("package", plan.packages)),
        ("users that do not exist now, as before", gone("user", plan.users)),
        ("groups that do not exist now, as before", gone("group", plan.groups)),
        ("files and folders that do not exist now, as before", _outermost(gone("path", plan.paths))),
        ("content of folders", gone("content", plan.empty_folders)),
        ("changes, restored as before", (*plan.restore_contents, *(unit.name for unit in plan.restore_units))),
        *acts.removed(plan, role),
    )
    return Removal(removed, (*_still(plan, present, kept), *_meant_to_stay(footprint, plan, role, present, acts)), kept)


def _questions(footprint: Footprint, plan: undo.Undo, role: str, acts: Acts) -> list[tuple[str, str]]:
    packaged = (*plan.packages, *footprint.packages_of((role,))) if plan.last else ()
    asked = {
        "unit": plan.stop_units,
        "package": tuple(dict.fromkeys(packaged)),
        "user": plan.users,
        "group": plan.groups,
        "path": plan.paths,
        "content": (*plan.empty_folders, *acts.folders(plan)),
    }
    return [(kind, name) for kind, names in asked.items() for name in names]


def _still(plan: undo.Undo, present: set[tuple[str, str]], kept: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return what should be gone and is not."""
    own = {"unit": plan.stop_units, "user": plan.users, "group": plan.groups, "path": plan.paths}
    own |= {"content": plan.empty_folders, "package": plan.packages}
    left = [
        (f"{kind} {name}", NOT_REMOVED)
        for kind, names in own.items()
        for name in names
        if (kind, name) in present and name not in kept
    ]
    if kept:
        left.append((_line("packages", kept), "other software on the machine needs them"))
    return left


def _meant_to_stay(
    footprint: Footprint, plan: undo.Undo, role: str, present: set[tuple[str, str]], acts: Acts
) -> Iterable[tuple[str, str]]:
    before = [name for name in footprint.packages_of((role,)) if name not in plan.packages]
    if older := [name for name in before if ("package", name) in present]:
        yield _line("packages", older), "they were installed before the app"
    yield from acts.left(plan, present)
    if plan.packages:
        yield PACKAGE_RECORDS


def _lines(*listed: tuple[str, Sequence[str]]) -> tuple[str, ...]:
    return tuple(_line(what, names) for what, names in listed if names)


def _line(what: str, names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return f"{what} ({len(names)}): {', '.join(names[:NAMES_MAX])}{more}"


def _outermost(paths: Sequence[str]) -> list[str]:
    """Return the paths without those that are in a folder that was removed too."""
    return [path for path in paths if not any(path.startswith(f"{other}/") for other in paths)]
