"""Take one role off one machine, and with the last role everything the receipt names.  Every step may be repeated:
the receipt is deleted last."""

import base64

from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm import accounting, nodes, packages, plan, receipt

# slurmd's unit leaves job steps alive on purpose when it stops, so they are ended by name here.
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
# userdel refuses a user whose last process is still ending, however long that takes.
REMOVE_USERS = r"""
for name in "$@"; do
  getent passwd "$name" >/dev/null || continue
  home=$(getent passwd "$name" | cut -d: -f6)
  while pkill -KILL -u "$name"; do sleep 0.1; done
  userdel "$name" >/dev/null
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
FORGET = r"""
systemctl daemon-reload
systemctl reset-failed 2>/dev/null || true
rm -f -- "$1"
rmdir --ignore-fail-on-non-empty -- "$(dirname -- "$1")"
[ -d /var/lib/gpuaas-app/slurm ] || rmdir --ignore-fail-on-non-empty /var/lib/gpuaas-app
"""


async def leave(machine: Machine, instance_id: str, role: str, say: nodes.Say) -> tuple[str, ...]:
    """Take the role off the machine. Answers the packages that had to stay because other software needs them."""
    note = await receipt.read(machine, instance_id)
    if note is None or role not in note.roles:
        return ()
    undo = plan.undo(note, role)
    await say(f"stopping {', '.join(undo.stop_units)} on {machine.hostname}")
    if undo.drop_database:
        await _drop_database(machine)
    await machine.script(STOP, *undo.stop_units)
    kept = await _remove(machine, undo, say)
    if undo.last:
        await machine.script(FORGET, receipt.path_of(instance_id))
    else:
        await machine.run("systemctl", "daemon-reload")
        note.roles = [other for other in note.roles if other != role]
        await receipt.write(machine, note)
    return kept


async def _remove(machine: Machine, undo: plan.Undo, say: nodes.Say) -> tuple[str, ...]:
    if undo.packages:
        await say(f"removing {len(undo.packages)} packages from {machine.hostname}")
    kept = await packages.purge(machine, undo.packages)
    await machine.script(REMOVE_USERS, *undo.users)
    await machine.script(REMOVE_GROUPS, *undo.groups)
    await machine.script(REMOVE_PATHS, *undo.paths)
    await machine.script(EMPTY_FOLDERS, *undo.empty_folders)
    for path, content in undo.restore_contents.items():
        await machine.put(path, base64.b64decode(content))
    for unit in undo.restore_units:
        await machine.script(RESTORE_UNIT, unit.name, unit.enabled, unit.active)
    return kept


async def _drop_database(machine: Machine) -> None:
    """A MariaDB that was here before us stays; only our database and its user go."""
    await machine.script("systemctl stop slurmctld.service slurmdbd.service 2>/dev/null || true")
    started = await machine.run("systemctl", "start", "mariadb", check=False)
    if started.exit_status == 0:
        await machine.run("mariadb", input=accounting.DROP_DATABASE)
