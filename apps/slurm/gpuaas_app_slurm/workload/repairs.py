"""Make a machine of a cluster again what it should be: its files, its key, its daemons, its node in Slurm.

Running jobs are kept: slurmd and slurmctld can restart beside them. Every function can be repeated."""

from collections.abc import Sequence

from gpuaas_sdk import checks
from gpuaas_sdk.checks import Check, Show
from gpuaas_sdk.failures import Permanent
from gpuaas_sdk.installs import units
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm import roles as role_names
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import accounting, keys, moves, nodes, programs, reporter, rest, slurm, state

POLL_S = 0.5
# Steps of jobs are processes of slurmstepd. The program of slurmd can be a deleted file, after an upgrade.
END_LEFT = r"""
main=$(systemctl show -p MainPID --value slurmd)
for folder in "$1"/[0-9]*; do
  pid=${folder##*/}
  case "$(readlink "$folder/exe" || true)" in /usr/sbin/slurmd*) ;; *) continue ;; esac
  grep -qs '/slurmd\.service' "$folder/cgroup" || continue
  [ "$pid" = "$main" ] || kill -KILL "$pid" || true
done
"""
# Accounting first: slurmctld registers with slurmdbd when it starts.
CONTROLLER_UNITS = ("mariadb", "slurmdbd", "slurmctld")


async def node(
    machine: Machine,
    controller: Machine,
    roles_here: Sequence[str],
    auth: keys.Auth,
    settings: Settings,
    progress: Show,
    *,
    restarts: bool = False,
) -> None:
    """Restore the files, the key and slurmd of a machine, and point it to the controller; wait until Slurm can start
    jobs there, or it is drained.

    With `restarts`, slurmd is restarted in any case."""
    changed = await reporter.restore(machine)
    if changed:
        await progress(f"restored the files of {machine.hostname} that had changed")
    moved = await moves.point(machine, controller.address)
    new_key = await keys.put(machine, controller, auth)
    if new_key:
        await progress(f"gave {machine.hostname} the key of the cluster")
        if await reporter.is_remembered(machine):
            await reporter.remember(machine)  # Every other file was put back above, so no edit is adopted.
    node = await nodes.read(controller, machine.hostname)
    if node is not None and not state.has_role(node, role := role_names.of_node(roles_here)):
        await progress(f"deleting the record of {machine.hostname} in Slurm, which is not that of a {role}")
        await slurm.delete_stale_node(controller, node, role)
        node = None
    registered = _is_registered(node)
    if restarts or changed or moved or new_key or not registered or not await is_active(machine, "slurmd"):
        await restart(machine, "slurmd", progress)
    await _until_usable(machine, controller, settings, progress)
    await programs.renew(machine, roles_here, progress)
    await reporter.ensure(machine, roles_here)


async def controller(
    machine: Machine,
    roles_here: Sequence[str],
    cluster_name: str,
    settings: Settings,
    progress: Show,
    *,
    restarts: bool = False,
) -> None:
    """Restore the files and the daemons of the machine of slurmctld; wait until Slurm and its accounting answer.

    With `restarts`, every daemon is restarted in any case."""
    await moves.refuse_begun(machine)
    changed = await reporter.restore(machine)
    if changed:
        await progress(f"restored the files of {machine.hostname} that had changed")
    for unit in CONTROLLER_UNITS:
        if restarts or changed or not await is_active(machine, unit):
            await restart(machine, unit, progress)
        if unit == "slurmdbd":
            await until_accounting(machine, cluster_name, settings, progress)
    await until_scheduler(machine, settings, progress)
    if changed:
        await _send_files(machine, settings, progress)
    if restarts or changed or not (await rest.answers(machine)).ok:
        await rest.start(machine, settings, progress)
    await programs.renew(machine, roles_here, progress)
    await reporter.ensure(machine, roles_here)


