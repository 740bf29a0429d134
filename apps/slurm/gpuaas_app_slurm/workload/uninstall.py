"""Remove one role from a machine, and with the last role everything on the receipt. An interrupted removal can be
repeated, because the receipt is deleted last."""

import base64

from gpuaas_sdk.checks import Show
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm.workload import accounting, home, keys, packages, receipts, reporter, undo

# When the unit of slurmd stops, job steps continue to run on purpose, so they are ended here by their name.
STOP = r"""
for unit in "$@"; do
  systemctl disable -q --now "$unit.service" 2>/dev/null || true
done
case " $* " in *" slurmd "*)
  systemctl stop '*slurmstepd.scope' 2>/dev/null || true
  pkill -KILL -x slurmstepd || true ;;
esac
"""
REMOVE_PATHS = r"""
for path in "$@"; do rm -rf --one-file-system -- "$path"; done
"""
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
REMOVE_GROUPS = r"""
for name in "$@"; do if getent group "$name" >/dev/null; then groupdel "$name"; fi; done
"""
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
rmdir --ignore-fail-on-non-empty -- "$(dirname -- "$1")"
[ -d /var/lib/gpuaas-app/slurm ] || rmdir --ignore-fail-on-non-empty /var/lib/gpuaas-app
"""


async def remove_role(machine: Machine, instance_id: str, role: str, progress: Show) -> tuple[str, ...]:
    """Remove the role from the machine; return the packages that were kept because other software needs them."""
    receipt = await receipts.read(machine, instance_id)
    if receipt is None or role not in receipt.roles:
        return ()
    plan = undo.undo(receipt, role)
    await progress(f"stopping {', '.join(plan.stop_units)} on {machine.hostname}")
    if plan.drop_database:
        await _drop_database(machine)
    await machine.script(STOP, *plan.stop_units)
    kept = await _remove(machine, plan, progress)
    if plan.last:
        await machine.script(DELETE_RECEIPT, receipts.path_of(instance_id))
    else:
        receipt.roles = [other for other in receipt.roles if other != role]
        # It reloads systemd too. It is before the receipt, so that an interrupted removal repeats it.
        await reporter.start(machine, receipt.roles)
        await receipts.write(machine, receipt)
    return kept


async def remove_all(machine: Machine, instance_id: str, progress: Show) -> None:
    """Remove every role of an instance that no longer uses the machine."""
    receipt = await receipts.read(machine, instance_id)
    for role in tuple(receipt.roles) if receipt else ():
        await remove_role(machine, instance_id, role, progress)


async def _remove(machine: Machine, plan: undo.Undo, progress: Show) -> tuple[str, ...]:
    if plan.packages:
        await progress(f"removing {len(plan.packages)} packages from {machine.hostname}")
    kept = await packages.purge(machine, plan.packages)
    if plan.last:
        await machine.script(END_PROCESSES, *plan.users)
        await home.unmount(machine)
    await machine.script(REMOVE_USERS, *plan.users)
    await machine.script(REMOVE_GROUPS, *plan.groups)
    if plan.last:
        await keys.restore(machine)
        await machine.script(home.LEAVE_PEOPLE, home.PEOPLE)
    await machine.script(REMOVE_PATHS, *plan.paths)
    await machine.script(EMPTY_FOLDERS, *plan.empty_folders)
    for path, content in plan.restore_contents.items():
        await machine.put(path, base64.b64decode(content))
    for unit in plan.restore_units:
        await machine.script(RESTORE_UNIT, unit.name, unit.enabled, unit.active)
    return kept


async def _drop_database(machine: Machine) -> None:
    """Drop only the database and the database user of the app, because MariaDB was installed before and stays."""
    await machine.script("systemctl stop slurmctld.service slurmdbd.service 2>/dev/null || true")
    started = await machine.run("systemctl", "start", "mariadb", check=False)
    if started.exit_status == 0:
        await machine.run("mariadb", input=accounting.DROP_DATABASE)
