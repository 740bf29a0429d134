"""Remove one role from a machine, and with the last role everything on the receipt. An interrupted removal can be
repeated, because the receipt is deleted last."""

import base64
from collections.abc import Awaitable, Callable, Collection

from gpuaas_sdk.checks import Show
from gpuaas_sdk.failures import Refused
from gpuaas_sdk.installs import acts as app_acts
from gpuaas_sdk.installs import apt, receipts, removals, undo
from gpuaas_sdk.installs.acts import Acts
from gpuaas_sdk.installs.footprint import Footprint
from gpuaas_sdk.machine import Machine, shell

Report = Callable[[removals.Removal], Awaitable[None]]
RolesBeside = Callable[[], Awaitable[Collection[str]]]
"""Returns the roles that other members have on the machine now."""

STOP = r"""
for unit in "$@"; do
  systemctl disable -q --now "$unit.service" 2>/dev/null || true
done
"""
# Beside a file, a power cut may have left the new content that was to replace it.
REMOVE_PATHS = (
    shell.DELETE_TEMPORARY
    + r"""
for path in "$@"; do
  rm -rf --one-file-system -- "$path"
  delete_temporary "$path"
done
"""
)
EMPTY_FOLDERS = r"""
for folder in "$@"; do [ ! -d "$folder" ] || find "$folder" -xdev -mindepth 1 -delete; done
"""
# A process in a home keeps the mount of homes busy.
END_PROCESSES = r"""
for name in "$@"; do
  if getent passwd "$name" >/dev/null; then while pkill -KILL -u "$name"; do sleep 0.1; done; fi
done
"""
# userdel refuses a user who has running processes, so end them first.
REMOVE_USERS = r"""
for name in "$@"; do
  getent passwd "$name" >/dev/null || continue
  home=$(getent passwd "$name" | cut -d: -f6)
  while pkill -KILL -u "$name"; do sleep 0.1; done
  userdel "$name" >/dev/null
  case $home in /home/people/?*) if mountpoint -q /home/people; then home=; fi ;; esac
  case $home in /home/?*) rm -rf --one-file-system -- "$home" ;; esac
  rm -f -- "/var/mail/$name"
done
"""
# A power cut while a user is made or removed leaves the lock of useradd: a file with the number of its process.
REMOVE_LOCKS = r"""
for path in /etc/passwd.[0-9]* /etc/shadow.[0-9]* /etc/group.[0-9]* /etc/gshadow.[0-9]* /etc/sub[ug]id.[0-9]*; do
  [ -e "$path" ] || continue
  case $(cat "/proc/${path##*.}/comm" 2>/dev/null) in
    user* | group* | *passwd | newusers | vipw) ;;
    *) rm -f -- "$path" ;;
  esac
done
"""
REMOVE_GROUPS = (
    r"""
for name in "$@"; do if getent group "$name" >/dev/null; then groupdel "$name"; fi; done
"""
    + REMOVE_LOCKS
)
RESTORE_UNIT = r"""
unit=$1 enabled=$2 active=$3
case $enabled in
  enabled) systemctl enable -q "$unit" ;;
  disabled) systemctl disable -q "$unit" 2>/dev/null ;;
  masked) systemctl mask -q "$unit" ;;
esac
case $active in active) systemctl start "$unit" ;; *) systemctl stop "$unit" 2>/dev/null || true ;; esac
"""
DELETE_RECEIPT = r"""
systemctl daemon-reload
systemctl reset-failed 2>/dev/null || true
rm -f -- "$1"
# systemd makes this folder for the first timer with a stamp, which may have been that of logrotate.
[ ! -d /var/lib/systemd/timers ] || rmdir --ignore-fail-on-non-empty /var/lib/systemd/timers
folder=$(dirname -- "$1")
rmdir --ignore-fail-on-non-empty -- "$folder"
[ -d "$folder" ] || rmdir --ignore-fail-on-non-empty -- "$(dirname -- "$folder")"
"""