async def _send_files(machine: Machine, settings: Settings, progress: Show) -> None:
    """Send the configuration to every slurmd. One that received an edited file keeps it, also if slurmctld restarts."""
    await machine.run("scontrol", "reconfigure", check=False)
    await until(lambda: slurm.controller_answers(machine), settings.controller_start_s, machine, progress)


async def restart(machine: Machine, unit: str, progress: Show) -> None:
    await progress(f"restarting {unit} on {machine.hostname}")
    await machine.run("systemctl", "reset-failed", unit, check=False)
    if unit == "slurmd":
        await end_left(machine)
    await machine.run_all(units.enable(unit))
    # The result is read by the check that follows: an active unit may still have failed to register.
    await machine.run("systemctl", "restart", unit, check=False)


async def end_left(machine: Machine) -> None:
    """End each slurmd of the unit that systemd does not know, before a restart. Jobs continue.

    slurmd replaces itself when it reads its settings again. If that goes wrong, the one that works is not the main
    process of its unit: no stop ends it, and it keeps the port, so that no other slurmd can start."""
    await machine.script(END_LEFT, "/proc")


async def _until_usable(machine: Machine, controller: Machine, settings: Settings, progress: Show) -> None:
    async def usable() -> Check:
        node = await nodes.read(controller, machine.hostname)
        if node is not None and "DRAIN" in node.flags and not node.flags & _UNREGISTERED:
            return Check(True)
        return state.node_takes_work(machine.hostname, node)

    await until(usable, settings.join_s, machine, progress)


async def until(ask: checks.Ask, timeout_s: float, machine: Machine, progress: Show) -> None:
    """Wait until the daemons of a machine work. Fail with where to look if they do not."""
    check = await checks.until(ask, within_s=timeout_s, every_s=POLL_S, show=progress)
    if not check.ok:
        raise Permanent(
            f"the daemons of {machine.hostname} do not work: {check.reason}",
            fix=f"gpuaas ssh {machine.hostname} --root -- sudo journalctl -n 50 -u 'slurm*' -u mariadb",
        )


async def until_accounting(machine: Machine, cluster_name: str, settings: Settings, progress: Show) -> None:
    """Wait until slurmdbd answers for the cluster."""
    ask = _starting_again(machine, "slurmdbd", lambda: accounting.ready(machine, cluster_name), progress)
    await until(ask, settings.accounting_start_s, machine, progress)


async def until_scheduler(machine: Machine, settings: Settings, progress: Show) -> None:
    """Wait until slurmctld answers."""
    ask = _starting_again(machine, "slurmctld", lambda: slurm.controller_answers(machine), progress)
    await until(ask, settings.controller_start_s, machine, progress)


def _starting_again(machine: Machine, unit: str, ask: checks.Ask, progress: Show) -> checks.Ask:
    """Return the question, which also starts the daemon again if it has ended: on a busy machine a daemon can end right
    after systemd has started it. A daemon that ends each time is started a few times only."""
    starts_left = STARTS_MAX

    async def asked() -> Check:
        nonlocal starts_left
        check = await ask()
        if check.ok or not starts_left or not await is_stopped(machine, unit):
            return check
        starts_left -= 1
        await progress(f"{unit} on {machine.hostname} has ended, starting it again")
        await machine.run("systemctl", "start", unit, check=False)
        return check

    return asked


async def is_stopped(machine: Machine, unit: str) -> bool:
    """Return whether the unit has no process and is not about to start or stop."""
    shown = await machine.run("systemctl", "is-active", unit, check=False)
    return shown.stdout.strip() in slurm.STOPPED


async def is_active(machine: Machine, unit: str) -> bool:
    return (await machine.run("systemctl", "is-active", "-q", unit, check=False)).exit_status == 0


STARTS_MAX = 3
_UNREGISTERED = frozenset({"DOWN", "NOT_RESPONDING", "INVALID_REG", "UNKNOWN"})


def _is_registered(node: state.Node | None) -> bool:
    return node is not None and not node.flags & _UNREGISTERED