async def remove_role(
    machine: Machine,
    footprint: Footprint,
    instance_id: str,
    role: str,
    progress: Show,
    *,
    acts: Acts = app_acts.NONE,
    report: Report | None = None,
    roles_beside: RolesBeside | None = None,
) -> None:
    """Remove the role from the machine. `report` gets what was removed and left, before the receipt is deleted: an
    interrupted removal is repeated and reports again. Roles of the receipt that are not among `roles_beside` belong to
    no member any more, because people ended an operation by force, and are removed too.

    await uninstall.remove_role(machine, KV, op.instance.instance_id, "server", op.say)"""
    receipt = await receipts.read(machine, footprint, instance_id)
    if receipt is None or role not in receipt.roles:
        return
    if roles_beside is not None and len(receipt.roles) > 1:
        # After the receipt was read: a member exists before its role is on the receipt.
        used = {role, *await roles_beside()}
        receipt.roles = [other for other in receipt.roles if other in used]
    plan = undo.undo(footprint, receipt, role)
    await progress(f"stopping {', '.join(undo.services(footprint, plan, role))} on {machine.hostname}")
    await acts.before_stop(machine, plan, role)
    await machine.script(STOP, *plan.stop_units)
    await acts.after_stop(machine, plan, role)
    kept = await _remove(machine, footprint, plan, acts, progress)
    if report is not None:
        await report(await removals.look(machine, footprint, plan, role, kept, acts))
    if plan.last:
        await machine.script(DELETE_RECEIPT, receipts.path_of(footprint, instance_id))
    else:
        receipt.roles = [other for other in receipt.roles if other != role]
        # It is before the receipt, so that an interrupted removal repeats it.
        await acts.after_role(machine, receipt.roles)
        await receipts.write(machine, footprint, receipt)


async def remove_all(
    machine: Machine, footprint: Footprint, instance_id: str, progress: Show, *, acts: Acts = app_acts.NONE
) -> None:
    """Remove every role of an instance that no longer uses the machine.

    await uninstall.remove_all(machine, KV, "inst_1", op.say)"""
    receipt = await receipts.read(machine, footprint, instance_id)
    for role in tuple(receipt.roles) if receipt else ():
        await remove_role(machine, footprint, instance_id, role, progress, acts=acts)


async def take_over(
    machine: Machine,
    footprint: Footprint,
    instance_id: str,
    is_used: Callable[[str], Awaitable[bool]],
    progress: Show,
    *,
    acts: Acts = app_acts.NONE,
) -> None:
    """Remove what instances that no longer use the machine have left there. Refuse the machine of another instance.

    await uninstall.take_over(machine, KV, instance_id, lambda other: op.is_used_by(other, member), op.say)"""
    for other in await receipts.others(machine, footprint, instance_id):
        if await is_used(other):
            raise Refused(
                f"machine {machine.hostname} already belongs to another {footprint.name} instance: {other}",
                fix="decommission the other instance on this machine first, or choose another allocation",
            )
        await progress(f"removing what {other}, which no longer uses {machine.hostname}, has left there")
        await remove_all(machine, footprint, other, progress, acts=acts)


async def _remove(
    machine: Machine, footprint: Footprint, plan: undo.Undo, acts: Acts, progress: Show
) -> tuple[str, ...]:
    if plan.packages:
        await progress(f"removing {len(plan.packages)} packages from {machine.hostname}")
    kept = await apt.purge(machine, plan.packages, footprint.packages)
    await apt.mark_automatic(machine, plan.automatic)
    if plan.last:
        await machine.script(END_PROCESSES, *plan.users)
        await acts.before_users(machine, plan)
    await machine.script(REMOVE_USERS, *plan.users)
    await machine.script(REMOVE_GROUPS, *plan.groups)
    if plan.last:
        await acts.before_paths(machine, plan)
    await machine.script(REMOVE_PATHS, *plan.paths)
    await machine.script(EMPTY_FOLDERS, *plan.empty_folders)
    for path, content in plan.restore_contents.items():
        await machine.put(path, base64.b64decode(content))
    for unit in plan.restore_units:
        await machine.script(RESTORE_UNIT, unit.name, unit.enabled, unit.active)
    return kept
